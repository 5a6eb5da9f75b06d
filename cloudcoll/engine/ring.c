/* The search for a ring: kicks, each followed by 3-opt around where it hit.
 *
 * Iterated local search (Johnson and McGeoch 1997 and 2002) that looks only where
 * something changed, and undoes, flip by flip, what a kick led to where the ring
 * became longer. Whole numbers only: the same answer on every machine.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tour.h"

enum {
    NEAR = 10,        /* neighbours of a host that are tried */
    WALK = 30,        /* steps from neighbour to neighbour between cuts of a kick */
    HEAT = 3,         /* a ring may become longer by a pair's mean cost over this */
    CLOCK_EVERY = 256 /* kicks between two looks at the clock */
};

/* splitmix64 (Steele, Lea and Flood 2014), and a number below n of it. */
static int32_t below(tour *t, int32_t n)
{
    uint64_t z = t->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int32_t)((wide)(z ^ z >> 31) * (uint64_t)n >> 64);
}

/* Improve around the hosts that wait, as long as it can be undone; `keep`: for good. */
static void descend(tour *t, int keep)
{
    while (t->waiting) {
        int32_t host = t->queue[t->first];
        t->first = t->first + 1 == t->n ? 0 : t->first + 1;
        t->waiting--;
        t->queued[host] = 0;
        while (t->flips <= LOG - MOVE && improve(t, host))
            if (keep)
                t->flips = 0;
    }
}

/* Return a host to kick: any, or one after an edge that costs too much. */
static int32_t target(tour *t)
{
    int32_t at = below(t, t->n);
    if (t->r->worst == INT64_MAX || below(t, 2))
        return t->ring[at];
    for (int32_t i = 0; i < t->n; i++, at = wrap(t, at + 1))
        if (dist(t, t->ring[wrap(t, at - 1)], t->ring[at]) >= t->r->worst)
            break;
    return t->ring[at];
}

/* Choose four places to cut, each before a host that a random walk from the first
 * one reaches (Applegate, Cook and Rohe 2003): return the first after the longest
 * stretch, and the sizes of the other three; one is 0 where two walks met. */
static int32_t cuts(tour *t, int32_t *sizes)
{
    int32_t first = target(t), cut[4], stretch[4], longest = 0;
    for (int k = 0; k < 4; k++) {
        int32_t host = first, i = k;
        for (int step = 0; k && step < WALK; step++)
            host = t->neighbours[(int64_t)host * t->near + below(t, t->near)];
        for (; i > 0 && cut[i - 1] > t->place[host]; i--)
            cut[i] = cut[i - 1];
        cut[i] = t->place[host];
    }
    for (int k = 0; k < 4; k++) {
        stretch[k] = wrap(t, cut[(k + 1) % 4] - cut[k]);
        longest = stretch[k] > stretch[longest] ? k : longest;
    }
    for (int k = 0; k < 3; k++)
        sizes[k] = stretch[(longest + 1 + k) % 4];
    return cut[(longest + 1) % 4];
}

/* Put three stretches in the opposite order, each as it was: a double bridge
 * (Martin, Otto and Felten 1991). */
static void kick(tour *t)
{
    int32_t sizes[4] = {0}, at = cuts(t, sizes), end[8];
    if (!sizes[0] || !sizes[1] || !sizes[2])
        return;
    for (int32_t i = 0, cut = at; i < 4; cut = wrap(t, cut + sizes[i++])) {
        end[2 * i] = t->ring[wrap(t, cut - 1)], end[2 * i + 1] = t->ring[cut];
        t->length -= dist(t, end[2 * i], end[2 * i + 1]);
        look_at(t, end[2 * i]), look_at(t, end[2 * i + 1]);
    }
    turn(t, at, sizes[0] + sizes[1] + sizes[2]);
    for (int32_t i = 2, cut = at; i >= 0; cut = wrap(t, cut + sizes[i--]))
        turn(t, cut, sizes[i]);
    t->length += dist(t, end[0], end[5]) + dist(t, end[6], end[3])
                 + dist(t, end[4], end[1]) + dist(t, end[2], end[7]);
}

static void keep(const tour *t, ring_request *r)
{
    memcpy(r->order, t->ring, (size_t)t->n * sizeof *r->order);
    r->length = t->length;
}

static double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Return by how much the next ring may be longer: at most a share of what a pair
 * costs on average, less and less (Martin, Otto and Felten 1991). */
