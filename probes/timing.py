"""Time a collective in several rank orders, interleaved, in one job.

Orders take turns within milliseconds, so that drift hits them alike. Whose
collective it is, a `World` says: `mpi_bench` has MPI's, `torch_bench` Gloo's.
``native/`` is the same in C, for MPI where there is no mpi4py.

Rank 0 reads JSON from stdin, as `start` says::

    {"op": NAME, "orders": {NAME: [key of rank 0, key of rank 1, ...]},
     "sizes": [BYTES, ...], "repeats": MOST, "least": LEAST, "seconds": BOX,
     "min_seconds": S, "narrow": SHARE, "reference": NAME}

and writes JSON lines to stdout: first ``{"library", "hosts"}`` (host name of
each rank), then ``{"order", "trouble"}`` for an order that can't be started and
is left out, and ``{"spared": BYTES}`` for a size that ``seconds`` have no time for,
then one row per measurement with ``op bytes order repeat time_us calls wrong
left_s``, at last ``{"done": true}``. Times are the slowest rank's, the mean of the
calls that fit into ``min_seconds``. After ``least`` repeats a size ends where its
share of ``seconds`` does, or where the ratio of every order to ``reference`` is known
to ``narrow``; all end with ``seconds``, but one size is measured once in any case.

``native/`` takes ``"settings": {NAME: {VARIABLE: NUMBER}}`` as well, behind the orders:
what MPI's library is told (MPI_T) for some of them, before their communicators are
made and before each measurement. A variable that it does not have is ``trouble``.

The numbers that ranks send tell rank and place, so that a block of another rank
counts as wrong.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy as np

from .start import read_request

PERIOD = 251
"""Of the numbers that ranks send. A prime, so that blocks and ranks differ, and
so small that the sums of 65536 ranks are exact in float32."""


class Buffers(NamedTuple):
    """What one rank sends and receives at one size."""

    send: Any
    recv: Any


def wave(start: int) -> Any:
    """Return the numbers that repeat in a vector; `start` is its first."""
    return (start + np.arange(PERIOD)) % PERIOD


def make_buffers(op: str, rank: int, ranks: int, size: int) -> Buffers:
    """Return the vectors of a world rank for `size` bytes in all."""
    count = max(size // 4, 1)
    block = count // ranks
    sent = block if op == "allgather" else count
    if op == "alltoall":
        blocks = [np.resize(wave(rank + 17 * place), block) for place in range(ranks)]
        send = np.concatenate(blocks).astype(np.float32)
    else:
        send = np.resize(wave(rank), sent).astype(np.float32)
    received = block if op == "reduce_scatter" else count
    return Buffers(send, np.empty(received, np.float32))


def count_wrong(op: str, members: Sequence[int], place: int, recv: Any) -> int:
    """Return how many elements of a result are not as they should be.

    `members` are the world ranks in order; the result is of that at `place`.
    """
    if op in ("allreduce", "reduce", "reduce_scatter"):
        if op == "reduce" and place != 0:
            return 0
        total = sum(wave(rank) for rank in members)
        first = place * len(recv) if op == "reduce_scatter" else 0
        return differences(recv, np.roll(total, -first % -PERIOD))
    if op == "bcast":
        return differences(recv, wave(members[0]))
    shift = 17 * place if op == "alltoall" else 0
    parts = recv.reshape(len(members), -1)
    return sum(
        differences(parts[i], wave(rank + shift)) for i, rank in enumerate(members)
    )


def differences(found: Any, period: Any) -> int:
    """Return how many elements differ from a repeated period."""
    whole = len(found) // PERIOD * PERIOD
    rows, rest = found[:whole].reshape(-1, PERIOD), found[whole:]
    return int(
        np.count_nonzero(rows != period) + np.count_nonzero(rest != period[: len(rest)])
    )


MAX_CALLS = 200
SLOW_S = 0.1
"""Of calls that take longer a first one differs too little to be made in vain."""
SMALL = 1 << 20
"""Bytes below which a call that is slow waits for its turns, or for lost packets: by
its bytes it would be only where links carry less than 10 MB/s. A larger one may take
no longer."""
SPARE = 1.25
"""Times longer than at first that calls may take, so that sizes still have time."""
MIN_SAMPLES = 6
"""Least and greatest of these enclose the median with 97 %."""


def sizes_in_time(rounds: Sequence[float], least: int, left: float) -> range:
    """Return the places of the sizes that can be measured `least` times in `left` s.

    `rounds` are the seconds of one measurement of every order, by size, ascending.
    """
    first, last = 0, len(rounds) - 1
    while first < last and least * sum(rounds[first : last + 1]) > left:
        # Small sizes make way for large ones, but for none that has no time at all.
        if least * rounds[last] > left:
            last -= 1
        else:
            first += 1
    return range(first, last + 1)


class RankGroup(ABC):
    """All ranks in one order: the world rank at each place, and this rank's place."""

    def __init__(self, members: List[int], place: int) -> None:
        self.members = members
        self.place = place

    def prepare(self, op: str, send: Any, recv: Any) -> None:
        """Put into `recv` what the call expects there; not timed."""
        if op == "bcast" and self.place == 0:
            recv[:] = send

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def call(self, op: str, send: Any, recv: Any) -> None:
        """Run the collective once; the root is at place 0."""

    def finish(self, recv: Any) -> None:  # noqa: B027 (most have nothing to do)
        """Put the result into `recv` if it lies elsewhere; not timed."""


