/* Which hosts may stand where; kernel.py fills it in and owns the arrays. */
#ifndef RULES_H
#define RULES_H

#include "kernel.h"

typedef struct rules {
    int64_t movable, seated;     /* positions that change; how many carry ranks */
    int64_t rooms;
    const int32_t *at;           /* these positions, those with ranks first */
    const int32_t *ring, *back;  /* by position: next and last of its room */
    const int32_t *room, *fixed; /* by position: number or -1; 1 if pinned */
    const int32_t *rack;         /* by host */
} rules;

/* Whether the move that began left all hosts of a room in one rack. */
int allowed(const rules *r, const state *s);

/* Exchange the hosts of the room of at[one] for those of the room of at[other], or
 * for those of as many positions from there on. Do nothing where these don't match. */
void swap_rooms(const rules *r, state *s, int64_t one, int64_t other);

#endif
