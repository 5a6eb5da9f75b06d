/* wire: carries packets between two network interfaces, delays and shapes them.
 *
 *   wire LOWER UPPER CONTROL SEED "up SETTING" "down SETTING" [STEP_NS:DIGITS]
 *
 * "up" is from LOWER to UPPER. CONTROL is a FIFO; a line "up SETTING" or "down
 * SETTING" changes one direction at once and a line "stop" ends the wire. Prints
 * "ready" when both interfaces are attached. A SETTING is
 *
 *   DELAY_NS LOSS JITTER_NS RATE QUEUE SIZE
 *
 * LOSS from 0 to 1 (1 drops everything); up to JITTER_NS more for each packet,
 * which never overtakes another; RATE in bytes/s, 0 for none, and QUEUE what holds
 * packets until it has time for them:
 *
 *   packets  at most SIZE of them
 *   codel    at most SIZE of them, dropped as RFC 8289 says
 *   policer  none: a packet that finds no tokens is dropped; SIZE bytes of tokens
 *
 * The last argument holds back what goes up to address 10.77.x.y: by STEP_NS times
 * the digit number 256 x + y, counted from 1; by nothing where there is none.
 *
 * The receive ring of a packet socket is the delay line: the kernel writes a
 * packet and its arrival time into a slot, and the slot is handed on, unread,
 * when its time has come. With PACKET_VNET_HDR a 64 KiB TCP segment stays one
 * packet with its checksum still to be made, as between two real devices.
 *
 * A direction that shapes or jitters copies packets out of the ring into a store
 * of its own (store.c), since a queue of small packets needs more slots than a
 * ring of large ones has. What becomes of a packet depends on those before it
 * alone, so it is decided when the packet is taken, by the time when it arrived:
 * being late to look changes nothing.
 */
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAME = 66560,           /* a 64 KiB segment, its headers, the slot's own */
    BLOCK = 1 << 20,
    PER_BLOCK = BLOCK / FRAME,
    BLOCKS = 8,
    SLOTS = PER_BLOCK * BLOCKS,
    BATCH = 16,              /* packets before the other direction has its turn */
    VNET = sizeof(struct virtio_net_hdr),
};

static const int64_t LONGEST_LEAD = 100000; /* ns */
static const int64_t RING_HOLDS = 1000000; /* ns of small packets, at least */

struct direction {
    const char *name;
    int from, to;            /* packet sockets */
    uint8_t *ring;
    unsigned slot;
    int64_t due;             /* of the packet in this slot, or 0 */
    struct setting setting;
    struct store store;      /* without bytes: packets stay in the ring */
    int64_t step;            /* ns */
    const char *steps;       /* digits, by the number of the host a packet is for */
    int64_t send_cost;       /* ns that handing on takes, taken off the delay */
};

static uint64_t random_state;

static void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* Follow the low end of what is seen: down quickly, up slowly, so that one
 * late wake-up on a busy machine does not turn into a long spin later. */
static void follow(int64_t *estimate, int64_t seen)
{
    *estimate += (seen - *estimate) / (seen < *estimate ? 4 : 64);
}

static double random_share(void) /* xorshift64*, in [0, 1) */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * 0x2545F4914F6CDD1DULL) >> 11) / 9007199254740992.0;
}

static int attach(const char *interface, uint8_t **ring)
{
    int fd = socket(AF_PACKET, SOCK_RAW, 0);
    int version = TPACKET_V2, on = 1;
    struct tpacket_req request = {
        .tp_block_size = BLOCK,
        .tp_block_nr = BLOCKS,
        .tp_frame_size = FRAME,
        .tp_frame_nr = SLOTS,
    };
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = (int)if_nametoindex(interface),
    };
    if (fd < 0 || address.sll_ifindex == 0)
        die(interface);
    if (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) ||
        setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request))
        die("setsockopt");
    *ring = mmap(NULL, (size_t)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED,
                 fd, 0);
    if (*ring == MAP_FAILED)
        die("mmap");
    if (bind(fd, (struct sockaddr *)&address, sizeof address))
        die("bind");
    return fd;
}

static struct tpacket2_hdr *head(const struct direction *d)
{
    size_t offset = (size_t)(d->slot / PER_BLOCK) * BLOCK;
    offset += (size_t)(d->slot % PER_BLOCK) * FRAME;
    struct tpacket2_hdr *packet = (struct tpacket2_hdr *)(d->ring + offset);
    /* Pairs with the kernel's barrier: status first, then the content. */
    uint32_t status = __atomic_load_n(&packet->tp_status, __ATOMIC_ACQUIRE);
    return status & TP_STATUS_USER ? packet : NULL;
}

