"""The probing agent: measures the network from one host to the others.

One file, standard library only, any python3 >= 3.8. It is started by a command
prefix such as ``ssh HOST``, sent over its own stdin, driven over stdin and
stdout, and gone when stdin ends. README.md beside it is the contract.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import hashlib
import hmac
import itertools
import json
import math
import os
import queue
import resource
import selectors
import signal
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from typing import (
    Any,
    BinaryIO,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Set,
    Tuple,
)

MAGIC = b"\ncloudcoll-agent 1\n"
FRAME_LIMIT = 1 << 20  # bytes
UNPREPARED_LIFE = 60  # seconds until an agent that nobody drives ends itself

PING = struct.Struct("!IHH")  # slot, port, number
PACKET = 64  # bytes of a request and of its reply
PROOF = 16  # bytes of each that only who has the session key can know
AHEAD = 512  # answers worked out before a slot: 2 ms, of a gap of 3
REQUEST, REPLY = 0, 1
GIVE_UP = 10  # requests lost in a row
FIRST_REPLY = 1.0  # seconds to wait before anything is known of a pair
LEAST_REPLY = 0.010  # seconds to wait at least once its RTT is known
# Meetings in a row in which an address may be silent: a driver cannot have agents
# pester whom it likes. A pair meets less often, but for the uplinks.
SILENT = 16

NONCE = 16  # bytes that each end of a stream chooses
ANSWER = struct.Struct("!16s32s")  # nonce, proof of the host that is connected to
HELLO = struct.Struct("!I32s")  # slot, proof of the host that connects
STRANGERS = 64  # connections that have not proven to have the session key yet
STRANGERS_ALIKE = 8  # of these from one address of which nothing is known
STRANGER_LIFE = 5.0  # seconds for a greeting, whatever it is
# Greetings that may go wrong from an address of which nothing is known. A scan of all
# ports and a check of health make one or two.
FAILURES = 5
SOURCES = 4096  # addresses whose failures are remembered
CHUNK = 1 << 18  # bytes
SO_MAX_PACING_RATE = 47  # Linux: bytes/s, of 64 bits from 4.20 on
SIOCOUTQNSD = 0x894B  # Linux: bytes of a socket that were not sent yet

ROUNDS_LIMIT = 4096  # slots of one `rounds` frame
MEETING = [int, int, bool, int]  # slot, peer, whether this host asks, pace
PACE_LIMIT = 1 << 40  # bytes/s

LATE = 0.25  # share of a slot after which a host that begins is starved
STEAL = 0.02  # share of its CPUs, over a slot, that a starved host lost

KINDS = ("rtt", "load", "duplex")  # round trips; one way; both ways at once

LOOKUPS = 8  # names that are looked up at the same time
LOOKUP_LIFE = 5.0  # seconds for all of them

clock = time.perf_counter_ns


class Task(NamedTuple):
    """What the driver asks for; only position and address differ between hosts."""

    hosts: int
    position: int
    key: bytes
    address: str
    seed: int
    concurrency: int
    passes: List[Tuple[str, int, bool]]  # (kind, rounds, flip direction)
    samples: int
    ports: int
    warm_up: int  # requests on each port before its samples
    streams: int
    flow_bytes: int
    rtt_s: float
    rtt_gap_s: float
    load_s: float
    load_gap_s: float
    window_s: float
    life_s: float
    force: bool


LIMITS: Dict[str, Tuple[type, float, float]] = {
    "hosts": (int, 2, 1 << 16),
    "position": (int, 0, (1 << 16) - 1),
    "seed": (int, 0, 1 << 63),
    "concurrency": (int, 1, 1 << 16),
    "samples": (int, 1, 10_000),
    "ports": (int, 1, 64),
    "warm_up": (int, 0, 1000),
    "streams": (int, 1, 64),
    "flow_bytes": (int, 1, 1 << 40),
    "rtt_s": (float, 0.001, 60),
    "rtt_gap_s": (float, 0, 60),
    "load_s": (float, 0.001, 60),
    "load_gap_s": (float, 0, 60),
    "window_s": (float, 0.001, 60),
    "life_s": (float, 1, 86_400),
    "force": (bool, False, True),
}


class Slot(NamedTuple):
    """One meeting of this host with a peer; times in seconds after `go`."""

    number: int
    start: float
    end: float
    kind: str
    peer: int
    asks: bool
    pace: int = 0  # bytes/s of what is sent, at most; 0 for as fast as TCP does

    @property
    def sends(self) -> bool:
        """Whether this host fills the link to its peer."""
        return self.kind == "duplex" or (self.kind == "load" and self.asks)

    @property
    def receives(self) -> bool:
        """Whether its peer fills the link to this host."""
        return self.kind == "duplex" or (self.kind == "load" and not self.asks)


class Peer(NamedTuple):
    """Where a peer listens."""

    udp: Tuple[str, int]
    tcp: Tuple[str, int]


# Frames ----------------------------------------------------------------------


def read_frame(stream: BinaryIO) -> Optional[Dict[str, Any]]:
    """Return the next frame, None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack("!I", head)
    if size > FRAME_LIMIT:
        raise ValueError("frame of %d bytes (at most %d)" % (size, FRAME_LIMIT))
    body = stream.read(size)
    if len(body) < size:
        return None
    try:
        frame = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError("frame is not JSON") from error
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise ValueError("frame is not an object with a type")
    return frame


