"""Which orders and sizes of a bench fit into its time, by what is predicted.

The answer that people came for is how the order given compares with CloudColl's at
the largest size: everything else is left out before that is measured too seldom.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cloudcoll.bench.orders import NamedOrder
from cloudcoll.bench.plan import Pace

SLACK = 1.3
"""Times longer than predicted that calls may take."""
START_S = 3.0
START_RANK_S = 0.02
"""Seconds from the launcher's start to the first call and after the last one, and what
each rank adds."""

Predicted = Mapping[str, Mapping[str, float]]
"""Seconds of a call by order, by bytes as text."""


@dataclass(frozen=True)
class Grid:
    """What is measured.

    Attributes
    ----------
    orders : tuple of NamedOrder
    sizes : tuple of int
        Bytes, ascending.
    """

    orders: tuple[NamedOrder, ...]
    sizes: tuple[int, ...]

    def seconds(self, predicted: Predicted, pace: Pace) -> float:
        """Return what `Pace.least` measurements of each take, with the warm-up."""

        def turn(size: int, least: float) -> float:
            known = predicted[str(size)]
            return sum(max(known[one.name] * SLACK, least) for one in self.orders)

        # One call each to connect, at the smallest size, and one to warm up.
        first = 2 * turn(self.sizes[0], 0.0)
        return first + pace.least * sum(turn(n, pace.min_seconds) for n in self.sizes)


def start_seconds(ranks: int) -> float:
    """Return what starting and ending a job takes beside its measurements."""
    return START_S + START_RANK_S * ranks


def fitted(whole: Grid, predicted: Predicted, pace: Pace, seconds: float) -> Grid:
    """Return the largest part of a grid that takes at most so many seconds.

    Random orders go first, the last of them before the others, then smaller sizes,
    then all orders but the one given and CloudColl's, then the largest sizes. One size
    stays in any case. Where nothing is predicted, all stays.
    """
    if not predicted:
        return whole
    parts = list(_parts(whole))
    fitting = (part for part in parts if part.seconds(predicted, pace) <= seconds)
    return next(fitting, parts[-1])


def _parts(whole: Grid) -> Iterator[Grid]:
    """Yield a grid, and less and less of it."""
    wanted = [one for one in whole.orders if _is_wanted(one)] or [whole.orders[0]]
    random = [one for one in whole.orders if _is_random(one) and one not in wanted]
    for left in range(len(random), -1, -1):
        kept = [one for one in whole.orders if one not in random[left:]]
        yield Grid(tuple(kept), whole.sizes)
    for first in range(1, len(whole.sizes)):
        yield Grid(tuple(kept), whole.sizes[first:])
    # Two orders take so much less that smaller sizes may fit again.
    for last in range(len(whole.sizes), 0, -1):
        for first in range(last):
            yield Grid(tuple(wanted), whole.sizes[first:last])


def _is_wanted(one: NamedOrder) -> bool:
    return not {"given", "cloudcoll"}.isdisjoint((one.name, *one.same_as))


def _is_random(one: NamedOrder) -> bool:
    return all(name.startswith("random-") for name in (one.name, *one.same_as))


def whole_seconds(whole: Grid, predicted: Predicted, pace: Pace, before: float) -> int:
    """Return how many seconds a bench of all of a grid would take, rounded up.

    Parameters
    ----------
    whole : Grid
    predicted : mapping
    pace : Pace
    before : float
        Seconds that everything but measurements takes.
    """
    return 10 * math.ceil((before + whole.seconds(predicted, pace)) / 10)
