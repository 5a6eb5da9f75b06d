/* What a message takes beside the load of links: its links' latencies, or figures
 * of the two hosts where the problem has them. */
#include "kernel.h"

double path_of(const problem *p, int64_t m, int32_t from, int32_t to)
{
    const int32_t *a = p->member + from * p->depth, *b = p->member + to * p->depth;
    double sum = 0, slowest = 0;
    for (int64_t d = 0; d < p->depth; d++)
        if (a[d] != b[d]) {
            double up = 1 / p->capacity[a[d]], down = 1 / p->capacity[p->links + b[d]];
            sum += p->latency[a[d]] + p->latency[b[d]];
            slowest = up > slowest ? up : slowest;
            slowest = down > slowest ? down : slowest;
        }
    if (p->alpha) {
        int64_t pair = from * p->hosts + to;
        sum = p->alpha[pair] + p->drag[m] * p->excess[pair];
    }
    return sum + p->alone[m] * slowest;
}