def read_number(frame: Dict[str, Any], name: str) -> Any:
    """Return a field of `LIMITS` whose type and range are right."""
    kind, low, high = LIMITS[name]
    value: Any = frame.get(name)
    typed = type(value) is kind  # bool is an int to isinstance
    if not typed or not low <= value <= high:
        raise ValueError("%s is %r" % (name, value))
    return value


def read_task(frame: Dict[str, Any]) -> Task:
    """Return the checked content of a ``prepare`` frame."""
    passes = frame.get("passes")
    if not isinstance(passes, list) or not 1 <= len(passes) <= 64:
        raise ValueError("passes is %r" % (passes,))
    for item in passes:
        if not isinstance(item, list) or [type(x) for x in item] != [str, int, bool]:
            raise ValueError("a pass is %r" % (item,))
        if item[0] not in KINDS or not 0 <= item[1] < 1 << 16:
            raise ValueError("a pass is %r" % (item,))
    key = bytes.fromhex(frame["key"]) if isinstance(frame.get("key"), str) else b""
    address = frame.get("address")
    if len(key) != 16 or not isinstance(address, str) or len(address) > 255:
        raise ValueError("key or address")
    task = Task(
        key=key,
        address=address,
        passes=[tuple(item) for item in passes],
        **{name: read_number(frame, name) for name in LIMITS},
    )
    if task.position >= task.hosts:
        raise ValueError("position %d of %d hosts" % (task.position, task.hosts))
    return task


class Control:
    """The driver's side: frames in from stdin, frames out to stdout."""

    def __init__(self) -> None:
        self.at_end: Callable[[], object] = bool  # nothing to do yet
        self._frames: queue.SimpleQueue[Dict[str, Any]] = queue.SimpleQueue()
        sys.stdout.buffer.write(MAGIC)
        start_thread(self._listen)

    def _listen(self) -> None:
        while True:
            frame = read_frame(sys.stdin.buffer)
            if frame is None:
                # The driver is gone or has what it wants: no measurement
                # outlives it.
                self.at_end()
                os._exit(0)
            self._frames.put(frame)

    def expect(self, kind: str) -> Dict[str, Any]:
        """Return the next frame, which must be of type `kind`."""
        frame = self._frames.get()  # SIGALRM is the deadline
        if frame["type"] != kind:
            raise ValueError("%s expected, not %s" % (kind, frame["type"]))
        return frame

    def send(self, kind: str, **fields: Any) -> None:
        """Write one frame to the driver."""
        body = json.dumps(dict(fields, type=kind), separators=(",", ":")).encode()
        sys.stdout.buffer.write(struct.pack("!I", len(body)) + body)
        sys.stdout.buffer.flush()


def run_or_end(target: Any, *args: Any) -> None:
    """Run `target`; if it fails, end the process and with it all its threads."""
    try:
        target(*args)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(1)


def start_thread(target: Any, *args: Any) -> threading.Thread:
    """Run `target` in a thread whose failure ends the process."""
    thread = threading.Thread(target=run_or_end, args=(target, *args), daemon=True)
    thread.start()
    return thread


# Schedule --------------------------------------------------------------------


