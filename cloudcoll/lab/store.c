/* What becomes of a packet, decided when it is taken in.
 *
 * The line carries one packet after the other, so when each leaves is known as
 * soon as it has come: when those before it have left, plus its own time.
 */
#define _GNU_SOURCE
#include "store.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const int64_t TARGET = 5000000;     /* ns; RFC 8289, section 4.4 */
static const int64_t INTERVAL = 100000000; /* ns; section 4.3 */

enum {
    LARGEST = 1600,          /* bytes of a packet, about */
    SPARE = 1 << 20,         /* bytes beside what the queue holds */
    PAGE = 1 << 16,
};

int store_open(struct store *store, const struct setting *setting)
{
    double queue = setting->queue == POLICER ? setting->size : setting->size * LARGEST;
    double line = setting->rate * (double)(setting->delay + setting->jitter);
    /* A line without a rate of its own: what is in it is limited elsewhere. */
    double wanted = setting->rate > 0 ? 2 * (queue + line) + SPARE : 8 * SPARE;
    for (store->capacity = PAGE; (double)store->capacity < wanted;)
        store->capacity *= 2;
    size_t size = store->capacity;
    int file = memfd_create("wire", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size))
        return -1;
    uint8_t *place = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        return -1;
    for (int i = 0; i < 2; i++) {
        if (mmap(place + i * size, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 file, 0) == MAP_FAILED)
            return -1;
    }
    close(file);
    store->bytes = place;
    store->tokens = setting->size;
    return 0;
}

static struct record *at(const struct store *store, uint64_t place)
{
    return (struct record *)(store->bytes + place % store->capacity);
}

static uint64_t extent(uint32_t size) /* of a record, so that the next is aligned */
{
    return (sizeof(struct record) + size + 7) & ~7ULL;
}

/* Count the packets that are in the queue at `now`, the one on the line among them. */
static unsigned in_queue(struct store *store, int64_t now)
{
    while (store->leaving < store->tail) {
        struct record *record = at(store, store->leaving);
        if (record->leaves > now)
            break;
        store->queued -= record->packets;
        store->leaving += extent(record->size);
    }
    return store->queued;
}

static int64_t control_law(int64_t time, unsigned count)
{
    return time + (int64_t)((double)INTERVAL / __builtin_sqrt(count));
}

/* RFC 8289, section 5, one packet at a time: says whether the one that begins to
 * leave at `now` is dropped. (The RFC spares the last packet of a queue. One that
 * waited for TARGET is the last on lines of less than 2.4 Mbit/s alone.) */
static int codel_drops(struct codel *codel, int64_t sojourn, int64_t now)
{
    if (sojourn < TARGET) {
        codel->first_above_time = 0;
        codel->dropping = 0;
        return 0;
    }
    if (!codel->first_above_time)
        codel->first_above_time = now + INTERVAL;
    if (now < codel->first_above_time) {
        codel->dropping = 0;
        return 0;
    }
    if (!codel->dropping) {
        unsigned delta = codel->count - codel->lastcount;
        codel->dropping = 1;
        codel->count = 1;
        if (delta > 1 && now - codel->drop_next < 16 * INTERVAL)
            codel->count = delta;
        codel->drop_next = control_law(now, codel->count);
        codel->lastcount = codel->count;
        return 1;
    }
    if (now < codel->drop_next)
        return 0;
    codel->drop_next = control_law(codel->drop_next, ++codel->count);
    return 1;
}

/* Whether there are tokens for `length` bytes at `now`; takes them. */
static int conforms(struct store *store, const struct setting *setting, int64_t now,
                    uint32_t length)
{
    if (now > store->tokens_at)
        store->tokens += setting->rate * (double)(now - store->tokens_at);
    store->tokens_at = now;
    if (store->tokens > setting->size)
        store->tokens = setting->size;
    if (store->tokens < length)
        return 0;
    store->tokens -= length;
    return 1;
}

/* Say when a packet leaves the queue, or -1 if it is dropped. */
static int64_t leaves(struct store *store, const struct setting *setting, int64_t now,
                      uint32_t length, uint32_t packets)
{
    if (setting->rate == 0)
        return now;
    if (setting->queue == POLICER)
        return conforms(store, setting, now, length) ? now : -1;
    if (in_queue(store, now) + packets > setting->size && store->queued)
        return -1;
    int64_t start = store->line_free > now ? store->line_free : now;
    if (setting->queue == CODEL && codel_drops(&store->codel, start - now, start))
        return -1;
    store->line_free = start + (int64_t)(length / setting->rate);
    return store->line_free;
}

void store_take(struct store *store, const struct setting *setting, int64_t arrival,
                const void *frame, uint32_t size, uint32_t length, uint32_t packets,
                int64_t more)
{
    if (store->head == store->tail)
        store->head = store->tail = store->leaving = store->queued = 0;
    if (store->tail + extent(size) - store->head > store->capacity)
        return;
    int64_t left = leaves(store, setting, arrival, length, packets);
    if (left < 0)
        return;
    int64_t due = left + setting->delay + more;
    if (due < store->last_due)
        due = store->last_due;
    store->last_due = due;
    struct record *record = at(store, store->tail);
    *record = (struct record){left, due, size, packets};
    memcpy(record + 1, frame, size);
    store->tail += extent(size);
    store->queued += packets;
}

struct record *store_first(const struct store *store)
{
    return store->head < store->tail ? at(store, store->head) : NULL;
}

void store_drop_first(struct store *store)
{
    struct record *record = at(store, store->head);
    if (store->leaving == store->head) {
        store->queued -= record->packets;
        store->leaving += extent(record->size);
    }
    store->head += extent(record->size);
}
