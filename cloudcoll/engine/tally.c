/* The cost of an order, kept up to date from move to move.
 *
 * A move gives some ranks to other hosts; only the messages of these ranks, and
 * the links that they cross, are counted again. Loads are integers (bytes in
 * units of a power of two), so what is added and taken away a million times is
 * exact, and the cost of an order never depends on the moves that led to it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "peak.h"

static void add_load(state *s, int32_t phase, int64_t place, int64_t size)
{
    int64_t cell = phase * 2 * s->p->links + place;
    if (s->cell_seen[cell] != s->move) {
        s->cell_seen[cell] = s->move;
        s->cells[s->n_cells++] = (old_cell){cell, s->load[cell], s->busy[cell], phase};
    }
    s->load[cell] += size;
}

static void change_path(state *s, int32_t m, double path)
{
    int32_t step = s->p->step[m];
    if (path == s->path[m])
        return;
    if (s->step_seen[step] != s->move) {
        s->step_seen[step] = s->move;
        s->old_steps[s->n_steps++] = (old_peak){step, s->steps[step]};
    }
    s->paths[s->n_paths++] = (old_path){m, s->path[m]};
    change_peak(&s->steps[step], s->path[m], path);
    if (s->p->alpha)
        s->steps[step].squares
            += square(path, s->p->path_fine) - square(s->path[m], s->p->path_fine);
    s->path[m] = path;
}

/* Take a message off the links it crossed and put it on those it crosses now. */
static void reroute(state *s, int32_t m)
{
    const problem *p = s->p;
    int32_t src = p->src[m], dst = p->dst[m], phase = p->phase[p->step[m]];
    const int32_t *a = p->member + s->before[src] * p->depth;
    const int32_t *b = p->member + s->before[dst] * p->depth;
    const int32_t *c = p->member + s->now[src] * p->depth;
    const int32_t *e = p->member + s->now[dst] * p->depth;
    int64_t links = p->links, size = p->size[m];
    for (int64_t d = 0; d < p->depth; d++) {
        if (a[d] == c[d] && b[d] == e[d])
            continue;
        if (a[d] != b[d]) {
            add_load(s, phase, a[d], -size);
            add_load(s, phase, links + b[d], -size);
        }
        if (c[d] != e[d]) {
            add_load(s, phase, c[d], size);
            add_load(s, phase, links + e[d], size);
        }
    }
    change_path(s, m, path_of(p, m, s->now[src], s->now[dst]));
}

static void settle_cell(state *s, const old_cell *old)
{
    const problem *p = s->p;
    int64_t load = s->load[old->cell], place = old->cell - old->phase * 2 * p->links;
    if (load == old->load)
        return;
    peak *phase = &s->phases[old->phase];
    if (s->phase_seen[old->phase] != s->move) {
        s->phase_seen[old->phase] = s->move;
        s->old_phases[s->n_phases++] = (old_peak){old->phase, *phase};
    }
    double busy = (double)load * p->unit / p->capacity[place];
    change_peak(phase, old->busy, busy);
    phase->squares += square(busy, p->fine) - square(old->busy, p->fine);
    s->busy[old->cell] = busy;
}

static void settle(state *s)
{
    const problem *p = s->p;
    int64_t width = 2 * p->links;
    for (int64_t i = 0; i < s->n_cells; i++)
        settle_cell(s, &s->cells[i]);
    for (int64_t i = 0; i < s->n_phases; i++) {
        peak *phase = &s->phases[s->old_phases[i].index];
        if (!phase->holders)
            find_peak(phase, s->busy + s->old_phases[i].index * width, width);
        phase->root = sqrt((double)phase->squares) / p->fine;
    }
    for (int64_t i = 0; i < s->n_steps; i++) {
        int32_t step = s->old_steps[i].index, first = p->starts[step];
        if (!s->steps[step].holders)
            find_peak(&s->steps[step], s->path + first, p->starts[step + 1] - first);
        find_root(p, &s->steps[step]);
    }
}

