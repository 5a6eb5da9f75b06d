/* Max-min fair rates of flows that share links. network/fair.py mirrors `fair` and
 * owns its arrays. */
#ifndef FAIR_H
#define FAIR_H

#include <stdint.h>

typedef struct {
    int64_t rounds, links;
    int64_t width;           /* links that a path has at most */
    const int32_t *first;    /* round r has the flows first[r] to first[r + 1] - 1 */
    const int32_t *path;     /* by flow: `width` links; -1 pads */
    const double *capacity;  /* by link: bytes/s */
    const double *weight;    /* by flow: what it gets of a full link is in proportion */
    const double *most;      /* by flow: bytes/s that it takes; may be NULL */
    double *rate;            /* by flow: bytes/s, infinite where nothing limits */
    int32_t *limit;          /* by flow: which place of its path does, or -1 */
} fair;

/* Room to work out the rates of some flows. */
typedef struct {
    int32_t *growing;                        /* by flow: those without a rate yet */
    double *least;                           /* by flow: its share, for a weight of 1 */
    double *share, *tight, *room, *users;    /* by link; users: the sum of weights */
} fair_room;

/* Bytes of room for so many flows and links. */
int64_t fair_bytes(int64_t flows, int64_t links);

/* Lay the room out in so many bytes. Return where it ends. */
char *fair_lay(fair_room *room, char *bytes, int64_t flows, int64_t links);

/* Fill in `rate` and `limit` of some flows that run at the same time. */
void fair_share(const fair *f, const fair_room *room, const int32_t *flows, int64_t count);

/* Fill in `rate` and `limit`. Return 1 where there is not enough memory. */
int fair_run(fair *f);

#endif
