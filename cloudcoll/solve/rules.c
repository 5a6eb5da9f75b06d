/* Moves that keep to the rules: what is pinned stays, a room stays in one rack. */
#include "rules.h"

int allowed(const rules *r, const state *s)
{
    for (int64_t i = 0; i < s->n_moved; i++) {
        int32_t at = s->moved[i], rack = r->rack[s->order[at]];
        if (rack != r->rack[s->order[r->ring[at]]]
            || rack != r->rack[s->order[r->back[at]]])
            return 0;
    }
    return 1;
}

static int64_t size_of(const rules *r, int32_t at)
{
    int64_t n = 1;
    for (int32_t other = r->ring[at]; other != at; other = r->ring[other])
        n++;
    return n;
}

void swap_rooms(const rules *r, state *s, int64_t one, int64_t other)
{
    int32_t room = r->room[r->at[one]];
    int64_t size = size_of(r, r->at[one]);
    int alike = size == size_of(r, r->at[other]);
    if (room < 0 || (!alike && other + size > r->movable))
        return;
    for (int swaps = 0; swaps < 2; swaps++) { /* look first: all or nothing */
        int32_t mine = r->at[one], theirs = r->at[other];
        for (int64_t i = 0; i < size; i++) {
            if (r->fixed[mine] || r->fixed[theirs] || r->room[theirs] == room)
                return;
            if (swaps) {
                int32_t host = s->order[mine];
                put(s, mine, s->order[theirs]);
                put(s, theirs, host);
            }
            mine = r->ring[mine];
            theirs = alike ? r->ring[theirs] : r->at[(other + i + 1) % r->movable];
        }
    }
}
