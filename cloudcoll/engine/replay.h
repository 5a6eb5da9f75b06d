/* Messages of one order, each waiting for earlier ones of its ranks.
 * solve/finalists.py mirrors this, checks it and owns its arrays. */
#ifndef REPLAY_H
#define REPLAY_H

#include <stdint.h>

typedef struct {
    int64_t messages, ranks, links;
    int64_t width;               /* links that a path has at most */
    const int32_t *rank;         /* by message: src, dst */
    const int32_t *phase;        /* by message; never falls */
    const int32_t *path;         /* by message: `width` links; -1 pads */
    const int32_t *first, *mine; /* rank r has messages mine[first[r]...] */
    const double *capacity;      /* by link: bytes/s */
    const double *size, *weight; /* by message: bytes; its weight on a full link */
    const double *delay, *least; /* by message: s after both ranks are free */
    int64_t lead;                /* time counts from the end of so many first messages */
    double limit_s;              /* simulated; when to stop */
    double seconds;              /* to the end of the last message, or infinite */
} replay;

/* Fill in `seconds`. Return 1 where there is not enough memory. */
int replay_run(replay *r);

#endif