static int64_t arrival(const struct tpacket2_hdr *packet, int64_t now)
{
    /* Timestamps are of a clock that may be set, back as well, in the meantime. */
    int64_t stamp = packet->tp_sec * 1000000000LL + packet->tp_nsec;
    int64_t age = clock_ns(CLOCK_REALTIME) - stamp;
    return age > 0 ? now - age : now;
}

static int is_lost(const struct direction *d)
{
    return d->setting.loss > 0 && random_share() < d->setting.loss;
}

static void hand_on(struct direction *d, const void *frame, size_t size)
{
    int64_t start = now_ns();
    /* An error is a lost packet, as on a full or a cut cable. */
    if (send(d->to, frame, size, MSG_DONTWAIT) > 0)
        follow(&d->send_cost, now_ns() - start);
}

static uint8_t *content(struct tpacket2_hdr *packet)
{
    return (uint8_t *)packet + packet->tp_mac - VNET;
}

static void free_slot(struct direction *d, struct tpacket2_hdr *packet)
{
    __atomic_store_n(&packet->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    d->slot = (d->slot + 1) % SLOTS;
    d->due = 0;
}

static int whole(const struct tpacket2_hdr *packet)
{
    return packet->tp_snaplen == packet->tp_len;
}

/* Return how much longer this packet takes than others of its direction. */
static int64_t held_back(const struct direction *d, struct tpacket2_hdr *packet)
{
    static const uint8_t ipv4[] = {ETH_P_IP >> 8, ETH_P_IP & 255};
    const uint8_t *frame = content(packet) + VNET;
    if (!d->step || packet->tp_snaplen < 34 || memcmp(frame + 12, ipv4, 2) != 0)
        return 0;
    size_t host = frame[32] * 256U + frame[33];
    if (host < 1 || host > strlen(d->steps))
        return 0;
    /* Other wires, which it stands for, hand on early by all of what sending costs;
     * about half of that is over when the packet has arrived. */
    return (d->step - d->send_cost / 2) * (d->steps[host - 1] - '0');
}

/* Hand on what is due and return when the next packet will be, or 0. */
static int64_t advance_ring(struct direction *d)
{
    struct tpacket2_hdr *packet;
    for (int count = 0; (packet = head(d)); count++) {
        int64_t now = now_ns();
        if (!d->due)
            d->due = arrival(packet, now) + d->setting.delay - d->send_cost +
                     held_back(d, packet);
        if (d->due > now || count == BATCH)
            return d->due;
        if (whole(packet) && !is_lost(d))
            hand_on(d, content(packet), packet->tp_snaplen + VNET);
        free_slot(d, packet);
    }
    return 0;
}

/* Move a packet from the ring to the store. A TCP segment of 64 KiB counts as what
 * a card makes of it: packets with headers of their own. */
static void take(struct direction *d, struct tpacket2_hdr *packet, int64_t now)
{
    const uint8_t *frame = content(packet) + VNET;
    struct virtio_net_hdr offload;
    memcpy(&offload, content(packet), sizeof offload);
    uint32_t size = packet->tp_snaplen, packets = 1, headers = 0;
    if (offload.gso_type != VIRTIO_NET_HDR_GSO_NONE && offload.gso_size > 0) {
        headers = offload.hdr_len;
        if (offload.csum_start + 12U < size) /* a TCP header has its length there */
            headers = offload.csum_start + (frame[offload.csum_start + 12] >> 4) * 4U;
        if (headers < size)
            packets = (size - headers + offload.gso_size - 1) / offload.gso_size;
    }
    int64_t more = held_back(d, packet);
    more += (int64_t)(random_share() * (double)d->setting.jitter);
    store_take(&d->store, &d->setting, arrival(packet, now), frame - VNET, size + VNET,
               size + (packets - 1) * headers, packets, more);
}

/* The same for a direction with a store. */
static int64_t advance_store(struct direction *d)
{
    struct tpacket2_hdr *packet;
    struct record *record;
    for (int count = 0; count < BATCH && (packet = head(d)); count++) {
        if (whole(packet) && !is_lost(d))
            take(d, packet, now_ns());
        free_slot(d, packet);
    }
    for (int count = 0; (record = store_first(&d->store)); count++) {
        int64_t now = now_ns(), due = record->due - d->send_cost;
        if (count == BATCH || (due > now && head(d)))
            return now;
        if (due > now) /* nobody looks into the ring until then: it must not fill */
            return due < now + RING_HOLDS ? due : now + RING_HOLDS;
        hand_on(d, record + 1, record->size);
        store_drop_first(&d->store);
    }
    return 0;
}

static int64_t advance(struct direction *d)
{
    return d->store.bytes ? advance_store(d) : advance_ring(d);
}

/* Read "up SETTING" or "down SETTING"; returns whether it was one. */
static int read_setting(const char *line, struct direction both[2])
{
    static const char *queues[] = {"-", "packets", "codel", "policer"};
    long long delay, jitter;
    double loss, rate, size;
    char name[8], queue[8];
    if (sscanf(line, "%7s %lld %lf %lld %lf %7s %lf", name, &delay, &loss, &jitter,
               &rate, queue, &size) != 7)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (strcmp(name, both[i].name) != 0)
            continue;
        both[i].setting = (struct setting){delay, jitter, loss, rate * 1e-9, 0, size};
        for (int kind = 0; kind <= POLICER; kind++)
            if (strcmp(queue, queues[kind]) == 0)
                both[i].setting.queue = (enum queue)kind;
        both[i].due = 0; /* of what it was before */
    }
    return 1;
}