class World(ABC):
    """All ranks as they were started."""

    rank: int
    size: int
    library: str

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Return rank 0's JSON value on every rank."""

    @abstractmethod
    def gather(self, text: str) -> List[str]:
        """Return all ranks' texts, on rank 0 at least."""

    @abstractmethod
    def largest(self, value: float) -> float:
        """Return the largest of all ranks' values."""

    @abstractmethod
    def total(self, value: int) -> int:
        """Return the sum of all ranks' values."""

    @abstractmethod
    def group(self, name: str, members: List[int]) -> RankGroup:
        """Return the ranks in another order."""


def members_of(keys: Sequence[int], ranks: int) -> List[int]:
    """Return the world rank at each place of an order, from every rank's key.

    ValueError if the keys do not put every rank in a place of its own.
    """
    if sorted(keys) != list(range(ranks)):
        raise ValueError("its keys are no permutation of %d ranks" % ranks)
    return sorted(range(ranks), key=keys.__getitem__)


def is_narrow(times: Dict[str, List[float]], reference: str, share: float) -> bool:
    """Return whether every order's ratio to the reference's is known well enough.

    The interval is of order statistics: of the median, 95 % or more (Conover,
    Practical Nonparametric Statistics, 3.2).
    """
    count = len(times[reference])
    if count < MIN_SAMPLES:
        return False
    cut = max(0, int(count / 2 - 0.98 * count**0.5))
    for series in times.values():
        ratios = np.sort(np.divide(series, times[reference]))
        if ratios[-1 - cut] - ratios[cut] > 2 * share * np.median(ratios):
            return False
    return True


def whose_turn(repeat: int, turn: int, count: int) -> int:
    """Return which of `count` is measured in a turn of a repeat.

    Each follows each other as often as any (Williams 1949, of an odd number in pairs of
    squares): what one leaves behind, such as a queue, does not hit the same one always.
    """
    if count % 2 and repeat // count % 2:
        turn = count - 1 - turn
    place = (turn + 1) // 2 if turn % 2 else count - turn // 2
    return (place + repeat) % count


