"""A short search by what flows take, which the cost model does not see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cloudcoll.model.cost import Ints
from cloudcoll.solve.rules import Rules

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
    rules : Rules
    tries : int
        Orders to time, at most.
    seed : int
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
