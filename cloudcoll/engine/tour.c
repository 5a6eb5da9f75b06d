/* Moves of two and three edges that make a ring shorter (3-opt), with neighbour lists.
 *
 * The ring is an array of which stretches are turned (Johnson and McGeoch 1997).
 */
#include "tour.h"

void look_at(tour *t, int32_t host)
{
    if (t->queued[host])
        return;
    t->queued[host] = 1;
    t->queue[(t->first + t->waiting++) % t->n] = host;
}

static void reverse(tour *t, int32_t at, int32_t count)
{
    int32_t low = at, high = wrap(t, at + count - 1);
    for (int32_t i = 0; i < count / 2; i++) {
        int32_t one = t->ring[low], other = t->ring[high];
        t->ring[low] = other, t->place[other] = low;
        t->ring[high] = one, t->place[one] = high;
        low = low + 1 == t->n ? 0 : low + 1;
        high = high == 0 ? t->n - 1 : high - 1;
    }
}

void turn(tour *t, int32_t at, int32_t count)
{
    reverse(t, at, count);
    t->log[t->flips++] = (flip){at, count};
}

void undo(tour *t)
{
    while (t->flips) {
        flip last = t->log[--t->flips];
        reverse(t, last.at, last.count);
    }
}

/* Replace a-b and c-d, met in this order one way round, by a-c and b-d: turn what
 * lies between, or all the rest where that is less. */
static void exchange(tour *t, int32_t a, int32_t b, int32_t c, int32_t d)
{
    int32_t from = b, to = c;
    if (after(t, a, 0) != b)
        from = c, to = b;
    int32_t count = offset(t, from, to, 0) + 1;
    if (2 * count <= t->n)
        turn(t, t->place[from], count);
    else
        turn(t, wrap(t, t->place[to] + 1), t->n - count);
    look_at(t, a), look_at(t, b), look_at(t, c), look_at(t, d);
}

/* Third edge of a move whose first two exchanged would be a ring: t1-t4, t2-t3. */
static int try_turned(tour *t, const int32_t *v, int64_t gain, int against)
{
    int32_t t1 = v[0], t2 = v[1], t3 = v[2], t4 = v[3];
    int32_t span = offset(t, t2, t4, against);
    int64_t from = (int64_t)t4 * t->near;
    for (int64_t i = from; i < from + t->near; i++) {
        int32_t t5 = t->neighbours[i];
        int64_t open = gain - t->reach[i];
        if (open <= 0)
            break;
        if (t5 == t3 || t5 == t1)
            continue;
        int inside = offset(t, t2, t5, against) <= span;
        int32_t t6 = after(t, t5, inside ? against : !against);
        if (t6 == t4)
            continue;
        int64_t won = open + dist(t, t5, t6) - dist(t, t6, t1);
        if (won > 0) {
            exchange(t, t1, t2, t4, t3);
            exchange(t, t1, t4, t6, t5);
            t->length -= won;
            return 1;
        }
    }
    return 0;
}

/* Third edge of a move whose first two leave a ring apart, t2 to t3: open that. */
static int try_apart(tour *t, const int32_t *v, int64_t gain, int against)
{
    int32_t t1 = v[0], t2 = v[1], t3 = v[2], t4 = v[3];
    int32_t span = offset(t, t2, t3, against);
    int64_t from = (int64_t)t4 * t->near;
    for (int64_t i = from; i < from + t->near; i++) {
        int32_t t5 = t->neighbours[i];
        int64_t open = gain - t->reach[i];
        if (open <= 0)
            break;
        if (offset(t, t2, t5, against) > span)
            continue;
        int32_t t6 = after(t, t5, against), t7 = after(t, t5, !against);
        int64_t won = open + dist(t, t5, t6) - dist(t, t6, t1);
        if (t5 != t3 && won > 0) {
            exchange(t, t1, t2, t3, t4);
            exchange(t, t1, t3, t6, t5);
            exchange(t, t3, t5, t2, t4);
            t->length -= won;
            return 1;
        }
        won = open + dist(t, t5, t7) - dist(t, t7, t1);
        if (t5 != t2 && won > 0) {
            exchange(t, t1, t2, t7, t5);
            exchange(t, t2, t5, t3, t4);
            t->length -= won;
            return 1;
        }
    }
    return 0;
}

/* Take a 2-opt or 3-opt move that removes an edge of t1 and gains; 0: there is
 * none. Every sequence of edges removed and added has a beginning from which all
 * its partial sums gain (Lin and Kernighan 1973). */
static int improve_either(tour *t, int32_t t1)
{
    for (int against = 0; against < 2; against++) {
        int32_t t2 = after(t, t1, against);
        int64_t from = (int64_t)t2 * t->near, old = dist(t, t1, t2);
        for (int64_t i = from; i < from + t->near && t->reach[i] < old; i++) {
            int32_t t3 = t->neighbours[i], t4 = after(t, t3, !against);
            int64_t gain = old - t->reach[i];
            if (t3 == t1 || t4 == t2)
                continue;
            int32_t v[] = {t1, t2, t3, t4};
            int64_t open = gain + dist(t, t3, t4), won = open - dist(t, t4, t1);
            if (won > 0) {
                exchange(t, t1, t2, t4, t3);
                t->length -= won;
                return 1;
            }
            if (try_turned(t, v, open, against))
                return 1;
            v[3] = after(t, t3, against);
            if (try_apart(t, v, gain + dist(t, t3, v[3]), against))
                return 1;
        }
    }
    return 0;
}

/* Swap two stretches of the ring, side by side, without turning them. */
static void swap(tour *t, int32_t at, int32_t one, int32_t other)
{
    turn(t, at, one + other);
    turn(t, at, other);
    turn(t, wrap(t, at + other), one);
}

/* As `improve_either` where directions differ: the one move of three edges that turns
 * nothing, a-p, b-q, c-r to a-q, c-p, b-r. */
static int improve_directed(tour *t, int32_t a)
{
    int32_t p = after(t, a, 0);
    for (int32_t i = 0; i < t->near; i++) {
        int32_t q = t->neighbours[(int64_t)a * t->near + i], b = after(t, q, 1);
        int64_t gain = dist(t, a, p) - dist(t, a, q);
        if (gain <= 0)
            break;
        for (int32_t j = 0; j < t->near; j++) {
            int32_t r = t->neighbours[(int64_t)b * t->near + j], c = after(t, r, 1);
            int64_t open = gain + dist(t, b, q) - dist(t, b, r);
            if (open <= 0)
                break;
            int64_t won = open + dist(t, c, r) - dist(t, c, p);
            int32_t x = offset(t, p, q, 0), xy = offset(t, p, r, 0);
            if (won <= 0 || xy <= x)
                continue;
            int32_t y = xy - x, z = t->n - xy;
            if (z >= x && z >= y)
                swap(t, t->place[p], x, y);
            else if (x >= y)
                swap(t, t->place[q], y, z);
            else
                swap(t, t->place[r], z, x);
            look_at(t, a), look_at(t, p), look_at(t, b), look_at(t, q);
            look_at(t, c), look_at(t, r);
            t->length -= won;
            return 1;
        }
    }
    return 0;
}

int improve(tour *t, int32_t host)
{
    if (t->r->directed)
        return improve_directed(t, host) || improve_directed(t, after(t, host, 1));
    return improve_either(t, host);
}