def meeting(players: int, round_: int, player: int) -> Tuple[int, int, bool]:
    """Return opponent, table and whether `player` asks in a tournament's round.

    Circle method for an even number of players: the last player meets
    `middle`, any other two meet whose numbers lie as far before as after it.
    """
    last = players - 1
    middle = round_ * (players // 2) % last
    if player == last:
        return middle, 0, round_ % 2 == 0
    ahead = (player - middle) % last
    if ahead == 0:
        return last, 0, round_ % 2 == 1
    table = min(ahead, last - ahead)
    return (middle - ahead) % last, table, ahead == table


def labels(hosts: int, seed: int) -> List[int]:
    """Return the host of each player, the same on every version of Python."""

    def key(host: int) -> bytes:
        return hashlib.sha256(b"%d %d" % (seed, host)).digest()

    return sorted(range(hosts), key=key)


def lengths(task: Task, kind: str) -> Tuple[float, float]:
    """Return the seconds of a slot and those of the gap after it."""
    if kind == "rtt":
        return task.rtt_s, task.rtt_gap_s
    return task.load_s, task.load_gap_s


def slots(task: Task) -> Iterator[Slot]:
    """Yield this host's meetings in order of time."""
    players = task.hosts + task.hosts % 2
    hosts = labels(task.hosts, task.seed)
    me = hosts.index(task.position)
    number, start = 0, 0.0
    for kind, rounds, flip in task.passes:
        length, gap = lengths(task, kind)
        # Load is what all pairs at once make.
        at_once = task.concurrency if kind == "rtt" else players // 2
        turns = -(-(players // 2) // at_once)
        for round_ in range(rounds):
            player, table, asks = meeting(players, round_, me)
            turn = table // at_once
            begin = start + turn * (length + gap)
            if player < task.hosts:  # else a bye
                peer, end = hosts[player], begin + length
                yield Slot(number + turn, begin, end, kind, peer, asks != flip)
            number += turns
            start += turns * (length + gap)


def read_rounds(frame: Dict[str, Any], task: Task) -> List[Slot]:
    """Return the checked meetings of a ``rounds`` frame, in order of time."""
    kind, first, meetings = frame.get("kind"), frame.get("first"), frame.get("meetings")
    if kind not in KINDS:
        raise ValueError("kind is %r" % (kind,))
    if type(first) is not int or not 0 <= first < 1 << 31:
        raise ValueError("first is %r" % (first,))
    if not isinstance(meetings, list):
        raise ValueError("meetings is %r" % (meetings,))
    length, gap = lengths(task, kind)
    found: List[Slot] = []
    earliest = 0
    for item in meetings:
        if not isinstance(item, list) or [type(x) for x in item] != MEETING:
            raise ValueError("a meeting is %r" % (item,))
        turn, peer, asks, pace = item
        known = 0 <= peer < task.hosts and peer != task.position
        known &= 0 <= pace < PACE_LIMIT
        if not earliest <= turn < ROUNDS_LIMIT or not known:
            raise ValueError("a meeting is %r" % (item,))
        start = turn * (length + gap)
        end = start + length
        found.append(Slot(first + turn, start, end, kind, peer, asks, pace))
        earliest = turn + 1
    return found


# Session key -----------------------------------------------------------------


def prove(key: bytes, purpose: bytes, host: int, what: bytes) -> bytes:
    """Return 32 bytes of `what` that only who has the session key can know.

    `host` is the position of the one that is asked, or connected to: what one host
    was told is worth nothing at another.
    """
    return hmac.digest(key, b"cloudcoll %s %d " % (purpose, host) + what, "sha256")


# Latency ---------------------------------------------------------------------


def exchange(key: bytes, host: int, head: bytes) -> Tuple[bytes, bytes]:
    """Return a request to `host` and its reply, which are `PACKET` bytes each.

    Half of a proof is the request's, the other half the reply's: neither tells the
    other, and a request cannot be sent back for its reply.
    """
    proof = prove(key, b"echo", host, head)
    request, reply = bytes([REQUEST]) + head, bytes([REPLY]) + head
    return (
        (request + proof[:PROOF]).ljust(PACKET, b"\0"),
        (reply + proof[PROOF:]).ljust(PACKET, b"\0"),
    )


def requests_on(task: Task, port: int) -> int:
    """Return how many requests a port sends in a slot."""
    return task.warm_up + (task.samples + task.ports - 1 - port) // task.ports


class Reflector:
    """Answers requests that prove the session key, each once, with no more bytes.

    The addresses they come from are added to `members`.
    """

    def __init__(self, sock: socket.socket, task: Task, members: Set[str]) -> None:
        self._sock = sock
        self._task = task
        self._members = members
        self._ready: Dict[bytes, bytes] = {}  # request -> reply
        self._latest: Dict[bytes, bytes] = {}  # slot -> head answered last

    def expect(self, slot: Slot) -> None:
        """Work out the answers of a slot before it begins.

        What is not expected is answered as well, but a little later, which would be
        taken for latency.
        """
        task = self._task
        heads = (
            PING.pack(slot.number, port, number)
            for port in range(task.ports)
            for number in range(requests_on(task, port))
        )
        self._ready = dict(
            exchange(task.key, task.position, head)
            for head in itertools.islice(heads, AHEAD)
        )

    def run(self) -> None:
        """Serve for ever."""
        while True:
            data, sender = self._sock.recvfrom(PACKET + 1)
            # A hash with a seed of its own finds it: no guess is told from another.
            reply = self._ready.pop(data, None) or self._reply(data)
            if reply is None:
                continue
            try:
                self._sock.sendto(reply, sender)
            except OSError:
                # The asker counts it as lost, as it does any other loss.
                continue
            slot, head = data[1:5], data[1:9]
            self._latest[slot] = max(head, self._latest.get(slot, b""))
            self._members.add(sender[0])

    def _reply(self, data: bytes) -> Optional[bytes]:
        """Return the reply to what nobody expected, None if it deserves none."""
        if len(data) != PACKET or data[0] != REQUEST:
            return None
        slot, head = data[1:5], data[1:9]
        request, reply = exchange(self._task.key, self._task.position, head)
        # An asker counts on: what is not after the last is a replay.
        is_new = head > self._latest.get(slot, b"")
        return reply if hmac.compare_digest(data, request) and is_new else None


def set_timeout(sock: socket.socket, seconds: float) -> None:
    """Bound a blocking receive in the kernel: settimeout() would add a poll()."""
    whole, micro = divmod(max(1, math.ceil(seconds * 1e6)), 1_000_000)
    sock.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", whole, micro)
    )


def round_trip(sock: socket.socket, request: bytes, reply: bytes, limit: int) -> int:
    """Return nanoseconds from a request to its reply; OSError if it is lost."""
    begin = clock()
    sock.send(request)
    while sock.recv(PACKET + 1) != reply:
        # A reply to a request given up before; not for longer than the slot.
        if clock() > limit:
            raise socket.timeout
    return clock() - begin


def ping(
    address: Tuple[str, int], task: Task, slot: Slot, limit: int
) -> Dict[str, Any]:
    """Return requests sent and round trips in ns, over several source ports.

    ``bytes`` are those of all requests, the warm-up's too, and of the replies.

    `limit` is the clock at which to stop with what there is.
    """
    sent, taken, lost = 0, [], 0  # type: int, List[int], int
    longest, packets = 0, 0
    for port in range(task.ports):
        # Proofs between round trips would drive the next one's code out of caches.
        messages = [
            exchange(task.key, slot.peer, PING.pack(slot.number, port, number))
            for number in range(requests_on(task, port))
        ]
        with socket.socket(family(address[0]), socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            for number, (request, reply) in enumerate(messages):
                left = (limit - clock()) / 1e9
                if left <= 0 or lost >= GIVE_UP:
                    return {"sent": sent, "ns": taken, "bytes": packets * PACKET}
                if number < 2 or lost:
                    # One lost packet must not cost a pair its whole slot.
                    known = 10e-9 * longest or min(FIRST_REPLY, left / 2)
                    set_timeout(sock, min(left, max(LEAST_REPLY, known)))
                sent += number >= task.warm_up
                packets += 1
                try:
                    elapsed = round_trip(sock, request, reply, limit)
                except OSError:
                    lost += 1
                    continue
                packets += 1
                lost, longest = 0, max(longest, elapsed)
                if number >= task.warm_up:
                    taken.append(elapsed)
    return {"sent": sent, "ns": taken, "bytes": packets * PACKET}


# Bandwidth -------------------------------------------------------------------


class TcpFlow:
    """What arrived in one slot, in windows counted from its first byte."""

    def __init__(self, window_s: float) -> None:
        self._window = int(window_s * 1e9)
        self._begin = 0
        self._end = 0
        self._open = 0
        self._bytes: List[int] = []

    def open(self) -> None:
        """Note that a stream has come up."""
        self._open += 1

    def count(self, size: int) -> None:
        """Add `size` bytes that have just arrived."""
        now = clock()
        self._begin = self._begin or now
        window = (now - self._begin) // self._window
        self._bytes.extend([0] * (window + 1 - len(self._bytes)))
        self._bytes[window] += size

    def finish(self) -> None:
        """Note that a stream is there as a whole: so is the flow, by the last."""
        self._open -= 1
        if not self._open:
            self._end = clock()

    def close(self) -> None:
        """Note that a stream broke off: from here on the flow is not whole."""
        self._end = self._end or clock()

    def windows(self) -> List[int]:
        """Return the bytes of each window that is complete."""
        if not self._begin:
            return []
        whole = ((self._end or clock()) - self._begin) // self._window
        return (self._bytes + [0] * whole)[:whole]


class Stranger:
    """A connection that has yet to prove that it has the session key."""

    def __init__(self, address: str, is_member: bool) -> None:
        self.address = address
        self.source = subnet(address)
        self.is_member = is_member
        self.deadline = time.monotonic() + STRANGER_LIFE
        self.nonce = os.urandom(NONCE)
        self.said = b""


class Receiver:
    """Takes streams on the TCP port and counts them by slot.

    Members are addresses that hosts of the probe are known to have. Those that have
    proven the session key are added; the door is never shut to any of them, and
    others cannot take their places.
    """

    def __init__(self, listener: socket.socket, task: Task, members: Set[str]) -> None:
        self._listener = listener
        self._task = task
        self._members = members
        self._selector = selectors.DefaultSelector()
        self._strangers: Dict[socket.socket, Stranger] = {}  # oldest first
        self._failures: Dict[str, int] = {}
        self._flows: Dict[int, TcpFlow] = {}

    def take(self, slot: int) -> List[int]:
        """Return the windows of a slot and forget them."""
        flow = self._flows.pop(slot, None)
        return flow.windows() if flow else []

    def run(self) -> None:
        """Serve for ever."""
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        buffer = bytearray(4 * CHUNK)
        while True:
            for key, _ in self._selector.select(self._patience()):
                conn: Any = key.fileobj
                if conn is self._listener:
                    self._accept()
                elif conn.fileno() >= 0:  # else it had to go a moment ago
                    self._receive(conn, key.data, buffer)
            while self._patience() == 0:
                self._drop(next(iter(self._strangers)))

    def _patience(self) -> Optional[float]:
        """Return seconds until the time of the oldest stranger is over."""
        for stranger in self._strangers.values():
            return max(0.0, stranger.deadline - time.monotonic())
        return None

    def _accept(self) -> None:
        try:
            conn, (address, *_) = self._listener.accept()
        except OSError:
            return  # it went away before we came to it
        stranger = Stranger(address, address in self._members)
        failures = self._failures.get(stranger.source, 0)
        if failures >= FAILURES and not stranger.is_member:
            reset(conn)
            return
        self._make_room(stranger)
        conn.setblocking(False)
        self._strangers[conn] = stranger
        self._selector.register(conn, selectors.EVENT_READ)

    def _make_room(self, new: Stranger) -> None:
        """Have the oldest go if there are too many: a host proves itself at once."""
        beside = {
            c: s for c, s in self._strangers.items() if s.is_member == new.is_member
        }
        alike = [c for c, s in beside.items() if s.source == new.source]
        most = max(STRANGERS_ALIKE, self._task.streams)
        if len(alike) >= most and not new.is_member:
            self._drop(alike[0])
        elif len(beside) >= STRANGERS:
            self._drop(next(iter(beside)))

    def _receive(self, conn: Any, flow: Optional[TcpFlow], buffer: bytearray) -> None:
        try:
            if flow is None:
                self._identify(conn)
                return
            size = conn.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            # A reset is how a sender ends whose time is up; if it had not got
            # through, it has guessed nothing either: that is no failure.
            self._strangers.pop(conn, None)
            if flow:
                flow.close()
            self._drop(conn)
            return
        if size:
            flow.count(size)
            return
        flow.finish()
        self._drop(conn)

    def _identify(self, conn: socket.socket) -> None:
        """Take what a stranger says, as a whole: a nonce, then slot and proof."""
        stranger = self._strangers[conn]
        begun = len(stranger.said) >= NONCE
        missing = NONCE + begun * HELLO.size - len(stranger.said)
        data = conn.recv(missing)
        stranger.said += data
        if 0 < len(data) < missing:
            return
        if data and not begun:
            conn.send(self._answer(stranger))
        elif not (data and self._admit(conn, stranger)):
            # Wrong, or cut short: it ends like one who says nothing, which tells
            # nobody how much of it was right.
            self._selector.unregister(conn)

    def _answer(self, stranger: Stranger) -> bytes:
        """Return what proves to a stranger that this is a host of the probe."""
        nonces = stranger.said + stranger.nonce
        proof = prove(self._task.key, b"accept", self._task.position, nonces)
        return ANSWER.pack(stranger.nonce, proof)

    def _admit(self, conn: socket.socket, stranger: Stranger) -> bool:
        """Let a stranger send its flow, if what it said is right."""
        slot, _ = HELLO.unpack(stranger.said[NONCE:])
        nonces = stranger.said[:NONCE] + stranger.nonce
        right = greeting(self._task, self._task.position, nonces, slot)
        if not hmac.compare_digest(right, stranger.said[NONCE:]):
            return False
        del self._strangers[conn]
        self._failures.pop(stranger.source, None)
        self._members.add(stranger.address)
        flow = self._flows.setdefault(slot, TcpFlow(self._task.window_s))
        flow.open()
        self._selector.modify(conn, selectors.EVENT_READ, flow)
        return True

    def _drop(self, conn: socket.socket) -> None:
        if conn in self._selector.get_map():
            self._selector.unregister(conn)
        stranger = self._strangers.pop(conn, None)
        if stranger is None:
            conn.close()
            return
        reset(conn)
        if not stranger.is_member:
            count = self._failures.pop(stranger.source, 0)
            self._failures[stranger.source] = count + 1
            if len(self._failures) > SOURCES:
                del self._failures[next(iter(self._failures))]


def greeting(task: Task, host: int, nonces: bytes, slot: int) -> bytes:
    """Return what a stream to `host` begins with after both have chosen a nonce."""
    proof = prove(task.key, b"connect", host, nonces + b"%d" % slot)
    return HELLO.pack(slot, proof)


def subnet(address: str) -> str:
    """Return what counts as one source: an IPv4 address, the first half of an IPv6."""
    if ":" not in address:
        return address
    return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:8].hex()


def reset(sock: socket.socket) -> None:
    """Close a connection without sending, or reading, what is still queued."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Service:
    """What this host does for its peers: it answers and counts."""

    def __init__(self, udp: socket.socket, tcp: socket.socket, task: Task) -> None:
        self._members: Set[str] = set()
        self._reflector = Reflector(udp, task, self._members)
        self._receiver = Receiver(tcp, task, self._members)
        start_thread(self._reflector.run)
        start_thread(self._receiver.run)

    def know(self, peers: Iterable[Optional[Peer]]) -> None:
        """Take the addresses of hosts of the probe for members."""
        self._members.update(peer.tcp[0] for peer in peers if peer)

    def expect(self, slot: Slot) -> None:
        """Get ready for a slot in which this host is asked."""
        self._reflector.expect(slot)

    def take(self, slot: int) -> List[int]:
        """Return the windows of what arrived in a slot, and forget them."""
        return self._receiver.take(slot)


class Greeting:
    """How a stream begins: both ends prove to each other that they have the key.

    So a flow goes to hosts of this probe and to nobody else, whatever addresses the
    driver has named.
    """

    def __init__(self, task: Task, slot: Slot) -> None:
        self._task = task
        self._slot = slot
        self._nonce = os.urandom(NONCE)
        self._has_asked = False
        self._heard = b""

    def go_on(self, stream: socket.socket) -> bool:
        """Say what is next; return whether that was all. OSError if it failed."""
        if not self._has_asked:
            error = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            stream.send(self._nonce)
            self._has_asked = True
            return False
        data = stream.recv(ANSWER.size - len(self._heard))
        self._heard += data
        if data and len(self._heard) < ANSWER.size:
            return False
        host, key = self._slot.peer, self._task.key
        nonces = self._nonce + self._heard[:NONCE]
        right = prove(key, b"accept", host, nonces)
        if not hmac.compare_digest(right, self._heard[NONCE:]):
            raise OSError("no host of this probe answers there")
        stream.send(greeting(self._task, host, nonces, self._slot.number))
        return True


def transmit(address: Tuple[str, int], task: Task, slot: Slot, limit: int) -> int:
    """Send `flow_bytes` on all streams at once, or until the clock is `limit`.

    On a full link a stream may come up too late: the others do without it.
    Returns the bytes that went out.
    """
    share = -(-task.flow_bytes // task.streams)
    streams: List[socket.socket] = []
    try:
        with selectors.DefaultSelector() as selector:
            for _ in range(task.streams):
                stream = socket.socket(family(address[0]), socket.SOCK_STREAM)
                streams.append(stream)
                stream.setblocking(False)
                pace(stream, -(-slot.pace // task.streams))
                stream.connect_ex(address)  # says now or later if it fails
                selector.register(stream, selectors.EVENT_WRITE, Greeting(task, slot))
            taken = pour(selector, share, limit)
        return taken - sum(map(unsent, streams))
    finally:
        for stream in streams:
            reset(stream)  # what is still queued must not run into the next slot


def pace(stream: socket.socket, bytes_per_s: int) -> None:
    """Have TCP send no faster than that, if it is not 0 and the kernel can."""
    if bytes_per_s:
        rate = struct.pack("Q", bytes_per_s)
        with contextlib.suppress(OSError):  # not Linux
            stream.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)


def unsent(stream: socket.socket) -> int:
    """Return how many bytes of a stream the kernel has taken but not sent."""
    try:
        answer = fcntl.ioctl(stream, SIOCOUTQNSD, bytes(4))
    except OSError:
        return 0  # not Linux
    return int(struct.unpack("i", answer)[0])


def pour(selector: selectors.BaseSelector, size: int, limit: int) -> int:
    """Write `size` bytes to each stream; until they are there, or until `limit`.

    Returns the bytes that the kernel took. The data of a stream says what comes
    next: a greeting, so many bytes, or the end of the other side, which has then
    taken all of them.
    """
    payload = memoryview(bytes(CHUNK))
    greeted, taken = False, 0
    while selector.get_map():
        left = (limit - clock()) / 1e9
        if left <= 0:
            break
        for key, _ in selector.select(left):
            stream: Any = key.fileobj
            try:
                if key.data == 0:
                    selector.unregister(stream)
                elif not isinstance(key.data, Greeting):
                    part = stream.send(payload[: key.data])
                    taken, rest = taken + part, key.data - part
                    selector.modify(stream, selectors.EVENT_WRITE, rest)
                    if not rest:
                        stream.shutdown(socket.SHUT_WR)
                        selector.modify(stream, selectors.EVENT_READ, rest)
                elif key.data.go_on(stream):
                    selector.modify(stream, selectors.EVENT_WRITE, size)
                    greeted = True
                else:
                    selector.modify(stream, selectors.EVENT_READ, key.data)
            except BlockingIOError:
                continue
    if not greeted:
        raise OSError("timed out")
    return taken


def family(address: str) -> socket.AddressFamily:
    """Return the family of an IP address; IPv4 for a name."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def listen(kind: socket.SocketKind, address: str) -> socket.socket:
    """Return a socket on an ephemeral port of `address`, if it is one of ours."""
    sock = socket.socket(family(address), kind)
    try:
        sock.bind((address, 0))
    except OSError:
        # A name, or the outside of a NAT: take every interface.
        sock.bind(("", 0))
    if kind == socket.SOCK_STREAM:
        sock.listen(STRANGERS)
    return sock


class ProbeRunning(Exception):
    """Another probe has this host; `args` are its process and its time."""


def lock_name(address: str) -> str:
    """Return the name of the lock of the host that this process runs on.

    The network namespace stands in it because hosts that are containers may share a
    temporary folder.
    """
    try:
        namespace = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        namespace = 0  # not Linux: no such thing
    place = hashlib.sha256(("%d %s" % (namespace, address)).encode()).hexdigest()[:16]
    return "probe-%s.lock" % place


def lock_folders() -> List[str]:
    """Return the folders that hold this user's locks, as far as they are its own.

    Both, because another probe of this user may see only the last: not every way to
    a host sets XDG_RUNTIME_DIR.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    own = os.path.join(tempfile.gettempdir(), "cloudcoll-%d" % os.geteuid())
    with contextlib.suppress(OSError):  # who opens it is told
        os.mkdir(own, 0o700)
    return [runtime, own] if os.path.isabs(runtime) else [own]


def own_folder(path: str) -> int:
    """Open a folder that is ours alone; OSError if it is not."""
    handle = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(handle)
    if found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return handle
    os.close(handle)
    text = "owned by user %d, mode %o" % (found.st_uid, stat.S_IMODE(found.st_mode))
    raise PermissionError(errno.EPERM, text, path)


def lock(folder: int, name: str) -> None:
    """Lock a file of a folder for this process; `ProbeRunning` if it is locked.

    The kernel drops the lock with the process, however that ends.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        handle = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            content = os.read(handle, 64).decode("ascii", "replace")
            pid, _, since = content.partition(" ")
            raise ProbeRunning(int(pid) if pid.isdigit() else 0, since) from None
        try:
            if os.path.samestat(os.fstat(handle), os.stat(name, dir_fd=folder)):
                break
        except FileNotFoundError:
            pass
        os.close(handle)  # its owner removed it while we opened it
    os.write(handle, b"%d %s" % (os.getpid(), time.strftime("%F %T").encode()))


def resolve(entry: Any) -> Optional[Peer]:
    """Return where a peer listens, None if its name means nothing here."""
    if not isinstance(entry, list) or [type(x) for x in entry] != [str, int, int]:
        raise ValueError("a peer is %r" % (entry,))
    address, udp, tcp = entry
    if not (0 < udp < 1 << 16 and 0 < tcp < 1 << 16):
        raise ValueError("a peer is %r" % (entry,))
    try:
        found = socket.getaddrinfo(address, None, family(address))
    except (OSError, UnicodeError):
        return None
    host = str(found[0][4][0])
    return Peer((host, udp), (host, tcp))


def resolve_all(entries: List[Any]) -> List[Optional[Peer]]:
    """Look all names up; one that takes too long must not hold up the others."""
    peers: List[Optional[Peer]] = [None] * len(entries)
    waiting = iter([i for i, entry in enumerate(entries) if entry is not None])

    def work() -> None:
        for i in waiting:  # next() on a list's iterator is atomic
            peers[i] = resolve(entries[i])

    deadline = time.monotonic() + LOOKUP_LIFE
    threads = [start_thread(work) for _ in range(LOOKUPS)]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return list(peers)


def sleep_until(begin: int, seconds: float) -> None:
    """Sleep until `seconds` after the clock was `begin`."""
    time.sleep(max(0.0, seconds - (clock() - begin) / 1e9))


def stolen() -> float:
    """Return seconds that the hypervisor took from this machine's CPUs."""
    try:
        with open("/proc/stat") as file:
            return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0  # not Linux


def is_starved(slot: Slot, late_s: float, steal_s: float) -> bool:
    """Return whether this host had too little CPU to measure in a slot.

    `late_s` is how long after its start this host came to it, `steal_s` what
    `stolen` grew by in it.
    """
    length = slot.end - slot.start
    return late_s > LATE * length or steal_s > STEAL * length * (os.cpu_count() or 1)


class Contact:
    """Asks peers and sends to them, but leaves alone whoever does not answer."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._silent: Dict[str, int] = {}

    def reach(
        self, slot: Slot, peer: Peer, limit: int
    ) -> Tuple[int, Optional[Dict[str, Any]]]:
        """Return the bytes sent in a slot and, if it is for them, round trips."""
        address = peer.udp[0]
        silent = self._silent.get(address, 0)
        if silent >= SILENT:
            raise OSError("left alone, as it was silent in %d meetings" % silent)
        self._silent[address] = silent + 1
        result = None
        if slot.kind == "rtt":
            result = ping(peer.udp, self._task, slot, limit)
            sent: int = result.pop("bytes")
        else:
            sent = transmit(peer.tcp, self._task, slot, limit)
        if result is None or result["ns"]:
            self._silent[address] = 0
        return sent, result


def measure(
    contact: Contact,
    meetings: Iterable[Slot],
    peers: List[Optional[Peer]],
    service: Service,
    control: Control,
    begin: int,
) -> int:
    """Keep this host's meetings, each in its slot, and report them.

    Returns the bytes that were sent for it, with the replies of peers.
    """
    sent = 0
    for slot in meetings:
        peer = peers[slot.peer]
        if peer is None:
            continue
        if slot.kind == "rtt" and not slot.asks:
            service.expect(slot)
        sleep_until(begin, slot.start)
        late, steal = (clock() - begin) / 1e9 - slot.start, stolen()
        limit = begin + int(slot.end * 1e9)
        what = {"slot": slot.number, "peer": slot.peer}
        result = None
        try:
            if slot.sends or (slot.kind == "rtt" and slot.asks):
                size, result = contact.reach(slot, peer, limit)
                sent += size
        except OSError as error:
            control.send("trouble", text=str(error)[:200], **what)
        # Reports wait for the slot's end: they must not disturb other pairs.
        sleep_until(begin, slot.end)
        if is_starved(slot, late, stolen() - steal):
            control.send("starved", **what)
        if result:
            control.send("rtt", **what, **result)
        elif slot.receives:
            control.send("flow", windows=service.take(slot.number), **what)
    return sent


def boot_id() -> str:
    """Return what changes with every boot, empty where the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def introduce(control: Control) -> None:
    """Tell the driver what this host is."""
    control.send(
        "hello",
        python="%d.%d.%d" % sys.version_info[:3],
        hostname=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        cpus=os.cpu_count() or 1,
        load=os.getloadavg()[0],
    )


def reserve(task: Task, control: Control) -> str:
    """Lock this host, or say who has it and wait for the end.

    Returns why there is no lock among the temporary files, "" if there is one.
    """
    name, unlocked = lock_name(task.address), ""
    held: List[int] = []

    def remove() -> None:
        for folder in held:
            with contextlib.suppress(FileNotFoundError):  # removed with its folder
                os.unlink(name, dir_fd=folder)

    control.at_end = remove
    for path in lock_folders():
        try:
            folder = own_folder(path)
            lock(folder, name)
            held.append(folder)
            unlocked = ""
        except ProbeRunning as owner:
            if not task.force:
                control.send("busy", pid=owner.args[0], since=owner.args[1])
                control.expect("exit")
        except OSError as error:
            unlocked = "no lock in %s: %s" % (path, error.strerror)
    return unlocked


def serve(task: Task, control: Control, unlocked: str) -> Service:
    """Open this host to its peers and tell the driver where."""
    udp = listen(socket.SOCK_DGRAM, task.address)
    tcp = listen(socket.SOCK_STREAM, task.address)
    service = Service(udp, tcp, task)
    ports = {"udp": udp.getsockname()[1], "tcp": tcp.getsockname()[1]}
    control.send("ports", **ports, unlocked=unlocked[:200])
    return service


def meet(task: Task, control: Control, service: Service) -> List[Optional[Peer]]:
    """Return where the peers are; tell the driver whose name means nothing."""
    entries = control.expect("peers").get("peers")
    if not isinstance(entries, list) or len(entries) != task.hosts:
        raise ValueError("peers do not match %d hosts" % task.hosts)
    peers = resolve_all(entries)
    service.know(peers)
    unknown = [i for i, entry in enumerate(entries) if entry and not peers[i]]
    control.send("ready", unknown=unknown, next=next_address(task.position, peers))
    return peers


def next_address(position: int, peers: List[Optional[Peer]]) -> str:
    """Return the address, as seen from here, of the next host that takes part.

    A host's own idea of its address is often the loopback one.
    """
    for peer in peers[position + 1 :] + peers[:position]:
        if peer is not None:
            return peer.udp[0]
    return ""


def begin_of(frame: Dict[str, Any]) -> int:
    """Return the clock at which the slots of a ``go`` or ``rounds`` begin."""
    after = frame.get("after_s")
    if type(after) is not float or not 0 <= after <= 60:
        raise ValueError("after_s is %r" % (after,))
    return clock() + int(after * 1e9)


def main() -> None:
    """Go through the driver's phases: hello, prepare, peers, go, done, rounds."""
    signal.alarm(UNPREPARED_LIFE)
    control = Control()
    introduce(control)
    task = read_task(control.expect("prepare"))
    signal.alarm(math.ceil(task.life_s))
    service = serve(task, control, reserve(task, control))
    peers = meet(task, control, service)
    contact = Contact(task)
    begin = begin_of(control.expect("go"))
    # A collection in the timed loop would be taken for network latency.
    gc.disable()
    meetings: Iterable[Slot] = slots(task)
    while True:
        before, steal = resource.getrusage(resource.RUSAGE_SELF), stolen()
        sent = measure(contact, meetings, peers, service, control, begin)
        used = resource.getrusage(resource.RUSAGE_SELF)
        control.send(
            "done",
            steal_s=max(0.0, stolen() - steal),
            cpu_s=used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
            voluntary=used.ru_nvcsw - before.ru_nvcsw,
            involuntary=used.ru_nivcsw - before.ru_nivcsw,
            sent=sent,
        )
        frame = control.expect("rounds")  # or stdin ends
        begin, meetings = begin_of(frame), read_rounds(frame, task)


if __name__ == "__main__":
    run_or_end(main)
