"""The last word among a few orders: how long their messages take as flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from cloudcoll.collectives.workload import Workload
from cloudcoll.engine import library
from cloudcoll.model.contention import contended_seconds, replay_of, replayed_messages
from cloudcoll.model.cost import CostModel, Ints
from cloudcoll.solve.polish import polished
from cloudcoll.solve.replay import replayed_seconds
from cloudcoll.solve.rules import Rules

NEAR = 1e-3
"""What a later finalist has to gain, as a share: below is what no model knows."""

NEAR_PIPELINED = 0.05
"""The same where steps overlap: what the replay of a pipeline is off by in the median
under SimGrid (benchmarks/simgrid/check.py)."""

FEW = 8
"""Orders of the search that are replayed, the best by the cost model."""

WORK = 40_000_000
"""Messages times ranks that all replays may have: some 40 orders of 256 hosts, half a
second of one core. Where that is one finalist, the cost model alone decides."""

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
    the best that was met. Then come the other starts, and what else was met, as many as
    there is time to replay. A later one wins only by being faster as flows than every
    one before it, by `NEAR` or `NEAR_PIPELINED`. What is found next to the best has to
    win in the same way.

    Parameters
    ----------
    model : CostModel
    starts : mapping of str to ndarray of int64, shape (hosts,)
        By name, at least one; the one to keep where nothing is gained comes first.
    met : sequence of ndarray of int64, shape (hosts,)
        What the search came to; at least one is no worse than any start.
    rules : Rules
        That all of them obey.
    seed : int
    """
    finalists, limit = _finalists(model, starts, met)
    flat, tries = model.flat(), _affordable(model)
    share = NEAR_PIPELINED if flat.phases < len(flat.phase) else NEAR
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
    found = sorted(met, key=model.cost)
    least = model.seconds(found[0]) * (1 + 1e-9)
    limit = min(seconds.values()) * (1 + 1e-9)
    again_and_again = isinstance(model.schedule, Workload)
    as_good = [(n, o) for n, o in starts.items() if seconds[n] <= least]
    others = [
        (name, order)
        for name, order in starts.items()
        if least < seconds[name] and (again_and_again or seconds[name] <= limit)
    ]
    named = [("search", order) for order in _unlike(found, limit, model)]
    return [*as_good, *named[:1], *others, *named[1:]], limit


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
    each = max(1, replayed_messages(model) * model.schedule.ranks)
    work = PLAIN_WORK if library() is None else WORK
    return max(work // each, FEWEST if each <= 2 * work else 0)


def _unlike(found: Sequence[Ints], limit: float, model: CostModel) -> list[Ints]:
    """Return the first `FEW` orders that differ and are within a limit of seconds."""
    orders = {tuple(order.tolist()): order for order in found}
    within = [o for o in list(orders.values())[:FEW] if model.seconds(o) <= limit]
    return [np.asarray(order) for order in within]