class TimedJob:
    """One job: every size, every order, in turns."""

    def __init__(self, world: World, spec: Dict[str, Any]) -> None:
        self.world = world
        self.spec = spec
        self.op: str = spec["op"]
        # Those that could be started.
        self.groups: Dict[str, RankGroup] = {}
        # By size: seconds of one call of each order.
        self.calls: Dict[int, Dict[str, float]] = {}
        self.end = time.monotonic() + spec["seconds"]

    def run(self) -> None:
        """Start all orders, warm up, then measure size by size."""
        sizes: List[int] = self.spec["sizes"]
        for name, keys in self.spec["orders"].items():
            self._start(name, keys, sizes[0])
        if not self.groups:
            return
        self._warm_up(sizes)
        sizes = self._in_time(sizes)
        for number, size in enumerate(sizes):
            left = sum(self._round_s(later) for later in sizes[number:])
            rest = self.end - time.monotonic()
            box = time.monotonic() + rest * self._round_s(size) / left
            self._measure(size, box, sizes[number + 1 :])

    def _in_time(self, sizes: List[int]) -> List[int]:
        """Return the sizes that rank 0 has time for; name the others."""
        rounds = [self._round_s(size) for size in sizes]
        left = (self.end - time.monotonic()) / SPARE
        places = sizes_in_time(rounds, self.spec["least"], left)
        kept: List[int] = self.world.share([sizes[place] for place in places])
        for size in sizes:
            if size not in kept:
                self._write(spared=size)
        return kept

    def _start(self, name: str, keys: Sequence[int], size: int) -> None:
        """Make an order's group and let it connect; leave it out if that fails."""
        trouble = ""
        try:
            members = members_of(keys, self.world.size)
            group = self.groups[name] = self.world.group(name, members)
            self._call(group, self._buffers(size), 1)
        except (RuntimeError, ValueError) as error:  # MPI's and torch's are the first
            trouble = " ".join(str(error).split()) or type(error).__name__
        # All ranks leave it out, or none.
        if self.world.total(bool(trouble)):
            self.groups.pop(name, None)
            said = filter(None, self.world.gather(trouble))
            self._write(order=name, trouble=next(said, ""))

    def _warm_up(self, sizes: Sequence[int]) -> None:
        """Call everything once, and learn how long it takes.

        After slow calls that aren't small, larger sizes are left to be slower in
        proportion.
        """
        before = 0
        for size in sizes:
            known = self.calls.get(before, {})
            if before >= SMALL and min(known.values(), default=0.0) > SLOW_S:
                self.calls[size] = {n: s * size / before for n, s in known.items()}
            else:
                buffers = self._buffers(size)
                self.calls[size] = {
                    name: self._time(name, buffers, 1) for name in self.groups
                }
            before = size

    def _measure(self, size: int, box: float, later: Sequence[int]) -> None:
        """Measure every order once per repeat."""
        names = list(self.groups)
        buffers = self._buffers(size)
        times: Dict[str, List[float]] = {name: [] for name in names}
        for repeat in range(self.spec["repeats"]):
            for turn in range(len(names)):
                name = names[whose_turn(repeat, turn, len(names))]
                calls = self._calls(size, name)
                buffers.recv.fill(-1)
                seconds = self._time(name, buffers, calls)
                times[name].append(seconds)
                group = self.groups[name]
                wrong = count_wrong(self.op, group.members, group.place, buffers.recv)
                self._write(
                    op=self.op,
                    bytes=size,
                    order=name,
                    repeat=repeat,
                    time_us=seconds * 1e6,
                    calls=calls,
                    wrong=self.world.total(wrong),
                    left_s=self._left(size, repeat, later),
                )
            # Rank 0 decides: clocks differ.
            if self.world.share(self._enough(size, times, box)):
                return

    def _enough(self, size: int, times: Dict[str, List[float]], box: float) -> bool:
        done = len(next(iter(times.values())))
        if done < self.spec["least"]:
            # Small sizes may take from large ones, but nothing from the user.
            box = self.end
        if time.monotonic() + self._round_s(size) > box:
            return True
        reference = self.spec["reference"]
        return reference in times and is_narrow(times, reference, self.spec["narrow"])

    def _time(self, name: str, buffers: Buffers, calls: int) -> float:
        """Return seconds of one call, averaged, on the slowest rank."""
        return self.world.largest(self._call(self.groups[name], buffers, calls))

    def _call(self, group: RankGroup, buffers: Buffers, calls: int) -> float:
        """Return seconds of one call, averaged, on this rank."""
        elapsed = 0.0
        for _ in range(calls):
            group.prepare(self.op, *buffers)
            group.barrier()
            start = time.perf_counter()
            group.call(self.op, *buffers)
            elapsed += time.perf_counter() - start
        group.finish(buffers.recv)
        return elapsed / calls

    def _calls(self, size: int, name: str) -> int:
        # All ranks know the same seconds, the slowest rank's.
        wanted = self.spec["min_seconds"] / max(self.calls[size][name], 1e-9)
        return max(1, min(int(wanted), MAX_CALLS))

    def _round_s(self, size: int) -> float:
        """Return about how long one measurement of every order takes."""
        calls = self.calls[size]
        return sum((calls[name] * self._calls(size, name) for name in calls), 0.0)

    def _left(self, size: int, repeat: int, later: Sequence[int]) -> float:
        """Return about how many seconds the job will still take."""
        rounds: int = self.spec["repeats"]
        now = (rounds - repeat - 1) * self._round_s(size)
        then = sum(rounds * self._round_s(one) for one in later)
        return float(max(0.0, min(now + then, self.end - time.monotonic())))

    def _buffers(self, size: int) -> Buffers:
        return make_buffers(self.op, self.world.rank, self.world.size, size)

    def _write(self, **row: Any) -> None:
        if self.world.rank == 0:
            print(json.dumps(row), flush=True)


def serve(world: World) -> None:
    """Run the job that rank 0 reads from stdin."""
    spec = None if world.rank else json.loads(read_request(sys.stdin.buffer))
    spec = world.share(spec)
    hosts = world.gather(socket.gethostname())
    if world.rank == 0:
        print(json.dumps({"library": world.library, "hosts": hosts}), flush=True)
    TimedJob(world, spec).run()
    if world.rank == 0:
        print(json.dumps({"done": True}), flush=True)
