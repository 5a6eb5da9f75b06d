/* The search engine: random moves of hosts, annealed, then only for the better.
 *
 * The same inputs and seed give the same answer on every machine: no exp, no log,
 * no fused multiply-add, one order of additions, and a generator of our own.
 * Plain C, loaded with ctypes (engine/__init__.py).
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rules.h"

enum { CLOCK_EVERY = 1024 }; /* moves between two looks at the clock */
enum { TRIES = 8 };          /* at a move that the rules allow */

typedef struct {
    state *s;
    const rules *rules;
    int64_t n;        /* positions that change and carry ranks */
    int32_t *scratch; /* by position */
    uint64_t random;
} search;

/* splitmix64 (Steele, Lea and Flood 2014). */
static uint64_t draw(search *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int64_t below(search *s, int64_t n)
{
    return (int64_t)((wide)draw(s) * (uint64_t)n >> 64);
}

/* Return 1 to `most`, short ones more often: each power of two alike. */
static int64_t length(search *s, int64_t most)
{
    int bits = 64 - __builtin_clzll((uint64_t)most);
    int64_t n = 1 + below(s, (int64_t)1 << below(s, bits));
    return n < most ? n : most;
}

/* Moves number the positions that change; those that stay are not there. */
static void swap(search *s, int64_t one, int64_t other)
{
    int32_t first = s->rules->at[one], second = s->rules->at[other];
    int32_t host = s->s->order[first];
    put(s->s, first, s->s->order[second]);
    put(s->s, second, host);
}

/* The other host may be one that has no ranks so far. */
static void swap_any(search *s)
{
    int64_t one = below(s, s->n), other = below(s, s->rules->movable - 1);
    swap(s, one, other + (other >= one));
}

/* Swap the hosts of two positions unless one of them stays. */
static void swap_free(search *s, int64_t one, int64_t other)
{
    const int32_t *number = s->rules->number;
    if (number[one] >= 0 && number[other] >= 0)
        swap(s, number[one], number[other]);
}

static void exchange(search *s, int64_t one, int64_t other)
{
    swap_free(s, s->s->place[one], s->s->place[other]);
}

/* Move a host near to one it sends to or hears from. Hosts with numbers close to each
 * other are close in the tree: near is a small difference. */
static void swap_toward(search *s)
{
    const problem *p = s->s->p;
    int64_t at = s->rules->at[below(s, s->n)], rank = s->s->begin[at];
    int64_t mine = p->first[rank], count = p->first[rank + 1] - mine;
    if (!count) {
        swap_any(s);
        return;
    }
    int32_t message = p->mine[mine + below(s, count)];
    int32_t partner = p->src[message] == rank ? p->dst[message] : p->src[message];
    int64_t by = length(s, p->hosts - 1), near = s->s->before[partner];
    near += draw(s) & 1 ? by : -by;
    near += near < 0 ? p->hosts : near >= p->hosts ? -p->hosts : 0;
    if (near != s->s->order[at])
        exchange(s, s->s->order[at], near);
}

/* Return the first host of a group, and in `size` how many it has. */
static int64_t group_of(const problem *p, int64_t host, int64_t depth, int64_t *size)
{
    int64_t first = host, end = host + 1, d = p->depth;
    int32_t link = p->member[host * d + depth];
    while (first > 0 && p->member[(first - 1) * d + depth] == link)
        first--;
    while (end < p->hosts && p->member[end * d + depth] == link)
        end++;
    *size = end - first;
    return first;
}

/* Swap all hosts of two groups, or as many as the smaller one has. */
static void swap_groups(search *s)
{
    const problem *p = s->s->p;
    int64_t depth = below(s, p->depth - 1), size, other_size;
    int64_t one = group_of(p, below(s, p->hosts), depth, &size);
    int64_t other = group_of(p, below(s, p->hosts), depth, &other_size);
    for (int64_t i = 0; one != other && i < size && i < other_size; i++)
        exchange(s, one + i, other + i);
}

/* Swap two blocks of a power of two of positions, at multiples of their size. */
static void swap_aligned(search *s)
{
    int64_t hosts = s->s->p->hosts, size = 1;
    for (int64_t most = length(s, hosts / 2); 2 * size <= most;)
        size *= 2;
    int64_t one = below(s, hosts / size) * size, other = below(s, hosts / size) * size;
    for (int64_t i = 0; one != other && i < size; i++)
        swap_free(s, one + i, other + i);
}

static void swap_blocks(search *s)
{
    int64_t size = length(s, s->n / 2), one = below(s, s->n - 2 * size + 1);
    int64_t other = one + size + below(s, s->n - one - 2 * size + 1);
    for (int64_t i = 0; i < size; i++)
        swap(s, one + i, other + i);
}

static void reverse(search *s)
{
    int64_t size = 1 + length(s, s->n - 1);
    int64_t one = below(s, s->n - size + 1), other = one + size - 1;
    while (one < other)
        swap(s, one++, other--);
}

/* Move a segment elsewhere (or-opt): those between make way. */
static void rotate(search *s)
{
    int64_t size = 1 + length(s, s->n - 1), by = length(s, size - 1);
    int64_t one = below(s, s->n - size + 1);
    by = draw(s) & 1 ? by : size - by;
    for (int64_t i = 0; i < size; i++)
        s->scratch[i] = s->s->order[s->rules->at[one + i]];
    for (int64_t i = 0; i < size; i++)
        put(s->s, s->rules->at[one + i], s->scratch[(i + by) % size]);
}

/* Keep a room whole: where there are any, few other moves are allowed. */
static void move_room(search *s)
{
    int64_t one = below(s, s->n), other = below(s, s->rules->movable);
    swap_rooms(s->rules, s->s, one, other, s->scratch);
}

/* The shares are the best of some on racks and pods of uneven sizes. */
static void propose(search *s)
{
    static void (*const moves[16])(search *) = {
        swap_any, swap_any, swap_any, swap_any, swap_toward, swap_toward,
        swap_toward, swap_toward, swap_groups, swap_aligned, swap_aligned,
        swap_blocks, reverse, rotate, rotate, rotate};
    uint64_t kind = draw(s);
    if (s->rules->rooms && kind & 1)
        move_room(s);
    else
        (s->n < 2 ? swap_any : moves[kind >> 60])(s);
}

static cost random_move(search *s)
{
    begin_move(s->s);
    propose(s);
    for (int tries = 1; !allowed(s->rules, s->s); tries++) {
        undo_move(s->s);
        s->s->move--; /* it was not counted: its number is free */
        begin_move(s->s);
        if (tries < TRIES)
            propose(s);
    }
    count_move(s->s);
    return total(s->s);
}

/* Seconds decide, up to rounding; then the spread of the load. */
static int better(cost one, cost other)
{
    return one.seconds < other.seconds * (1 - 1e-9)
           || (one.seconds <= other.seconds * (1 + 1e-9) && one.spread < other.spread);
}

/* Return a random number of mean 1.4, large ones halving in number as they grow by
 * one: what annealing needs (Kirkpatrick, Gelatt and Vecchi 1983), without a log. */
static double patience(search *s)
{
    uint64_t bits = draw(s);
    int zeros = bits ? __builtin_ctzll(bits) : 64;
    return zeros + (double)(draw(s) >> 11) * 0x1p-53;
}

static int accepted(search *s, cost now, cost next, const request *r)
{
    double left = 1 - (double)r->taken / (double)r->steps;
    double heat = r->heat * left * left, smooth = r->smooth * left;
    if (r->heat <= 0)
        return !better(now, next);
    return next.seconds - now.seconds + smooth * (next.spread - now.spread)
           <= heat * patience(s);
}

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int can_move(const search *s)
{
    return s->n > 0 && s->rules->movable > 1;
}

static void run(search *s, request *r)
{
    size_t bytes = (size_t)s->s->p->hosts * sizeof *r->order;
    double until = clock_s() + r->limit_s;
    cost now = r->best = total(s->s);
    for (r->taken = 0; can_move(s) && r->taken < r->steps; r->taken++) {
        if (r->taken % CLOCK_EVERY == CLOCK_EVERY - 1 && clock_s() > until)
            break;
        cost next = random_move(s);
        if (!accepted(s, now, next, r)) {
            undo_move(s->s);
            continue;
        }
        keep_move(s->s);
        now = next;
        if (better(now, r->best)) {
            r->best = now;
            memcpy(r->order, s->s->order, bytes);
        }
    }
    r->end = now;
    memcpy(r->last, s->s->order, bytes);
}

/* Search as asked; 1 where there is not enough memory. */
int kernel_search(const problem *p, request *r)
{
    search s = {.s = state_new(p, r->order), .rules = r->rules,
                .n = r->rules->seated, .random = r->seed,
                .scratch = malloc((size_t)p->hosts * sizeof *s.scratch)};
    int short_of_memory = !s.s || !s.scratch;
    if (!short_of_memory)
        run(&s, r);
    if (s.s)
        state_free(s.s);
    free(s.scratch);
    return short_of_memory;
}
