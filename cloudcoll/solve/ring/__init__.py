"""Rings on a matrix of pairs: the shortest one, or the one whose worst pair is best.

What a ring costs where only pairs were measured: the sum of its steps, or its
slowest one. The search is in C (``ring.c``, ``tour.c``) and works on whole numbers,
so that the same matrix, seed and steps give the same ring on every machine.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import time
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_double, c_int32, c_int64, c_uint64

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats, Ints
from cloudcoll.engine import library
from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.solve.ring.gates import bottleneck_bound, laid

PATCHED_HOSTS = 1024
"""Hosts up to which cycles are joined: some 0.3 s."""


def starts(times: Floats, first: int) -> list[Ints]:
    """Return rings that are cheap for what they take, from a matrix without NaN."""
    rings = [nearest(times, first)]
    if len(times) <= PATCHED_HOSTS and not np.array_equal(times, times.T):
        rings.append(patched(times))
    return rings


def patched(times: Floats) -> Ints:
    """Return the cheapest rings that hold each host once, joined into one.

    The assignment problem, whose cycles are joined, a small one first, where that
    costs least (Karp 1979): good where directions differ by much.
    """
    from scipy.optimize import linear_sum_assignment

    barred = times.copy()
    np.fill_diagonal(barred, np.inf)
    after: Ints = linear_sum_assignment(barred)[1]
    cycles = _cycles(after)
    while len(cycles) > 1:
        cycles.sort(key=len, reverse=True)
        one, rest = cycles.pop(), np.concatenate(cycles)
        # Leave `one` after i, enter it again before the successor of i.
        more = barred[one[:, None], after[rest]] + barred[rest[:, None], after[one]].T
        more -= barred[one, after[one]][:, None] + barred[rest, after[rest]]
        i, j = np.unravel_index(int(np.argmin(more)), more.shape)
        after[[one[i], rest[j]]] = after[[rest[j], one[i]]]
        cycles = _cycles(after)
    return cycles[0]


def _cycles(after: Ints) -> list[Ints]:
    """Return the cycles of a permutation."""
    left, cycles = set(range(len(after))), []
    while left:
        cycle = [min(left)]
        while (host := int(after[cycle[-1]])) != cycle[0]:
            cycle.append(host)
        left -= set(cycle)
        cycles.append(np.array(cycle))
    return cycles


def nearest(times: Floats, first: int) -> Ints:
    """Return the ring that goes on to the nearest host left, each time."""
    left, ring = np.zeros(len(times)), [first]
    for _ in range(len(times) - 1):
        left[ring[-1]] = math.inf
        ring.append(int(np.argmin(times[ring[-1]] + left)))
    return np.array(ring)


OBJECTIVES = ("sum", "bottleneck")

BITS = 60
"""Of the integers in which costs are counted, there and back: sums stay below 2**62."""

EXACT_HOSTS = 8
"""Hosts up to which every ring is tried: 7!, some 5 ms."""

NEVER = -1
"""As a goal: no ring costs so little."""

ANYWHERE = 2**63 - 1
"""As the worst cost: kicks go anywhere."""


class _RingRequest(Structure):
    """``ring_request`` of tour.h."""

    _fields_ = [
        *((name, c_int64) for name in ("hosts", "directed")),
        ("cost", POINTER(c_int64)),
        ("order", POINTER(c_int32)),
        ("steps", c_int64),
        ("seed", c_uint64),
        *((name, c_int64) for name in ("goal", "worst")),
        ("limit_s", c_double),
        *((name, c_int64) for name in ("length", "taken")),
    ]


def best_ring(
    seconds: npt.ArrayLike,
    *,
    objective: str = "sum",
    seed: int = 0,
    steps: int,
    start: Sequence[int] | Ints | None = None,
    limit_s: float = math.inf,
) -> Ints:
    """Return the best ring met, the first host of `start` in front.

    Parameters
    ----------
    seconds : array_like of float, shape (hosts, hosts)
        What it costs to send from one host (row) to another, at least 0; the
        diagonal does not matter. Where both directions are alike, rings are
        searched faster.
    objective : {"sum", "bottleneck"}
        The sum of the ring's pairs is to be small, or the slowest of them; of
        rings with the same slowest one the sum decides.
    seed : int
        The same matrix, start, seed and steps give the same ring everywhere.
    steps : int
        Kicks to try, some 20 us each for 1024 hosts.
    start : sequence of int, shape (hosts,), optional
        The ring to improve; the hosts as they are numbered by default. Nothing
        worse is returned, and this one where nothing better was found or the
        engine was not built.
    limit_s : float
        Seconds after which the search ends early.

    Raises
    ------
    UsageError
        A pair is NaN, infinite or negative.
    CloudcollError
        There is not enough memory.
    """
    times = _checked(seconds)
    begin = _ring_of(len(times), start)
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise ValueError(f"unknown objective {objective!r} (known: {known})")
    if not 0 <= steps < 2**63:
        raise ValueError(f"{steps} steps: 0 to 2**63 - 1 can be counted")
    judge = _total if objective == "sum" else _slowest
    found = _every(times, begin, objective)
    if found is None:
        engine = library()
        if engine is None or not times.any():
            return begin
        quick = min(begin, *starts(times, int(begin[0])), key=lambda r: judge(times, r))
        search = _Search(engine, times, seed, time.monotonic() + limit_s)
        look = search.shortest if objective == "sum" else search.evenest
        found = look(quick, steps)
    best = min(begin, found, key=lambda ring: judge(times, ring))
    return np.roll(best, -int(np.flatnonzero(best == begin[0])[0]))


def _pairs(times: Floats, ring: Ints) -> Floats:
    return times[ring, np.roll(ring, -1)]


def _total(times: Floats, ring: Ints) -> tuple[float, ...]:
    return (math.fsum(_pairs(times, ring)),)


def _slowest(times: Floats, ring: Ints) -> tuple[float, ...]:
    return float(_pairs(times, ring).max()), *_total(times, ring)


def _every(times: Floats, begin: Ints, objective: str) -> Ints | None:
    """Return the best of all rings, the first of equal ones; None: too many."""
    if len(begin) > EXACT_HOSTS:
        return None
    rests = list(itertools.permutations(begin[1:]))
    rings = np.hstack([np.full((len(rests), 1), begin[0]), np.array(rests, np.int64)])
    pairs = times[rings, np.roll(rings, -1, axis=1)]
    sums, worst = pairs.sum(axis=1), pairs.max(axis=1)
    keys = (sums,) if objective == "sum" else (sums, worst)
    return np.asarray(rings[np.lexsort(keys)[0]])


class _Search:
    """The searches of one matrix, until a moment of `time.monotonic`."""

    def __init__(
        self, engine: ctypes.CDLL, times: Floats, seed: int, until: float
    ) -> None:
        self._engine = engine
        self._engine.ring_search.argtypes = [POINTER(_RingRequest)]
        self._engine.ring_search.restype = ctypes.c_int
        self._times = times
        self._seed = seed
        self._until = until
        self._directed = not np.array_equal(times, times.T)
        self._bits = len(times).bit_length()

    def shortest(self, ring: Ints, steps: int) -> Ints:
        return self._run(self._scaled(BITS - self._bits), ring, steps)[0]

    def evenest(self, ring: Ints, steps: int) -> Ints:
        """Look for a ring without slow pairs, then for the shortest such ring.

        What is slow is tried where nothing can be better, then halfway between
        what failed and the slowest pair of the best ring so far.
        """
        budget, low, at = steps, 0, 0
        bound, worst = bottleneck_bound(self._times), _slowest(self._times, ring)[0]
        better = np.unique(self._times[(self._times >= bound) & (self._times < worst)])
        high = len(better)
        while low < high and steps > budget // 2:
            share = budget // (32 if low else 4)
            start = self._laid(better[at], ring)
            found, taken = self._without(better[at], start, max(share, 1))
            steps -= taken
            if _slowest(self._times, found)[0] > better[at]:
                low = at + 1
            ring = min(ring, found, key=lambda r: _slowest(self._times, r))
            high = int(np.searchsorted(better, _slowest(self._times, ring)[0]))
            at = (low + high) // 2
        worst = _slowest(self._times, ring)[0]
        return self._without(worst, ring, steps, stop=False)[0]

    def _laid(self, most: float, ring: Ints) -> Ints:
        """Return a ring of fewer pairs slower than `most` than the given one, or it."""
        other = laid(self._times, most, ring, self._seed)
        rings = [ring] if other is None else [ring, other]
        return min(rings, key=lambda r: int((_pairs(self._times, r) > most).sum()))

    def _scaled(self, bits: int) -> Ints:
        shift = bits - math.frexp(self._times.max())[1]
        return np.rint(np.ldexp(self._times, shift)).astype(np.int64)

    def _without(
        self, most: float, ring: Ints, steps: int, *, stop: bool = True
    ) -> tuple[Ints, int]:
        """Look for rings of pairs up to `most`; the first one is enough to `stop`."""
        bits = BITS - 1 - 2 * self._bits
        price = (len(ring) << bits) + 1
        costs = self._scaled(bits) + price * (self._times > most)
        goal, worst = (price - 1, price) if stop else (NEVER, ANYWHERE)
        return self._run(costs, ring, steps, goal, worst)

    def _run(
        self,
        costs: Ints,
        ring: Ints,
        steps: int,
        goal: int = NEVER,
        worst: int = ANYWHERE,
    ) -> tuple[Ints, int]:
        """Return the best ring of a search, and how many steps it took.

        Where directions differ, first as if they did not: rings that are turned
        in parts are found that way, and most of measured differences are noise.
        """
        one_way = self._directed
        if not one_way or int(costs[ring, np.roll(ring, -1)].sum()) <= goal:
            return self._walk(costs, ring, steps, goal, worst, one_way=one_way)
        there, taken = self._walk(costs + costs.T, ring, steps // 2)
        ends = ring, there, there[::-1]
        start = min(ends, key=lambda r: int(costs[r, np.roll(r, -1)].sum()))
        found, more = self._walk(costs, start, steps - taken, goal, worst, one_way=True)
        return found, taken + more

    def _walk(
        self,
        costs: Ints,
        ring: Ints,
        steps: int,
        goal: int = NEVER,
        worst: int = ANYWHERE,
        *,
        one_way: bool = False,
    ) -> tuple[Ints, int]:
        # Numbered along the ring: what is looked up together lies side by side.
        costs = np.ascontiguousarray(costs[np.ix_(ring, ring)])
        order = np.arange(len(ring), dtype=np.int32)
        request = _RingRequest(
            hosts=len(ring),
            directed=one_way,
            cost=costs.ctypes.data_as(POINTER(c_int64)),
            order=order.ctypes.data_as(POINTER(c_int32)),
            steps=steps,
            seed=self._seed % 2**64,
            goal=goal,
            worst=worst,
            limit_s=self._until - time.monotonic(),
        )
        if self._engine.ring_search(ctypes.byref(request)):
            raise CloudcollError(
                f"no memory to search rings of {len(ring)} hosts: "
                "solve on a larger machine"
            )
        return ring[order], int(request.taken)


def _checked(seconds: npt.ArrayLike) -> Floats:
    """Return the matrix with a diagonal of 0."""
    times = np.array(seconds, dtype=np.float64)
    if times.ndim != 2 or times.shape[0] != times.shape[1]:
        raise ValueError(f"not a square matrix: shape {times.shape}")
    np.fill_diagonal(times, 0.0)
    wrong = np.argwhere(~((times >= 0) & (times < math.inf)))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise UsageError(
            f"a ring needs a time for every pair, but row {row}, column {column} has "
            f"{times[row, column]:g} ({len(wrong)} such in all): probe these pairs, or "
            "fill them in from the fabric"
        )
    return times


def _ring_of(hosts: int, start: Sequence[int] | Ints | None) -> Ints:
    ring = np.array(range(hosts) if start is None else start, dtype=np.int64)
    if sorted(ring.tolist()) != list(range(hosts)):
        raise ValueError(f"not a ring of {hosts} hosts: {start}")
    return ring