static void obey(int control, struct direction both[2])
{
    char text[4096];
    ssize_t size = read(control, text, sizeof text - 1);
    if (size <= 0)
        return;
    text[size] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        if (strcmp(line, "stop") == 0)
            exit(0);
        read_setting(line, both);
    }
}

/* Sleep until a packet is due, a packet arrives in an empty ring, or a command
 * comes. `next` has for each direction what `advance` said. */
static void wait_for_packets(struct direction both[2], const int64_t next[2],
                             int control, int64_t *lead)
{
    struct pollfd files[3] = {{.fd = control, .events = POLLIN}};
    int count = 1;
    int64_t first = next[0];
    if (!first || (next[1] && next[1] < first))
        first = next[1];
    for (int i = 0; i < 2; i++) {
        /* A ring that holds a packet always polls ready; its time counts. */
        if (!next[i])
            files[count++] = (struct pollfd){.fd = both[i].from, .events = POLLIN};
    }
    int64_t left = first - *lead - now_ns();
    struct timespec timeout = {left / 1000000000, left % 1000000000};
    if (first && left <= 0)
        return; /* so near that a sleep would overshoot: spin */
    int ready = ppoll(files, count, first ? &timeout : NULL, NULL);
    if (ready == 0) {
        int64_t overshoot = now_ns() - (first - *lead);
        follow(lead, overshoot < LONGEST_LEAD ? overshoot : LONGEST_LEAD);
    } else if (ready > 0 && files[0].revents) {
        obey(control, both);
    }
}

/* A wire must be on time: first where this is allowed. Linux shares the cores out
 * among sessions before it looks at a process (sched(7), autogroup). */
static void be_on_time(void)
{
    int session = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (session >= 0) {
        dprintf(session, "-20");
        close(session);
    }
    setpriority(PRIO_PROCESS, 0, -20);
    prctl(PR_SET_TIMERSLACK, 1);
}

int main(int argc, char **argv)
{
    struct direction both[2] = {{.name = "up"}, {.name = "down"}};
    if (argc < 7 || argc > 8 || !read_setting(argv[5], both) || !read_setting(argv[6], both)) {
        fputs("usage: wire LOWER UPPER CONTROL SEED 'up SETTING' 'down SETTING' "
              "[STEP_NS:DIGITS]\n", stderr);
        return 2;
    }
    char *digits;
    if (argc == 8 && (both[0].step = strtoll(argv[7], &digits, 10)) && *digits == ':')
        both[0].steps = digits + 1;
    else
        both[0].step = 0;
    both[0].from = both[1].to = attach(argv[1], &both[0].ring);
    both[1].from = both[0].to = attach(argv[2], &both[1].ring);
    for (int i = 0; i < 2; i++) {
        const struct setting *setting = &both[i].setting;
        if ((setting->queue != NO_QUEUE || setting->jitter > 0) &&
            store_open(&both[i].store, setting))
            die("store");
    }
    /* Read and write, so that it never polls as closed. */
    int control = open(argv[3], O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (control < 0)
        die(argv[3]);
    random_state = strtoull(argv[4], NULL, 10) * 2 + 1; /* xorshift: never zero */
    be_on_time();
    puts("ready");
    fflush(stdout);
    int64_t lead = LONGEST_LEAD / 2;
    for (;;) {
        int64_t next[2] = {advance(&both[0]), advance(&both[1])};
        wait_for_packets(both, next, control, &lead);
    }
}
