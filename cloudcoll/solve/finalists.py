"""The last word among a few orders: how long their messages take as flows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cloudcoll.contention import contended_seconds
from cloudcoll.cost import CostModel, Ints

NEAR = 1e-3
"""What a later finalist has to gain, as a share: below is what no model knows."""

FEW = 8
"""Orders of the search that are simulated, the best by the cost model."""

FLOWS = 4000
"""Messages of one call up to which that is done: some 10 ms for a good order, up to
0.4 s for a poor one, whose flows end one by one."""


def settle(
    model: CostModel, starts: Mapping[str, Ints], met: Sequence[Ints]
) -> tuple[str, Ints]:
    """Return the order to take, and the start that it is, or ``search``.

    A finalist is no slower than any start by the cost model. The first is the first
    start that is as good as all that was met, else the best that was met. Then come
    the other starts, and what else was met. A later one wins only by being faster as
    flows than every one before it, by `NEAR`.

    Parameters
    ----------
    model : CostModel
    starts : mapping of str to ndarray of int64, shape (hosts,)
        By name, at least one; the one to keep where nothing is gained comes first.
    met : sequence of ndarray of int64, shape (hosts,)
        What the search came to; at least one is no worse than any start.
    """
    seconds = {name: model.seconds(order) for name, order in starts.items()}
    found = sorted(met, key=model.cost)
    least = model.seconds(found[0]) * (1 + 1e-9)
    limit = min(seconds.values()) * (1 + 1e-9)
    as_good = [(n, o) for n, o in starts.items() if seconds[n] <= least]
    others = [(n, o) for n, o in starts.items() if least < seconds[n] <= limit]
    named = [("search", order) for order in _unlike(found, limit, model)]
    finalists = [*as_good, *named[:1], *others, *named[1:]]
    if len(finalists) == 1 or len(model.flat().src) > FLOWS:
        return finalists[0]
    flows = [contended_seconds(model, order) for _, order in finalists]
    best = 0
    for i, taken in enumerate(flows):
        if taken < flows[best] * (1 - NEAR):
            best = i
    return finalists[best]


def _unlike(found: Sequence[Ints], limit: float, model: CostModel) -> list[Ints]:
    """Return the first `FEW` orders that differ and are within a limit of seconds."""
    orders = {tuple(order.tolist()): order for order in found}
    within = [o for o in list(orders.values())[:FEW] if model.seconds(o) <= limit]
    return [np.asarray(order) for order in within]