cost total(const state *s)
{
    const problem *p = s->p;
    cost all = {0, 0};
    int64_t step = 0;
    for (int64_t i = 0; i < p->phases; i++) {
        double wait = 0, slowest = s->phases[i].top;
        for (; step < p->steps && p->phase[step] == i; step++) {
            wait += s->steps[step].top * p->wait_weight[step];
            all.spread += s->steps[step].root * p->wait_weight[step];
        }
        if (p->alpha) /* of paths and links only the slower counts */
            all.seconds += wait > slowest ? wait : slowest;
        else
            all.seconds += slowest + wait;
        all.spread += s->phases[i].root;
    }
    return all;
}

/* Who stands behind the seats has no ranks. */
static int32_t slots_at(const state *s, int64_t at)
{
    return at < s->p->seats ? s->p->slots[s->order[at]] : 0;
}

/* Give the ranks of positions from `low` to below `high` to the hosts there. */
static void seat(state *s, int64_t low, int64_t high)
{
    int32_t rank = s->begin[low];
    for (int64_t at = low; at < high; at++) {
        s->begin[at] = rank;
        for (int32_t i = slots_at(s, at); i > 0; i--, rank++)
            if (s->now[rank] != s->order[at]) {
                s->now[rank] = s->order[at];
                s->ranks[s->n_ranks++] = rank;
            }
    }
}

/* Seat all that moved; `ranks` then names those whose host changed. */
static void seat_moved(state *s)
{
    s->n_ranks = 0;
    for (int64_t i = 0; s->even && i < s->n_moved; i++)
        seat(s, s->moved[i], s->moved[i] + 1);
    if (!s->even) /* all between moved, too */
        seat(s, s->low, s->high);
}

void begin_move(state *s)
{
    s->move++;
    s->n_cells = s->n_paths = s->n_phases = s->n_steps = s->n_moved = 0;
    s->low = s->p->hosts;
    s->high = 0;
}

void put(state *s, int64_t at, int32_t host)
{
    s->moved[s->n_moved] = (int32_t)at;
    s->held[s->n_moved++] = s->order[at];
    s->order[at] = host;
    s->place[host] = (int32_t)at;
    s->low = at < s->low ? at : s->low;
    s->high = at >= s->high ? at + 1 : s->high;
}

void count_move(state *s)
{
    const problem *p = s->p;
    seat_moved(s);
    for (int64_t i = 0; i < s->n_ranks; i++)
        for (int32_t j = p->first[s->ranks[i]]; j < p->first[s->ranks[i] + 1]; j++)
            if (s->message_seen[p->mine[j]] != s->move) {
                s->message_seen[p->mine[j]] = s->move;
                reroute(s, p->mine[j]);
            }
    settle(s);
}

void keep_move(state *s)
{
    for (int64_t i = 0; i < s->n_ranks; i++)
        s->before[s->ranks[i]] = s->now[s->ranks[i]];
}

void undo_move(state *s)
{
    for (int64_t i = 0; i < s->n_moved; i++) {
        s->order[s->moved[i]] = s->held[i];
        s->place[s->held[i]] = s->moved[i];
    }
    seat_moved(s);
    for (int64_t i = 0; i < s->n_cells; i++) {
        s->load[s->cells[i].cell] = s->cells[i].load;
        s->busy[s->cells[i].cell] = s->cells[i].busy;
    }
    for (int64_t i = 0; i < s->n_paths; i++)
        s->path[s->paths[i].message] = s->paths[i].path;
    for (int64_t i = 0; i < s->n_phases; i++)
        s->phases[s->old_phases[i].index] = s->old_phases[i].value;
    for (int64_t i = 0; i < s->n_steps; i++)
        s->steps[s->old_steps[i].index] = s->old_steps[i].value;
}

