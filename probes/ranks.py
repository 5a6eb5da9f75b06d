"""What the ranks of a job measure, whichever library carries their messages.

`mpi_probe` and `torch_probe` each bring a `Connection` and call `run`. The job's
launcher starts them; one rank on each host measures, others rest. One rank
reads JSON from stdin, as `start` says::

    {"hosts": [[NAME, ADDRESS], ...], "plan": {...},
     "missing": {ROUND: [HOST, ...]}}

``plan`` is what an agent is sent in ``prepare``, and the rounds are worked out
as an agent does it. ``missing`` names the hosts that have yet to report in a
round; other rounds are left out. Rank 0 writes JSON lines to stdout: first
``{"library", "names", "hosts"}`` (name and position, or -1, of each rank's
host), then after each round its ``rtt`` and ``flow`` reports with the position
of the ``host`` that reports, and at last how many bytes each ``sent``.
"""

from __future__ import annotations

import ipaddress
import json
import math
import signal
import socket
import sys
from collections import deque
from typing import Any, Collection, Deque, Dict, List, NamedTuple, Optional, Tuple

from . import agent

ROUND_LIFE = 20  # seconds that a round may take longer than planned
LEAST, MOST = 1 << 16, 1 << 22  # bytes of one message of a flow
MESSAGE_S = 1e-3  # what a message of a flow should take: many to a window
HEAD = 8  # bytes of a message of a flow that say how long a later one is


class Connection:
    """Messages between ranks, as one library carries them.

    A buffer is whatever the library sends fastest; `part` is its first `size`
    bytes. What `isend` and `irecv` return has a `wait`.

    Attributes
    ----------
    rank, size : int
        This rank, and how many there are.
    name : str
        What this host calls itself.
    library : str
        Name and version, for the snapshot.
    """

    rank: int
    size: int
    name: str
    library: str

    # Among all ranks, in the same order on each. While they wait, they leave
    # the cores to those that measure.

    def barrier(self) -> None:
        """Wait for all ranks."""
        raise NotImplementedError

    def share(self, text: bytes) -> bytes:
        """Return rank 0's `text` on every rank."""
        raise NotImplementedError

    def gather(self, text: bytes) -> bytes:
        """Return all ranks' texts, joined, on rank 0; nothing elsewhere."""
        raise NotImplementedError

    # Between two ranks.

    def buffer(self, size: int) -> Any:
        """Return a buffer of `size` zero bytes."""
        raise NotImplementedError

    def write(self, buffer: Any, data: bytes) -> None:
        """Put `data` at the beginning of a buffer."""
        raise NotImplementedError

    def read(self, buffer: Any, size: int) -> bytes:
        """Return the first `size` bytes of a buffer."""
        raise NotImplementedError

    def exchange(self, request: Any, reply: Any, peer: int) -> None:
        """Send all of `request`; return when all of `reply` has come."""
        raise NotImplementedError

    def echo(self, buffer: Any, peer: int) -> None:
        """Fill all of `buffer` with what comes and send it back."""
        raise NotImplementedError

    def isend(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to send the first `size` bytes."""
        raise NotImplementedError

    def irecv(self, buffer: Any, size: int, peer: int) -> Any:
        """Begin to receive `size` bytes."""
        raise NotImplementedError


class Member(NamedTuple):
    """What one rank needs to take part."""

    link: Connection
    task: agent.Task
    ranks: Dict[int, int]  # position of a host -> its rank
    buffers: List[Any]  # one for each message of a flow that is on its way


# Who is where -----------------------------------------------------------------


def find_host(hosts: List[List[str]], name: str) -> int:
    """Return the position in the host list of a host called `name`; -1 if none.

    It may call itself something longer or shorter than the list does, and the
    list may know only its address.
    """
    names = [listed for listed, _ in hosts]
    if name in names:
        return names.index(name)
    short = [listed.partition(".")[0] for listed in names]
    if short.count(name.partition(".")[0]) == 1:
        return short.index(name.partition(".")[0])
    mine = [i for i, (_, address) in enumerate(hosts) if is_own(address)]
    return mine[0] if mine else -1


def is_own(address: str) -> bool:
    """Return whether an IP address is one of this machine's."""
    try:
        if ipaddress.ip_address(address).is_loopback:
            return False
    except ValueError:
        return False  # a name, which has been compared already
    return can_bind(address)


def can_bind(address: str) -> bool:
    """Return whether a socket of this machine can have an IP address."""
    with socket.socket(agent.family(address), socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address, 0))
        except OSError:
            return False
    return True


