"""Measure the network between the hosts of an MPI job, on the path MPI uses.

The user's own launcher starts it, as ``python -m cloudcoll._probes.mpi_probe``;
one rank on each host measures, others rest. Rank 0 reads one line of JSON from
stdin::

    {"hosts": [[NAME, ADDRESS], ...], "plan": {...},
     "missing": {ROUND: [HOST, ...]}}

``plan`` is what an agent is sent in ``prepare``, and the rounds are worked out
as an agent does it. ``missing`` names the hosts that have yet to report in a
round; other rounds are left out. Rank 0 writes JSON lines to stdout: first
``{"library", "names", "hosts"}`` (name and position, or -1, of each rank's
host), then after each round its ``rtt`` and ``flow`` reports with the position
of the ``host`` that reports.
"""

from __future__ import annotations

import ipaddress
import json
import math
import signal
import socket
import sys
import time
from array import array
from typing import Any, Collection, Dict, List, NamedTuple, Optional

from mpi4py import MPI

from . import agent

NAP, LONG_NAP = 5e-5, 1e-3  # seconds between two looks at what is not timed
ROUND_LIFE = 20  # seconds that a round may take longer than planned
TAG = 1
LEAST, MOST = 1 << 16, 1 << 22  # bytes of one message of a flow
MESSAGE_S = 1e-3  # what a message of a flow should take: many to a window


class Member(NamedTuple):
    """What one rank needs to take part."""

    comm: MPI.Intracomm
    task: agent.Task
    ranks: Dict[int, int]  # position of a host -> its rank
    buffers: List[bytearray]  # one for each message of a flow that is on its way


# Among all ranks --------------------------------------------------------------


def patient(request: MPI.Request) -> None:
    """Wait without keeping a core busy: others may be measuring on it."""
    nap = NAP
    while not request.Test():
        time.sleep(nap)
        nap = min(2 * nap, LONG_NAP)


def share(comm: MPI.Intracomm, text: bytes) -> bytes:
    """Return rank 0's `text` on every rank."""
    size = array("q", [len(text)])
    patient(comm.Ibcast(size))
    buffer = bytearray(text) if comm.rank == 0 else bytearray(size[0])
    patient(comm.Ibcast(buffer))
    return bytes(buffer)


def gather(comm: MPI.Intracomm, text: bytes) -> bytes:
    """Return all ranks' texts, joined, on rank 0; nothing elsewhere."""
    sizes = array("i", [0] * comm.size)
    patient(comm.Igather(array("i", [len(text)]), sizes if comm.rank == 0 else None))
    joined = bytearray(sum(sizes))
    patient(comm.Igatherv(text, [joined, sizes.tolist(), MPI.BYTE]))
    return bytes(joined)


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
    task, taken = member.task, []  # type: agent.Task, List[int]
    request, reply = bytearray(agent.PACKET), bytearray(agent.PACKET)
    while not request[0]:
        wanted = task.warm_up + task.samples
        over = len(taken) > task.warm_up and agent.clock() > limit
        request[0] = over or len(taken) + 1 == wanted
        begin = agent.clock()
        member.comm.Sendrecv(request, peer, TAG, reply, peer, TAG)
        taken.append(agent.clock() - begin)
    # In the warm-up MPI connects and the other one arrives.
    return {"sent": len(taken) - task.warm_up, "ns": taken[task.warm_up :]}


def answer(member: Member, peer: int) -> None:
    """Send each request of `peer` back, up to its last."""
    packet = bytearray(agent.PACKET)
    while not packet[0]:
        member.comm.Recv(packet, peer, TAG)
        member.comm.Send(packet, peer, TAG)


# Bandwidth --------------------------------------------------------------------


def transmit(member: Member, peer: int, limit: int) -> None:
    """Keep one message for each stream on its way until the clock is `limit`.

    Messages grow with the rate, so that neither their number keeps a fast
    link from being filled nor their size a slow one from being seen. An empty
    message ends a stream.
    """
    comm, task = member.comm, member.task
    begin, sent, size = agent.clock(), 0, LEAST
    sizes = [size] * task.streams
    sends = [comm.Isend(memoryview(b)[:size], peer, TAG) for b in member.buffers]
    while sent < task.flow_bytes and agent.clock() < limit:
        stream = MPI.Request.Waitany(sends)
        sent += sizes[stream]
        rate = sent / (agent.clock() - begin) * 1e9
        sizes[stream] = size = min(MOST, max(LEAST, int(rate * MESSAGE_S)))
        part = memoryview(member.buffers[stream])[:size]
        sends[stream] = comm.Isend(part, peer, TAG)
    MPI.Request.Waitall(sends)
    MPI.Request.Waitall([comm.Isend(b"", peer, TAG) for _ in sends])


