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

/* Find the room of at[from], or else `size` positions outside rooms with hosts of its
 * rack, it first; return how many there are. */
static int64_t find(const rules *r, const state *s, int64_t from, int64_t size,
                    int32_t *found)
{
    int32_t at = r->at[from], rack = r->rack[s->order[at]];
    int64_t n = 0;
    if (r->room[at] >= 0) {
        if (size_of(r, at) != size)
            return 0;
        for (; n < size; at = r->ring[at])
            found[n++] = at;
    }
    for (int64_t i = from; n < size && i < from + r->movable; i++) {
        at = r->at[i % r->movable];
        if (r->room[at] < 0 && r->rack[s->order[at]] == rack)
            found[n++] = at;
    }
    return n;
}

void swap_rooms(const rules *r, state *s, int64_t one, int64_t other, int32_t *scratch)
{
    int32_t mine = r->at[one], theirs = r->at[other];
    int64_t size = size_of(r, mine);
    if (r->room[mine] < 0 || r->room[mine] == r->room[theirs] || r->bound[mine]
        || r->bound[theirs] || find(r, s, other, size, scratch) < size)
        return;
    for (int64_t i = 0; i < size; i++, mine = r->ring[mine]) {
        int32_t host = s->order[mine];
        put(s, mine, s->order[scratch[i]]);
        put(s, scratch[i], host);
    }
}