# Latency ----------------------------------------------------------------------


def ask(member: Member, peer: int, limit: int) -> Dict[str, Any]:
    """Return round trips in ns between this rank and `peer`.

    The first byte of a request says whether it is the last.
    """
    link, task = member.link, member.task
    request, reply = link.buffer(agent.PACKET), link.buffer(agent.PACKET)
    taken: List[int] = []
    last = False
    while not last:
        over = len(taken) > task.warm_up and agent.clock() > limit
        last = over or len(taken) + 1 == task.warm_up + task.samples
        link.write(request, bytes([last]))
        begin = agent.clock()
        link.exchange(request, reply, peer)
        taken.append(agent.clock() - begin)
    # In the warm-up the library connects and the other one arrives.
    report = {"sent": len(taken) - task.warm_up, "ns": taken[task.warm_up :]}
    return dict(report, bytes=2 * agent.PACKET * len(taken))


def answer(member: Member, peer: int) -> None:
    """Send each request of `peer` back, up to its last."""
    packet = member.link.buffer(agent.PACKET)
    while not member.link.read(packet, 1)[0]:
        member.link.echo(packet, peer)


# Bandwidth --------------------------------------------------------------------


def transmit(member: Member, peer: int, limit: int) -> int:
    """Keep one message for each stream on its way until the clock is `limit`.

    Messages grow with the rate, so that neither their number keeps a fast
    link from being filled nor their size a slow one from being seen. Not every
    library tells a receiver how much came: each message begins with the length
    of the one that follows it in its stream, 0 for none. Returns the bytes sent.
    """
    link, task = member.link, member.task
    lengths = deque([LEAST] * task.streams)
    on_way: Deque[Tuple[Any, int]] = deque()
    begin, sent, turn = agent.clock(), 0, 0
    while lengths:
        if len(on_way) == task.streams:
            request, length = on_way.popleft()
            request.wait()
            sent += length
        rate = sent / (agent.clock() - begin) * 1e9
        over = sent >= task.flow_bytes or agent.clock() >= limit
        follows = 0 if over else min(MOST, max(LEAST, int(rate * MESSAGE_S)))
        buffer, length = member.buffers[turn % task.streams], lengths.popleft()
        link.write(buffer, follows.to_bytes(HEAD, "little"))
        on_way.append((link.isend(buffer, length, peer), length))
        if follows:
            lengths.append(follows)
        turn += 1
    for request, length in on_way:
        request.wait()
        sent += length
    return sent


def receive(member: Member, peer: int) -> Dict[str, Any]:
    """Return the bytes that `peer` sent, by windows counted from the first."""
    link, flow = member.link, agent.TcpFlow(member.task.window_s)
    on_way = deque((link.irecv(b, LEAST, peer), LEAST, b) for b in member.buffers)
    while on_way:
        request, length, buffer = on_way.popleft()
        request.wait()
        flow.count(length)
        follows = int.from_bytes(link.read(buffer, HEAD), "little")
        if follows:
            on_way.append((link.irecv(buffer, follows, peer), follows, buffer))
        else:
            flow.close()
    return {"windows": flow.windows()}


# The run ----------------------------------------------------------------------