def receive(member: Member, peer: int) -> Dict[str, Any]:
    """Return the bytes that `peer` sent, by windows counted from the first."""
    flow, status = agent.Flow(member.task.window_s), MPI.Status()
    receives = [member.comm.Irecv(buffer, peer, TAG) for buffer in member.buffers]
    streams = len(receives)
    while streams:
        stream = MPI.Request.Waitany(receives, status)
        size = status.Get_count(MPI.BYTE)
        if size:
            flow.count(size)
            receives[stream] = member.comm.Irecv(member.buffers[stream], peer, TAG)
        else:
            flow.close()
            streams -= 1
    return {"windows": flow.windows()}


# The run ----------------------------------------------------------------------


def meet(member: Member, slot: agent.Slot) -> Optional[Dict[str, Any]]:
    """Keep one meeting; return this host's report, None if the other reports."""
    peer, task = member.ranks[slot.peer], member.task
    length = task.rtt_s if slot.kind == "rtt" else task.load_s
    limit = agent.clock() + int(length * 1e9)
    what = {"host": task.position, "slot": slot.number, "peer": slot.peer}
    if slot.kind == "rtt":
        if slot.asks:
            return dict(what, type="rtt", **ask(member, peer, limit))
        answer(member, peer)
    else:
        if not slot.asks:
            return dict(what, type="flow", **receive(member, peer))
        transmit(member, peer, limit)
    return None


def wanted_slots(
    task: agent.Task, present: Collection[int], missing: Dict[str, List[int]]
) -> Dict[int, agent.Slot]:
    """Return this host's meetings that are to be kept, by round.

    Parameters
    ----------
    task : Task
    present : collection of int
        Positions of the hosts that have a rank.
    missing : dict
        Positions of the hosts that have yet to report, by round.
    """
    wanted = {}
    for slot in agent.slots(task):
        reporter = task.position if slot.asks == (slot.kind == "rtt") else slot.peer
        if slot.peer in present and reporter in missing.get(str(slot.number), ()):
            wanted[slot.number] = slot
    return wanted


def measure(member: Member, missing: Dict[str, List[int]]) -> None:
    """Go through the rounds together; rank 0 writes what each has brought."""
    comm, task = member.comm, member.task
    slots: Dict[int, agent.Slot] = {}
    if member.ranks.get(task.position) == comm.rank:
        slots = wanted_slots(task, member.ranks, missing)
    # A host's further ranks only keep step, as do hosts that nobody named.
    for number in sorted(map(int, missing)):
        signal.alarm(ROUND_LIFE + math.ceil(max(task.rtt_s, task.load_s)))
        patient(comm.Ibarrier())
        row = meet(member, slots[number]) if number in slots else None
        # Reports must not disturb the pairs that are still measuring.
        patient(comm.Ibarrier())
        write(gather(comm, json.dumps(row).encode() + b"\n" if row else b""))


def write(text: bytes) -> None:
    """Write to stdout at once: what is written survives this job."""
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()


def join(comm: MPI.Intracomm, request: Dict[str, Any]) -> Member:
    """Find out which host each rank is on, and tell the driver."""
    name = MPI.Get_processor_name()
    position = find_host(request["hosts"], name)
    positions = array("i", [0] * comm.size)
    patient(comm.Iallgather(array("i", [position]), positions))
    names = gather(comm, name.encode() + b"\n").decode().splitlines()
    if comm.rank == 0:
        library = MPI.Get_library_version().split("\n")[0].split(",")[0]
        hello = {"library": library, "names": names, "hosts": positions.tolist()}
        write(json.dumps(hello).encode() + b"\n")
    ranks: Dict[int, int] = {}
    for rank, host in enumerate(positions):
        ranks.setdefault(host, rank)
    ranks.pop(-1, None)
    # A host that nobody named borrows the first one's task, but not its rank.
    frame = dict(request["plan"], key="00" * 16, address="", force=False)
    frame.update(position=max(position, 0), life_s=float(ROUND_LIFE))
    task = agent.read_task(frame)
    return Member(comm, task, ranks, [bytearray(MOST) for _ in range(task.streams)])


def main() -> None:
    """Do what rank 0 reads from stdin."""
    # Every wait's deadline: an alarm ends this rank, and so the job, in whatever
    # call it is stuck. `measure` sets it anew for each round.
    signal.alarm(agent.UNPREPARED_LIFE)
    comm = MPI.COMM_WORLD
    # One line: mpirun does not always pass the end of its input on.
    line = sys.stdin.buffer.readline() if comm.rank == 0 else b""
    request = json.loads(share(comm, line))
    measure(join(comm, request), request["missing"])


if __name__ == "__main__":
    main()
