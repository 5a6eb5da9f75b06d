"""Choose among the last few orders: by replaying their messages, and on every fabric.

The best of them are polished: hosts trade places one pair at a time while that pays.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import Structure, c_double, c_int64
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.collectives.workload import Workload
from cloudcoll.engine import Doubles, Int32s, library, pointer
from cloudcoll.errors import CloudcollError
from cloudcoll.model.contention import (
    Replay,
    contended_seconds,
    replay_of,
    replayed_work,
)
from cloudcoll.model.cost import Cost, CostModel
from cloudcoll.network.tree import Fabric
from cloudcoll.solve.constraints import LEAST_GAIN, RuledProblem
from cloudcoll.solve.rules import Rules


class _Replay(Structure):
    """``replay`` of replay.h."""

    _fields_ = [
        *((name, c_int64) for name in ("messages", "ranks", "links", "width")),
        *((n, Int32s) for n in ("rank", "phase", "path", "first", "mine")),
        *((n, Doubles) for n in ("capacity", "size", "weight", "delay", "least")),
        ("lead", c_int64),
        *((name, c_double) for name in ("limit_s", "seconds")),
    ]


def replayed_seconds(
    engine: ctypes.CDLL, replay: Replay, limit_s: float = math.inf
) -> float:
    """Return the seconds until the last message ends, after those that lead.

    After `limit_s` of these it stops, and the answer is ``inf``.
    """
    links, member = replay.links, replay.links.member
    out, into = member[:, replay.host[0]], member[:, replay.host[1]]
    ways = np.concatenate([out, into + len(links.up)])
    whole: dict[str, npt.NDArray[np.integer[Any]]] = {
        "rank": replay.rank.T,
        "phase": replay.phase,
        "path": np.where(np.tile(out != into, (2, 1)), ways, -1).T,
        **_by_rank(replay.rank, replay.ranks),
    }
    real = {
        "capacity": np.concatenate([links.up, links.down]),
        "size": replay.size,
        "weight": replay.weight,
        "delay": replay.delay,
        "least": replay.least,
    }
    arrays: dict[str, npt.NDArray[Any]] = {
        **{name: np.ascontiguousarray(a, np.int32) for name, a in whole.items()},
        **{name: np.ascontiguousarray(a, np.float64) for name, a in real.items()},
    }
    request = _Replay(
        messages=len(replay.size),
        ranks=replay.ranks,
        links=2 * len(links.up),
        width=2 * len(member),
        lead=replay.lead,
        limit_s=limit_s,
        **{name: pointer(array) for name, array in arrays.items()},
    )
    if engine.replay_run(ctypes.byref(request)):
        raise CloudcollError(
            f"no memory to replay {len(replay.size)} messages: "
            "solve on a larger machine"
        )
    return float(request.seconds)


def _by_rank(rank: Ints, ranks: int) -> dict[str, Ints]:
    """Return where the messages of each rank begin in a list, and the list.

    A rank's are ascending.
    """
    ends, message = rank.ravel(), np.tile(np.arange(rank.shape[1]), 2)
    order = np.lexsort((message, ends))
    first = np.searchsorted(ends[order], np.arange(ranks + 1))
    return {"first": first, "mine": message[order]}


BLOCK = 16
"""Longest block that is moved."""

DRAWS = 8
"""Moves drawn for each order that is timed: most lose by the cost model already."""

PATIENCE = 2
"""Orders for each host that may be timed in a row without a gain."""


def polished(
    order: Ints,
    taken: float,
    rules: Rules,
    *,
    tries: int,
    seed: int,
    allowed: Callable[[Ints], bool],
    seconds: Callable[[Ints, float], float],
) -> tuple[Ints, float]:
    """Return an order at least as fast, after moves each for the better, and its time.

    Two blocks change places, or hosts between two places move up by one. Of the same
    inputs the answer is the same.

    Parameters
    ----------
    order : ndarray of int64, shape (hosts,)
        Obeys the rules.
    taken : float
        What it takes, as `seconds` says.
    tries : int
        Orders to time, at most.
    allowed : callable
        Whether an order may be taken at all; quick.
    seconds : callable
        What an order takes, or ``inf`` if that is more than the second argument.
    """
    generator = np.random.default_rng(seed)
    best, fastest = order, taken
    idle, patience = 0, PATIENCE * rules.hosts
    for _ in range(tries * DRAWS if len(rules.movable) > 1 else 0):
        moved = _moved(best, rules.movable, generator)
        if not (rules.allows(moved) and allowed(moved)):
            continue
        taken, idle, tries = seconds(moved, fastest), idle + 1, tries - 1
        if taken < fastest:
            best, fastest, idle = moved, taken, 0
        if not tries or idle == patience:
            break
    return best, fastest


def _moved(order: Ints, movable: Ints, generator: np.random.Generator) -> Ints:
    """Return an order after one move."""
    low, high = np.sort(generator.choice(len(movable), 2, replace=False)).tolist()
    kind, longest = generator.integers(3), min(BLOCK, high - low, len(movable) - high)
    length = 1 if kind == 0 else int(generator.integers(1, longest, endpoint=True))
    here, there = movable[low : low + length], movable[high : high + length]
    moved = order.copy()
    if kind < 2:
        moved[here], moved[there] = order[there], order[here]
    else:
        between = movable[low : high + 1]
        moved[between] = np.roll(order[between], 1 if generator.integers(2) else -1)
    return moved


NEAR_PIPELINED = 0.05
"""`LEAST_GAIN` where steps overlap: what the replay of a pipeline is off by in the
median under SimGrid (benchmarks/simgrid/check.py)."""

ALIKE = 1e-3
"""Share of its time by which an order may be slower than another and be as good. Round
trips that differ by a tenth of a microsecond would decide else, and a rack be parted
for that whose link then is full twice over."""

FEW = 8
"""Orders of the search that are replayed, the best by the cost model."""

WORK = 40_000_000
"""`replayed_work` of all replays: some 40 orders of 256 hosts, half a second of one
core. Where that is one finalist, the cost model alone decides."""

PLAIN_WORK = 200_000
"""The same without the engine: some 2 s."""

FEWEST = 4
"""Orders that are replayed even where each takes twice `WORK`: 0.1 s each of 1024
hosts."""

OF_A_HOST = 8
"""Orders for each host that are tried next to the best, at most: 40 ms of 16 hosts."""

POLISHED = 4
"""Finalists next to which better orders are looked for; which of them leads to the
best is not known beforehand."""


def settle(
    model: CostModel,
    starts: Mapping[str, Ints],
    met: Sequence[Ints],
    rules: Rules,
    seed: int,
) -> tuple[str, Ints]:
    """Return the order to take, and the start that it is, or ``search``.

    A finalist is no slower than any start by the cost model, but for the starts
    themselves where a workload is sent: it is done over and over, which the cost model
    cannot tell. The first is the first start that is as good as all that was met, else
    what loads links least of those orders met that are as good as the best, but for
    `ALIKE`. Then come the other starts, and what else was met, as many as there is time
    to replay. A later one wins only by being faster as flows than every one before it,
    by `LEAST_GAIN` or `NEAR_PIPELINED`. What is found next to the best has to win in
    the same way.

    Parameters
    ----------
    starts : mapping of str to ndarray of int64, shape (hosts,)
        By name, at least one; the one to keep where nothing is gained comes first.
    met : sequence of ndarray of int64, shape (hosts,)
        What the search came to; at least one is no worse than any start.
    rules : Rules
        That all of them obey.
    """
    finalists, limit = _finalists(model, starts, met)
    flat, tries = model.flat(), _affordable(model)
    share = NEAR_PIPELINED if flat.phases < len(flat.phase) else LEAST_GAIN
    if tries < 2:
        return finalists[0]
    finalists = finalists[:tries]
    flows = _Flows(model)
    taken = [flows.seconds(order) for _, order in finalists]
    best = 0
    for i, seconds_of in enumerate(taken):
        if seconds_of < taken[best] * (1 - share):
            best = i
    tries = min(tries - len(finalists), OF_A_HOST * rules.hosts) // POLISHED
    polish = partial(
        polished,
        rules=rules,
        tries=tries,
        seed=seed,
        allowed=lambda order: model.seconds(order) <= limit,
        seconds=flows.seconds,
    )
    fastest = np.argsort(taken, kind="stable")[:POLISHED]
    # One after the other: replays are too short to share the interpreter.
    near, least_near = min(
        (polish(finalists[i][1], taken[i]) for i in fastest),
        key=lambda found: found[1],
    )
    return (
        ("search", near) if least_near < taken[best] * (1 - share) else finalists[best]
    )


def _finalists(
    model: CostModel, starts: Mapping[str, Ints], met: Sequence[Ints]
) -> tuple[list[tuple[str, Ints]], float]:
    """Return the orders to choose from, by name, and the most seconds of any other."""
    seconds = {name: model.seconds(order) for name, order in starts.items()}
    limit = min(seconds.values()) * (1 + 1e-9)
    costs = [model.cost(order) for order in met]
    fastest = min(costs)[0]
    slowest = fastest * (1 + ALIKE)

    def rank(place: int) -> Cost:
        taken, spread = costs[place]
        return max(taken, slowest), spread

    found = [met[place] for place in sorted(range(len(met)), key=rank)]
    most = min(slowest, max(limit, fastest * (1 + 1e-9)))
    again_and_again = isinstance(model.schedule, Workload)
    as_good = [(n, o) for n, o in starts.items() if seconds[n] <= most]
    others = [
        (name, order)
        for name, order in starts.items()
        if most < seconds[name] and (again_and_again or seconds[name] <= limit)
    ]
    named = [("search", order) for order in _unlike(found, limit, model)]
    return [*as_good, *named[:1], *others, *named[1:]], limit


def gain_as_flows(given: Ints, order: Ints, model: CostModel) -> float:
    """Return the share of its time that an order saves over the one given, as flows.

    0.0 where replays take too long: the cost model alone decides then.
    """
    if _affordable(model) < 2:
        return 0.0
    flows = _Flows(model)
    kept = flows.seconds(given)
    return 1 - flows.seconds(order) / kept if kept > 0 else 0.0


class _Flows:
    """How long orders take as flows, by the engine where it was built."""

    def __init__(self, model: CostModel) -> None:
        self._model, self._engine = model, library()

    def seconds(self, order: Ints, limit_s: float = np.inf) -> float:
        """Return `contended_seconds`, or ``inf`` if that is above a limit."""
        if self._engine is None:
            return contended_seconds(self._model, order)
        return replayed_seconds(self._engine, replay_of(self._model, order), limit_s)


def _affordable(model: CostModel) -> int:
    """Return how many orders there is time to replay."""
    each = max(1, replayed_work(model))
    work = PLAIN_WORK if library() is None else WORK
    return max(work // each, FEWEST if each <= 2 * work else 0)


def _unlike(found: Sequence[Ints], limit: float, model: CostModel) -> list[Ints]:
    """Return the first `FEW` orders that differ and are within a limit of seconds."""
    orders = {tuple(order.tolist()): order for order in found}
    within = [o for o in list(orders.values())[:FEW] if model.seconds(o) <= limit]
    return [np.asarray(order) for order in within]


RISK = 0.05
"""How likely an order may be slower than the one given."""

SAME = 1e-6
"""A time longer than another by this share is as long: rounding."""

SEARCHED = 3
"""Alternatives that an order is sought for, the likeliest: each takes a search."""

MOVING = 30_000_000
"""Messages to count while unsure hosts are moved: about a second."""

START = 1500
"""Messages that take as long to count as it takes to begin: some 50 us."""


def hedged(
    problems: Sequence[RuledProblem],
    shares: Sequence[float],
    answer: tuple[str, Ints],
    others: Sequence[Ints | None],
) -> tuple[str, Ints]:
    """Return the order to take where the fabric may be one of several.

    That is the one with the least expected time of those that are slower than the
    order given in at most `RISK` of the fabrics, by how likely these are.

    Parameters
    ----------
    problems : sequence of RuledProblem
        The likeliest first; orders have to obey its rules.
    shares : sequence of float
        How likely each is.
    answer : (str, ndarray of int64)
        Name and order that is best for the first.
    others : sequence of ndarray or None
        What is best for each of the other problems, where that is known.

    Returns
    -------
    tuple of str and ndarray of int64
        As `answer`, by position in the first problem's fabric.
    """
    first = problems[0]
    candidates = [answer, *first.starts.items()]
    for problem, order in zip(problems[1:], others, strict=True):
        if order is not None:
            names = np.array(problem.fabric.hosts)[order]
            moved = first.positions(names.tolist())
            if first.rules.allows(moved):
                candidates.append(("search", moved))
    expected = _Expected(problems, shares, first.starts["given"])
    seconds = [expected(order) for _, order in candidates]
    start = candidates[int(np.argmin(seconds))][1]
    candidates.append(("search", _unsure_moved(start, problems, expected)))
    seconds.append(expected(candidates[-1][1]))
    best = int(np.argmin(seconds))
    if seconds[0] <= seconds[best] * (1 + LEAST_GAIN):
        best = 0
    return candidates[best]


class _Expected:
    """What an order should take, over all fabrics; ``inf`` where the risk is too high.

    Parameters
    ----------
    problems, shares
        As of `hedged`.
    given : ndarray of int64
        The order that others are not to be slower than.
    """

    def __init__(
        self, problems: Sequence[RuledProblem], shares: Sequence[float], given: Ints
    ) -> None:
        self._problems, self._shares = problems, np.array(shares)
        self._names = np.array(problems[0].fabric.hosts)
        self._limit = self._seconds(given) * (1 + SAME)

    def __call__(self, order: Ints) -> float:
        """Return seconds of an order, by position in the first problem's fabric."""
        seconds = self._seconds(order)
        risk = (seconds > self._limit) @ self._shares
        return float(seconds @ self._shares) if risk <= RISK else math.inf

    def _seconds(self, order: Ints) -> Floats:
        names = self._names[order].tolist()
        return np.array([problem.seconds(names) for problem in self._problems])


