/* What a message's path takes: figures of its two hosts where the problem has them,
 * else the latencies of its links and what is not under way with others. */
#include "kernel.h"

double path_of(const problem *p, int64_t m, int32_t from, int32_t to)
{
    const int32_t *a = p->member + from * p->depth, *b = p->member + to * p->depth;
    int64_t pair = from * p->hosts + to;
    double sum = 0, slowest = 0;
    if (p->alpha)
        return p->alpha[pair] + p->sent[m] * p->s_per_byte[pair];
    for (int64_t d = 0; d < p->depth; d++)
        if (a[d] != b[d]) {
            double up = 1 / p->capacity[a[d]], down = 1 / p->capacity[p->links + b[d]];
            sum += p->latency[a[d]] + p->latency[b[d]];
            slowest = up > slowest ? up : slowest;
            slowest = down > slowest ? down : slowest;
        }
    return sum + p->alone[m] * slowest;
}
