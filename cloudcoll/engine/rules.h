/* Which hosts may stand where; solve/kernel.py fills it in and owns the arrays. */
#ifndef RULES_H
#define RULES_H

#include "kernel.h"

typedef struct rules {
    int64_t movable, seated;     /* positions that change; how many carry ranks */
    int64_t rooms;
    const int32_t *at;           /* these positions, those with ranks first */
    const int32_t *number;       /* by position: where it is in `at`, or -1 */
    const int32_t *ring, *back;  /* by position: next and last of its room */
    const int32_t *room;         /* by position: number or -1 */
    const int32_t *bound;        /* by position: whether its room has a pinned host */
    const int32_t *rack;         /* by host */
} rules;

/* Whether the move that began left all hosts of a room in one rack. */
int allowed(const rules *r, const state *s);

/* Exchange the hosts of the room of at[one] for those of the room of at[other], if as
 * large, or for as many of one rack that are in no room; where that is not possible,
 * do nothing. `scratch` has a place for each position. */
void swap_rooms(const rules *r, state *s, int64_t one, int64_t other, int32_t *scratch);

#endif