static void load_message(state *s, int64_t m)
{
    const problem *p = s->p;
    int32_t from = s->now[p->src[m]], to = s->now[p->dst[m]];
    const int32_t *a = p->member + from * p->depth, *b = p->member + to * p->depth;
    int64_t *load = s->load + p->phase[p->step[m]] * 2 * p->links;
    for (int64_t d = 0; d < p->depth; d++)
        if (a[d] != b[d]) {
            load[a[d]] += p->size[m];
            load[p->links + b[d]] += p->size[m];
        }
    s->path[m] = path_of(p, m, from, to);
}

/* Count everything for the order as it is. */
static void load_all(state *s)
{
    const problem *p = s->p;
    int64_t width = 2 * p->links, rank = 0;
    for (int64_t at = 0; at < p->hosts; at++) {
        s->begin[at] = (int32_t)rank;
        s->place[s->order[at]] = (int32_t)at;
        for (int32_t i = slots_at(s, at); i > 0; i--, rank++)
            s->before[rank] = s->now[rank] = s->order[at];
        s->even = s->even && p->slots[s->order[at]] == p->slots[s->order[0]];
    }
    for (int64_t m = 0; m < p->messages; m++)
        load_message(s, m);
    for (int64_t i = 0; i < p->steps; i++) {
        find_peak(&s->steps[i], s->path + p->starts[i], p->starts[i + 1] - p->starts[i]);
        for (int64_t m = p->starts[i]; p->alpha && m < p->starts[i + 1]; m++)
            s->steps[i].squares += square(s->path[m], p->path_fine);
        find_root(p, &s->steps[i]);
    }
    for (int64_t i = 0; i < p->phases; i++) {
        double *busy = s->busy + i * width;
        for (int64_t j = 0; j < width; j++) {
            busy[j] = (double)s->load[i * width + j] * p->unit / p->capacity[j];
            s->phases[i].squares += square(busy[j], p->fine);
        }
        find_peak(&s->phases[i], busy, width);
        s->phases[i].root = sqrt((double)s->phases[i].squares) / p->fine;
    }
}

/* Give a pointer in `state` room for n zeros; 1 where there is no memory. */
#define ROOM(pointer, n) \
    ((pointer) = calloc((size_t)(n) + 1, sizeof *(pointer)), (pointer) ? 0 : 1)

state *state_new(const problem *p, const int32_t *order)
{
    state *s = calloc(1, sizeof *s);
    int64_t cells = p->phases * 2 * p->links;
    if (!s)
        return NULL;
    s->p = p;
    s->even = 1;
    if (ROOM(s->order, p->hosts) | ROOM(s->begin, p->hosts) | ROOM(s->place, p->hosts)
        | ROOM(s->moved, p->hosts) | ROOM(s->held, p->hosts)
        | ROOM(s->before, p->ranks) | ROOM(s->now, p->ranks) | ROOM(s->ranks, p->ranks) | ROOM(s->load, cells) | ROOM(s->busy, cells)
        | ROOM(s->cell_seen, cells) | ROOM(s->cells, cells) | ROOM(s->path, p->messages)
        | ROOM(s->message_seen, p->messages) | ROOM(s->paths, p->messages)
        | ROOM(s->phases, p->phases) | ROOM(s->phase_seen, p->phases)
        | ROOM(s->old_phases, p->phases) | ROOM(s->steps, p->steps)
        | ROOM(s->step_seen, p->steps) | ROOM(s->old_steps, p->steps)) {
        state_free(s);
        return NULL;
    }
    memcpy(s->order, order, (size_t)p->hosts * sizeof *order);
    load_all(s);
    return s;
}

void state_free(state *s)
{
    void *all[] = {s->order, s->begin, s->place, s->moved, s->held, s->before, s->now,
                   s->ranks, s->load, s->busy, s->cell_seen, s->cells, s->path, s->message_seen,
                   s->paths, s->phases, s->phase_seen, s->old_phases, s->steps, s->step_seen,
                   s->old_steps, s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
