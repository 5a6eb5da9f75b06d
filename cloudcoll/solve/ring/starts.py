"""Rings to begin a search with."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

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
