"""Test whether a host, an uplink or a direction stands out beyond chance.

What was measured of one is compared with what was measured of its peers.
Nothing is assumed of the noise but that it is the same for all: neither TCP's
stalls nor queues follow a law, and a threshold on a fitted figure is crossed by
somebody as soon as there are many of them. It takes repeats: one measurement is
never beyond chance.
"""

from __future__ import annotations

import math

import numpy as np

from cloudcoll.arrays import Floats

FALSE_ALARMS = 0.005
"""Chance that any of those who are compared stands out although all are alike: of
all hosts, late or slow, 1 % together."""

LET_GO = 10
"""One in so many measurements of who stands out may be as good as any: a rate is
read too high now and then."""


def beyond_chance(mine: Floats, others: Floats, tests: int) -> bool:
    """Return whether all of `mine` are lower than chance explains.

    Parameters
    ----------
    mine, others : ndarray of float64
        Measurements of one, and of all its peers.
    tests : int
        Comparisons made together, which share `FALSE_ALARMS` (Bonferroni).
    """
    return all_low(mine, others) * tests < FALSE_ALARMS


def all_low(mine: Floats, others: Floats) -> float:
    """Return how likely chance makes all of `mine` as low as they are.

    The precedence test (Nelson 1963), exact for any distribution: how many of
    the others are above the highest of mine, but for one in `LET_GO` of these.
    What is slow is slow in its best moments, too: a slow card in its best
    transfers, a late host in its shortest round trips. A healthy one has
    some that are as good as those of its peers, however many stalled.
    """
    if not len(mine):
        return 1.0
    let_go = len(mine) // LET_GO
    above = let_go + int((others > best(mine)).sum())
    # Of the highest of all, `above` in number, at most `let_go` are mine.
    ways = _ways(len(mine) + len(others), above)
    likely = sum(
        math.exp(_ways(len(mine), own) + _ways(len(others), above - own) - ways)
        for own in range(min(let_go, above) + 1)
    )
    return min(likely, 1.0)


def best(values: Floats) -> float:
    """Return the highest value but for one in `LET_GO`."""
    return float(np.sort(values)[-1 - len(values) // LET_GO])


def _ways(count: int, taken: int) -> float:
    """Return the logarithm of the number of ways to take some of `count`."""
    if taken > count:
        return -math.inf
    return (
        math.lgamma(count + 1) - math.lgamma(taken + 1) - math.lgamma(count - taken + 1)
    )
