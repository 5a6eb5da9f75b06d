/* What the search engine works on. solve/kernel.py mirrors `problem` and `request`, checks
 * what they say and owns their arrays. */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdint.h>

typedef unsigned __int128 wide;

/* A step is a set of messages under way together. The steps of a phase load the
 * links together; most phases are one step. */
typedef struct {
    int64_t hosts, ranks, depth, links, messages, steps, phases;
    int64_t seats;                   /* positions with ranks: the first ones */
    const int32_t *slots;            /* by host */
    const int32_t *member;           /* by host and depth: the link above */
    const double *capacity;          /* all links up, all links down: bytes/s */
    const double *latency;           /* by link: s */
    const int32_t *src, *dst, *step; /* by message, step after step: ranks */
    const int64_t *size;             /* by message: units, times included */
    const int32_t *starts;           /* by step: its first message; and the end */
    const int32_t *phase;              /* by step */
    const double *wait_weight;       /* by step: of its longest path */
    const double *alone;             /* by message: bytes that lengthen its path */
    const double *sent;              /* by message: bytes that its pair carries */
    const double *alpha, *s_per_byte; /* by two hosts; both NULL without pairs */
    const int32_t *first, *mine;     /* rank r has messages mine[first[r]...] */
    double unit;                     /* bytes */
    double fine;                     /* units in which times are squared, per s */
    double path_fine;                /* the same for times of paths */
} problem;

typedef struct {
    double seconds, spread;
} cost;

typedef struct {
    int32_t *order; /* by position: a host; the start, then the best one met */
    int32_t *last;  /* the one where the search ended */
    const struct rules *rules;
    int64_t steps;
    uint64_t seed;
    double heat;    /* s by which an order may be worse, at first; it falls to 0 */
    double smooth;  /* weight of the spread beside it, at first; it falls to 0 */
    double limit_s;
    cost best, end; /* of `order` and of `last` */
    int64_t taken;  /* steps, fewer than asked if time was up */
} request;

/* The largest of some times, and for links and pairs what the tie-break needs. */
typedef struct {
    double top;
    int64_t holders; /* how many values are the largest; 0: look again */
    wide squares;
    double root;     /* s: of the sum of squares */
} peak;

typedef struct { int64_t cell, load; double busy; int32_t phase; } old_cell;
typedef struct { int32_t message; double path; } old_path;
typedef struct { int32_t index; peak value; } old_peak;

typedef struct {
    const problem *p;
    int even;                            /* all hosts have the same slots */
    int32_t *order, *begin;              /* by position: host, first rank */
    int32_t *place;                      /* by host: its position */
    int32_t *before, *now;               /* by rank: host before and after a move */
    int64_t *load;                       /* by cell (phase, then as in capacity) */
    double *busy, *path;                 /* by cell and by message: s */
    peak *phases, *steps;
    /* What the last move changed, and what it was. */
    uint32_t move, *cell_seen, *message_seen, *phase_seen, *step_seen;
    old_cell *cells;
    old_path *paths;
    old_peak *old_phases, *old_steps;
    int32_t *moved, *held, *ranks; /* positions, their hosts, ranks */
    int64_t n_cells, n_paths, n_phases, n_steps, n_moved, n_ranks, low, high;
} state;

/* Seconds of a message's path between two hosts. */
double path_of(const problem *p, int64_t m, int32_t from, int32_t to);

/* Return NULL where there is not enough memory. */
state *state_new(const problem *p, const int32_t *order);
void state_free(state *s);

/* A move begins, puts hosts in their places, is counted, and may be undone. */
void begin_move(state *s);
void put(state *s, int64_t at, int32_t host);
void count_move(state *s);
void keep_move(state *s);
void undo_move(state *s);

/* The order as it is: exactly the same however it was reached. */
cost total(const state *s);

#endif