static int64_t patience(tour *t, int64_t pair)
{
    wide most = (wide)pair * (uint64_t)(t->r->steps - t->r->taken)
                / ((wide)HEAT * (uint64_t)t->r->steps);
    return (int64_t)(most * (uint64_t)below(t, 1 << 10) >> 10);
}

static void search(tour *t, ring_request *r)
{
    double until = clock_s() + r->limit_s;
    for (int32_t host = 0; host < t->n; host++)
        look_at(t, host);
    descend(t, 1);
    keep(t, r);
    int64_t pair = t->length % r->worst / t->n;
    for (r->taken = 0; t->n > 3 && r->taken < r->steps; r->taken++) {
        if (r->length <= r->goal)
            break;
        if (r->taken % CLOCK_EVERY == CLOCK_EVERY - 1 && clock_s() > until)
            break;
        int64_t before = t->length;
        kick(t);
        descend(t, 0);
        if (t->length - before > patience(t, pair)) {
            undo(t);
            t->length = before;
        }
        t->flips = 0;
        if (t->length < r->length)
            keep(t, r);
    }
}

/* Put a host into the list of another, sorted by cost. */
static void insert(tour *t, int32_t host, int32_t found, int32_t other)
{
    int32_t *near = t->neighbours + (int64_t)host * t->near, i = found;
    int64_t *reach = t->reach + (int64_t)host * t->near, d = dist(t, host, other);
    for (; i > 0 && reach[i - 1] > d; i--)
        near[i] = near[i - 1], reach[i] = reach[i - 1];
    near[i] = other, reach[i] = d;
}

static int32_t nearest(const tour *t, int32_t host, const int32_t *hidden, int32_t most)
{
    int32_t best = -1;
    for (int32_t other = 0; other < t->n; other++)
        if (hidden[other] < most
            && (best < 0 || dist(t, host, other) < dist(t, host, best)))
            best = other;
    return best;
}

enum { SEEN, HIDDEN, TAKEN };

/* List the nearest hosts of each, of equal ones the first. The first half is hidden
 * from it by none of the list that is nearer to them: some lead out of a cluster. */
static void find_neighbours(tour *t, int32_t *hidden)
{
    for (int32_t host = 0; host < t->n; host++) {
        memset(hidden, 0, (size_t)t->n * sizeof *hidden);
        hidden[host] = TAKEN;
        for (int32_t found = 0; found < t->near; found++) {
            int apart = found < t->near / 2;
            int32_t other = nearest(t, host, hidden, apart ? HIDDEN : TAKEN);
            if (other < 0)
                other = nearest(t, host, hidden, TAKEN);
            insert(t, host, found, other);
            hidden[other] = TAKEN;
            for (int32_t i = 0; i < t->n && apart; i++)
                if (hidden[i] == SEEN && dist(t, other, i) < dist(t, host, i))
                    hidden[i] = HIDDEN;
        }
    }
}

static void set_out(tour *t)
{
    memcpy(t->ring, t->r->order, (size_t)t->n * sizeof *t->ring);
    for (int32_t i = 0; i < t->n; i++) {
        t->place[t->ring[i]] = i;
        t->length += dist(t, t->ring[i], t->ring[wrap(t, i + 1)]);
    }
    find_neighbours(t, t->queue);
}

/* Search as asked; 1 where there is not enough memory. */
int ring_search(ring_request *r)
{
    size_t n = (size_t)r->hosts, near = n - 1 < NEAR ? n - 1 : NEAR;
    tour t = {.r = r, .n = (int32_t)n, .near = (int32_t)near, .random = r->seed};
    t.ring = malloc(n * sizeof *t.ring);
    t.place = malloc(n * sizeof *t.place);
    t.neighbours = malloc(n * near * sizeof *t.neighbours);
    t.reach = malloc(n * near * sizeof *t.reach);
    t.queue = malloc(n * sizeof *t.queue);
    t.queued = calloc(n, 1);
    int short_of_memory = !t.ring || !t.place || !t.neighbours || !t.reach || !t.queue
                          || !t.queued;
    if (!short_of_memory) {
        set_out(&t);
        search(&t, r);
    }
    free(t.ring), free(t.place), free(t.neighbours), free(t.reach), free(t.queue);
    free(t.queued);
    return short_of_memory;
}
