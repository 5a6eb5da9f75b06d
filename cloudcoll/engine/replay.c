/* Messages as flows that begin as soon as both ranks are free: contention.py in C.
 *
 * The next thing to happen is that a message begins, that its flow ends, or that the
 * time is over that it takes at least. Whenever flows begin or end, all rates are worked
 * out again. Only sums, products and comparisons in a fixed order: the same answer on
 * every machine.
 */
#include <math.h>
#include <stdlib.h>

#include "fair.h"
#include "replay.h"

#define TOGETHER 1e-5  /* relative difference below which two times are equal */

typedef struct {
    double time;
    int32_t message;
} event;

typedef struct {
    const replay *r;
    double now, start;       /* time counts from `start` */
    int64_t leading;         /* messages that end before that */
    double *left;            /* by message: bytes; 0: its flow has ended */
    double *least;           /* by message: s, before which it does not end */
    char *begun, *awaited;   /* by message; ranks that are not free yet */
    int32_t *head, *open;    /* by rank: its phase begins there in `mine`; unfinished */
    event *heap;
    int64_t events;
    int32_t *flows;          /* under way */
    int64_t under_way;
    fair share;              /* its flows are the messages */
    fair_room room;
} run;

static void push(run *s, double time, int32_t message)
{
    int64_t at = s->events++;
    for (; at && s->heap[(at - 1) / 2].time > time; at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = (event){time, message};
}

static int32_t pop(run *s)
{
    int32_t message = s->heap[0].message;
    event last = s->heap[--s->events];
    int64_t at = 0, child;
    while ((child = 2 * at + 1) < s->events) {
        if (child + 1 < s->events && s->heap[child + 1].time < s->heap[child].time)
            child++;
        if (s->heap[child].time >= last.time)
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return message;
}

/* A rank is free for its next phase, the messages of which wait for one rank less. */
static void release(run *s, int32_t rank)
{
    const replay *r = s->r;
    int32_t at = s->head[rank], end = r->first[rank + 1];
    s->open[rank] = 0;
    for (; at < end && r->phase[r->mine[at]] == r->phase[r->mine[s->head[rank]]]; at++) {
        int32_t m = r->mine[at];
        s->open[rank]++;
        if (--s->awaited[m])
            continue;
        s->least[m] = s->now + r->least[m];
        push(s, s->now + r->delay[m], m);
    }
    s->head[rank] = at;
}

static void finish(run *s, int32_t m)
{
    if (m < s->r->lead && !--s->leading)
        s->start = s->now;
    for (int i = 0; i < 2; i++) {
        int32_t rank = s->r->rank[2 * m + i];
        if (!--s->open[rank])
            release(s, rank);
    }
}

/* Its flow is over: so is the message, or it takes a little longer. */
static void settle(run *s, int32_t m)
{
    s->left[m] = 0;
    if (s->least[m] <= s->now * (1 + TOGETHER))
        finish(s, m);
    else
        push(s, s->least[m], m);
}

/* Take what happens now off the heap. Return whether flows began. */
static int happen(run *s)
{
    int began = 0;
    while (s->events && s->heap[0].time <= s->now * (1 + TOGETHER)) {
        int32_t m = pop(s);
        if (s->begun[m]) {
            finish(s, m);
            continue;
        }
        s->begun[m] = 1;
        if (s->left[m] > 0) {
            s->flows[s->under_way++] = m;
            began = 1;
        } else
            settle(s, m);
    }
    return began;
}

/* Go on to what happens next. Return whether flows ended. */
static int advance(run *s)
{
    double next = s->events ? s->heap[0].time : INFINITY, past;
    int64_t kept = 0, all = s->under_way;
    for (int64_t f = 0; f < all; f++)
        next = fmin(next, s->now + s->left[s->flows[f]] / s->share.rate[s->flows[f]]);
    past = next - s->now;
    s->now = next;
    for (int64_t f = 0; f < all; f++) {
        int32_t m = s->flows[f];
        if (s->left[m] / s->share.rate[m] <= past + s->now * TOGETHER) {
            settle(s, m);
            continue;
        }
        s->left[m] -= s->share.rate[m] * past;
        s->flows[kept++] = m;
    }
    s->under_way = kept;
    return kept < all;
}

static void begin(run *s)
{
    const replay *r = s->r;
    for (int64_t m = 0; m < r->messages; m++) {
        int crosses = 0;
        for (int64_t d = 0; d < r->width; d++)
            crosses |= r->path[m * r->width + d] >= 0;
        s->left[m] = crosses ? r->size[m] : 0;
        s->awaited[m] = 2;
    }
    for (int32_t rank = 0; rank < r->ranks; rank++) {
        s->head[rank] = r->first[rank];
        release(s, rank);
    }
}

static void go(run *s, replay *r)
{
    begin(s);
    int changed = happen(s);
    while ((s->events || s->under_way)
           && (s->leading || s->now - s->start <= r->limit_s)) {
        if (changed)
            fair_share(&s->share, &s->room, s->flows, s->under_way);
        changed = advance(s);
        changed |= happen(s);
    }
    r->seconds = s->events || s->under_way ? INFINITY : s->now - s->start;
}

int replay_run(replay *r)
{
    int64_t m = r->messages + 1, k = r->ranks + 1;
    run s = {.r = r, .leading = r->lead};
    int64_t shared = fair_bytes(m, r->links);
    char *memory = calloc(1, m * (3 * sizeof(double) + sizeof(event) + 2 * sizeof(int32_t) + 2)
                                 + 2 * k * sizeof(int32_t) + shared);
    if (!memory)
        return 1;
    s.heap = (event *)fair_lay(&s.room, memory, m, r->links);
    s.left = (double *)(s.heap + m), s.least = s.left + m;
    s.share = (fair){
        .links = r->links,
        .width = r->width,
        .path = r->path,
        .capacity = r->capacity,
        .weight = r->weight,
        .rate = s.least + m,
    };
    s.share.limit = (int32_t *)(s.share.rate + m);
    s.flows = s.share.limit + m, s.head = s.flows + m, s.open = s.head + k;
    s.begun = (char *)(s.open + k), s.awaited = s.begun + m;
    go(&s, r);
    free(memory);
    return 0;
}