def meet(member: Member, slot: agent.Slot) -> Tuple[Optional[Dict[str, Any]], int]:
    """Keep one meeting; return this host's report and what was sent for it.

    There is no report if the other one makes it, who then counts the replies, too.
    """
    peer, task = member.ranks[slot.peer], member.task
    length = task.rtt_s if slot.kind == "rtt" else task.load_s
    limit = agent.clock() + int(length * 1e9)
    what = {"host": task.position, "slot": slot.number, "peer": slot.peer}
    if slot.kind == "rtt":
        if slot.asks:
            report = ask(member, peer, limit)
            sent = report.pop("bytes")
            return dict(what, type="rtt", **report), sent
        answer(member, peer)
    else:
        if not slot.asks:
            return dict(what, type="flow", **receive(member, peer)), 0
        return None, transmit(member, peer, limit)
    return None, 0


def wanted_slots(
    task: agent.Task, present: Collection[int], missing: Dict[str, List[int]]
) -> Dict[int, agent.Slot]:
    """Return this host's meetings that are to be kept, by round.

    The hosts at `present` have a rank; `missing` has those that have yet to report.
    """
    wanted = {}
    for slot in agent.slots(task):
        reporter = task.position if slot.asks == (slot.kind == "rtt") else slot.peer
        if slot.peer in present and reporter in missing.get(str(slot.number), ()):
            wanted[slot.number] = slot
    return wanted


def measure(member: Member, missing: Dict[str, List[int]]) -> None:
    """Go through the rounds together; rank 0 writes what each has brought."""
    link, task = member.link, member.task
    slots: Dict[int, agent.Slot] = {}
    if member.ranks.get(task.position) == link.rank:
        slots = wanted_slots(task, member.ranks, missing)
    sent = 0
    # A host's further ranks only keep step, as do hosts that nobody named.
    for number in sorted(map(int, missing)):
        signal.alarm(ROUND_LIFE + math.ceil(max(task.rtt_s, task.load_s)))
        link.barrier()
        row = None
        if number in slots:
            row, part = meet(member, slots[number])
            sent += part
        # Reports must not disturb the pairs that are still measuring.
        link.barrier()
        write(gathered(link, row))
    last = {"host": task.position, "type": "sent", "bytes": sent}
    write(gathered(link, last if slots else None))


def gathered(link: Connection, row: Optional[Dict[str, Any]]) -> bytes:
    """Return the rows of all ranks as lines, on rank 0; a rank may have none."""
    return link.gather(json.dumps(row).encode() + b"\n" if row else b"")


def write(text: bytes) -> None:
    """Write to stdout at once: what is written survives this job."""
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def join(link: Connection, request: Dict[str, Any]) -> Member:
    """Find out which host each rank is on, and tell the driver."""
    position = find_host(request["hosts"], link.name)
    lines = link.gather(json.dumps([link.name, position]).encode() + b"\n")
    everyone = [json.loads(line) for line in lines.splitlines()]
    positions = json.loads(link.share(json.dumps([i for _, i in everyone]).encode()))
    if link.rank == 0:
        names = [name for name, _ in everyone]
        hello = {"library": link.library, "names": names, "hosts": positions}
        write(json.dumps(hello).encode() + b"\n")
    ranks: Dict[int, int] = {}
    for rank, host in enumerate(positions):
        ranks.setdefault(host, rank)
    ranks.pop(-1, None)
    # A host that nobody named borrows the first one's task, but not its rank.
    frame = dict(request["plan"], key="00" * 16, address="", force=False)
    frame.update(position=max(position, 0), life_s=float(ROUND_LIFE))
    task = agent.read_task(frame)
    return Member(link, task, ranks, [link.buffer(MOST) for _ in range(task.streams)])


def run(link: Connection, line: bytes) -> None:
    """Do what the line of JSON asks for; all ranks but one may have none."""
    text = link.share(line)
    if not text:
        # Some launchers feed another rank than 0.
        text = link.share(link.gather(line))
    request = json.loads(text)
    measure(join(link, request), request["missing"])
