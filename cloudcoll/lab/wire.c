/* wire: carries packets between two network interfaces and delays them.
 *
 *   wire LOWER UPPER CONTROL SEED UP_NS DOWN_NS
 *
 * "up" is from LOWER to UPPER. CONTROL is a FIFO; a line "up DELAY_NS LOSS" or
 * "down DELAY_NS LOSS" (LOSS from 0 to 1, 1 drops everything) changes one
 * direction at once and a line "stop" ends the wire. Prints "ready" when both
 * interfaces are attached.
 *
 * The receive ring of a packet socket is the delay line: the kernel writes a
 * packet and its arrival time into a slot, and the slot is handed on, unread,
 * when its time has come. With PACKET_VNET_HDR a 64 KiB TCP segment stays one
 * packet with its checksum still to be made, as between two real devices.
 */
#define _GNU_SOURCE
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

struct direction {
    const char *name;
    int from, to;            /* packet sockets */
    uint8_t *ring;
    unsigned slot;
    int64_t delay;           /* ns */
    double loss;
    int64_t send_cost;       /* ns that handing on takes, taken off the delay */
};

static uint64_t random_state;

static void die(const char *what)
{
    fprintf(stderr, "wire: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now); /* the clock of packets' timestamps */
    return now.tv_sec * 1000000000LL + now.tv_nsec;
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

static int64_t due(const struct direction *d, const struct tpacket2_hdr *packet,
                   int64_t now)
{
    int64_t time = packet->tp_sec * 1000000000LL + packet->tp_nsec;
    if (time > now) /* the clock was set back meanwhile */
        time = now;
    return time + d->delay - d->send_cost;
}

static void hand_on(struct direction *d, struct tpacket2_hdr *packet)
{
    int whole = packet->tp_snaplen == packet->tp_len;
    if (whole && (d->loss == 0 || random_share() >= d->loss)) {
        uint8_t *frame = (uint8_t *)packet + packet->tp_mac - VNET;
        int64_t start = now_ns();
        /* An error is a lost packet, as on a full or a cut cable. */
        if (send(d->to, frame, packet->tp_snaplen + VNET, MSG_DONTWAIT) > 0)
            follow(&d->send_cost, now_ns() - start);
    }
    __atomic_store_n(&packet->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    d->slot = (d->slot + 1) % SLOTS;
}

/* Hand on what is due and return when the next packet will be, or 0. */
static int64_t advance(struct direction *d)
{
    struct tpacket2_hdr *packet;
    for (int count = 0; (packet = head(d)); count++) {
        int64_t now = now_ns(), time = due(d, packet, now);
        if (time > now || count == BATCH)
            return time;
        hand_on(d, packet);
    }
    return 0;
}

static void obey(int control, struct direction both[2])
{
    char text[4096], name[8];
    ssize_t size = read(control, text, sizeof text - 1);
    if (size <= 0)
        return;
    text[size] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        long long delay;
        double loss;
        if (strcmp(line, "stop") == 0)
            exit(0);
        if (sscanf(line, "%7s %lld %lf", name, &delay, &loss) != 3)
            continue;
        for (int i = 0; i < 2; i++) {
            if (strcmp(name, both[i].name) == 0) {
                both[i].delay = delay;
                both[i].loss = loss;
            }
        }
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
    if (argc != 7) {
        fputs("usage: wire LOWER UPPER CONTROL SEED UP_NS DOWN_NS\n", stderr);
        return 2;
    }
    struct direction up = {.name = "up", .delay = atoll(argv[5])};
    struct direction down = {.name = "down", .delay = atoll(argv[6])};
    up.from = down.to = attach(argv[1], &up.ring);
    down.from = up.to = attach(argv[2], &down.ring);
    struct direction both[2] = {up, down};
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
