/* A ring of hosts as an array, and what makes it shorter.
 * solve/ring/__init__.py mirrors `ring_request`, checks what it says and owns its arrays. */
#ifndef TOUR_H
#define TOUR_H

#include <stdint.h>

typedef unsigned __int128 wide;

enum {
    LOG = 1024, /* flips that can be undone */
    MOVE = 3    /* flips of a move, at most */
};

typedef struct {
    int64_t hosts, directed;
    const int64_t *cost; /* from host (row) to host; sums stay below 2**62 */
    int32_t *order;      /* the start, then the best ring met */
    int64_t steps;       /* kicks */
    uint64_t seed;
    int64_t goal;        /* a ring that costs no more ends the search */
    int64_t worst;       /* every other kick goes where an edge costs as much */
    double limit_s;
    int64_t length;      /* cost of `order` */
    int64_t taken;       /* steps, fewer than asked if time was up or the goal met */
} ring_request;

typedef struct { int32_t at, count; } flip;

typedef struct {
    const ring_request *r;
    int32_t n, near;
    int32_t *ring, *place; /* by place: host; by host: place */
    int32_t *neighbours;   /* by host: the nearest first */
    int64_t *reach;        /* what they cost */
    int32_t *queue;        /* hosts whose neighbourhood changed */
    char *queued;
    int32_t first, waiting;
    flip log[LOG];
    int32_t flips;
    int64_t length;
    uint64_t random;
} tour;

static inline int64_t dist(const tour *t, int32_t one, int32_t other)
{
    return t->r->cost[(int64_t)one * t->n + other];
}

static inline int32_t wrap(const tour *t, int32_t place)
{
    return place >= t->n ? place - t->n : place < 0 ? place + t->n : place;
}

/* The next host along the ring, or against it. */
static inline int32_t after(const tour *t, int32_t host, int against)
{
    return t->ring[wrap(t, t->place[host] + (against ? -1 : 1))];
}

/* How far `host` is behind `from` along the ring, or against it. */
static inline int32_t offset(const tour *t, int32_t from, int32_t host, int against)
{
    int32_t by = t->place[host] - t->place[from];
    return wrap(t, against ? -by : by);
}

/* Have the surroundings of a host improved, after those that wait already. */
void look_at(tour *t, int32_t host);

/* Turn so many hosts from a place on; take back all that the log has. */
void turn(tour *t, int32_t at, int32_t count);
void undo(tour *t);

/* Take a move of up to three edges, one of this host's, that makes the ring
 * shorter; 0: there is none. */
int improve(tour *t, int32_t host);

#endif