def _unsure_moved(
    order: Ints, problems: Sequence[RuledProblem], expected: _Expected
) -> Ints:
    """Return an order with its unsure hosts moved to where they should cost least.

    Such as on the border of two groups, for a host that may be of either.
    """
    first = problems[0]
    best, last = expected(order), order
    unsure = _unsure_hosts([problem.fabric for problem in problems])
    each = len(problems) * (START + len(first.model.flat().src))
    for _ in range(MOVING // (each * max(1, len(unsure) * len(order)))):
        for host in unsure:
            rest = order[order != host]
            for place in range(len(order)):
                moved = np.insert(rest, place, host)
                if not first.rules.allows(moved):
                    continue
                if (seconds := expected(moved)) < best * (1 - SAME):
                    best, order = seconds, moved
        if order is last:
            break
        last = order
    return order


def _unsure_hosts(fabrics: Sequence[Fabric]) -> list[int]:
    """Return hosts that have mostly other company in some fabric than in the first."""
    names = fabrics[0].hosts
    usual, *others = (_company(fabric, names) for fabric in fabrics)
    unsure = np.zeros(len(names), dtype=bool)
    for company in others:
        unsure |= 2 * (usual & company).sum(axis=1) < (usual | company).sum(axis=1)
    return np.flatnonzero(unsure).tolist()


def _company(fabric: Fabric, names: Sequence[str]) -> Bools:
    """Return which hosts are of one group, shape (hosts, hosts)."""
    rack = fabric.racks()[[fabric.position(name) for name in names]]
    same: Bools = rack[:, None] == rack
    return same
