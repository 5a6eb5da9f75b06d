/* Weighted max-min fair rates by water filling (Bertsekas and Gallager 1992), at every
 * bottleneck at once: a link whose share is the least on the paths of all its flows is
 * full, and they stay at that share; the others go on with what is left.
 */
#include <math.h>
#include <stdlib.h>

#include "fair.h"

#define SAME 1e-9 /* relative difference below which two shares are equal */

static void add_users(const fair *f, const fair_room *s, int64_t growing)
{
    for (int64_t l = 0; l < f->links; l++)
        s->users[l] = 0;
    for (int64_t i = 0; i < growing; i++) {
        const int32_t *path = f->path + s->growing[i] * f->width;
        for (int64_t d = 0; d < f->width; d++)
            if (path[d] >= 0)
                s->users[path[d]] += f->weight[s->growing[i]];
    }
}

/* What a flow takes at most, for a weight of 1. */
static double wanted(const fair *f, int32_t flow)
{
    return f->most ? f->most[flow] / f->weight[flow] : INFINITY;
}

/* The least share on each flow's path, and the least of those on each link. */
static void find_tight(const fair *f, const fair_room *s, int64_t growing)
{
    add_users(f, s, growing);
    for (int64_t l = 0; l < f->links; l++) {
        s->share[l] = s->users[l] > 0 ? s->room[l] / s->users[l] : INFINITY;
        s->tight[l] = INFINITY;
    }
    for (int64_t i = 0; i < growing; i++) {
        const int32_t *path = f->path + s->growing[i] * f->width;
        double least = wanted(f, s->growing[i]);
        for (int64_t d = 0; d < f->width; d++)
            if (path[d] >= 0 && s->share[path[d]] < least)
                least = s->share[path[d]];
        for (int64_t d = 0; d < f->width; d++)
            if (path[d] >= 0 && least < s->tight[path[d]])
                s->tight[path[d]] = least;
        s->least[i] = least;
    }
}

/* The place on a path whose link is full and holds its flow back, or -1. */
static int32_t held_at(const fair *f, const fair_room *s, const int32_t *path, double least)
{
    for (int32_t d = 0; d < f->width; d++)
        if (path[d] >= 0 && s->share[path[d]] < INFINITY
            && s->share[path[d]] <= s->tight[path[d]] * (1 + SAME)
            && s->share[path[d]] <= least * (1 + SAME))
            return d;
    return -1;
}

static void hold(const fair *f, const fair_room *s, int32_t flow, double rate)
{
    const int32_t *path = f->path + flow * f->width;
    f->rate[flow] = rate;
    for (int64_t d = 0; d < f->width; d++)
        if (path[d] >= 0)
            s->room[path[d]] = fmax(s->room[path[d]] - rate, 0);
}

void fair_share(const fair *f, const fair_room *s, const int32_t *flows, int64_t count)
{
    for (int64_t l = 0; l < f->links; l++)
        s->room[l] = f->capacity[l];
    for (int64_t i = 0; i < count; i++)
        s->growing[i] = flows[i];
    while (count) {
        int64_t kept = 0;
        find_tight(f, s, count);
        for (int64_t i = 0; i < count; i++) {
            int32_t flow = s->growing[i];
            int32_t at = held_at(f, s, f->path + flow * f->width, s->least[i]);
            f->limit[flow] = at;
            if (isinf(s->least[i]))
                f->rate[flow] = INFINITY;
            else if (at >= 0 || s->least[i] >= wanted(f, flow))
                hold(f, s, flow, s->least[i] * f->weight[flow]);
            else
                s->growing[kept++] = flow;
        }
        count = kept;
    }
}

int64_t fair_bytes(int64_t flows, int64_t links)
{
    /* One more each: of nothing, too, there is something to point to. */
    return (flows + 1 + 4 * (links + 1)) * (int64_t)sizeof(double)
        + (flows + 1) * (int64_t)sizeof(double);
}

char *fair_lay(fair_room *room, char *bytes, int64_t flows, int64_t links)
{
    room->least = (double *)bytes;
    room->share = room->least + flows + 1;
    room->tight = room->share + links + 1;
    room->room = room->tight + links + 1;
    room->users = room->room + links + 1;
    room->growing = (int32_t *)(room->users + links + 1);
    return bytes + fair_bytes(flows, links);
}

int fair_run(fair *f)
{
    int64_t most = 0;
    int32_t *flows;
    fair_room room;
    for (int64_t r = 0; r < f->rounds; r++)
        if (f->first[r + 1] - f->first[r] > most)
            most = f->first[r + 1] - f->first[r];
    int64_t bytes = fair_bytes(most, f->links);
    char *memory = malloc((size_t)(bytes + (most + 1) * (int64_t)sizeof *flows));
    if (!memory)
        return 1;
    flows = (int32_t *)fair_lay(&room, memory, most, f->links);
    for (int64_t r = 0; r < f->rounds; r++) {
        int64_t count = f->first[r + 1] - f->first[r];
        for (int64_t i = 0; i < count; i++)
            flows[i] = (int32_t)(f->first[r] + i);
        fair_share(f, &room, flows, count);
    }
    free(memory);
    return 0;
}
