/* store: the packets that one direction of a wire holds, and which it lets in. */
#ifndef CLOUDCOLL_STORE_H
#define CLOUDCOLL_STORE_H

#include <stddef.h>
#include <stdint.h>

enum queue { NO_QUEUE, PACKETS, CODEL, POLICER };

struct setting {
    int64_t delay, jitter;   /* ns */
    double loss;             /* share of packets */
    double rate;             /* bytes/ns, 0: none */
    enum queue queue;
    double size;             /* packets, or bytes of tokens */
};

/* CoDel's state, by its names in RFC 8289, section 5.2. */
struct codel {
    int64_t first_above_time, drop_next;
    unsigned count, lastcount;
    int dropping;
};

/* A packet in the store; its bytes follow. */
struct record {
    int64_t leaves;          /* the queue: its last byte is on the line */
    int64_t due;             /* at the other end */
    uint32_t size;           /* of what follows */
    uint32_t packets;        /* that it is on the line */
};

struct store {
    uint8_t *bytes;          /* mapped twice in a row: what wraps stays whole */
    uint64_t capacity, head, tail;
    uint64_t leaving;        /* the first record that was in the queue of late */
    unsigned queued;         /* packets from there on */
    int64_t line_free, last_due;
    double tokens;
    int64_t tokens_at;
    struct codel codel;
};

/* Make room for what `setting` lets in; returns 0, or -1 with errno. */
int store_open(struct store *store, const struct setting *setting);

/* Take in a packet that arrived at `arrival`, or drop it. `length` is what it has
 * on the line in `packets`; it takes `more` ns than the setting says. */
void store_take(struct store *store, const struct setting *setting, int64_t arrival,
                const void *frame, uint32_t size, uint32_t length, uint32_t packets,
                int64_t more);

/* Return the packet to hand on next, or NULL. */
struct record *store_first(const struct store *store);

void store_drop_first(struct store *store);

#endif
