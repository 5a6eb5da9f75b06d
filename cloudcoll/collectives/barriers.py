"""Barriers: messages without content, after which each rank knows of all others."""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import trees
from cloudcoll.collectives.steps import Flow, Step, send
from cloudcoll.libraries.question import power_of_two


def linear(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 1: all to rank 0, and back."""
    return _up_and_down(trees.star(ranks))


def double_ring(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 2: twice round, one rank after the other."""
    src = np.tile(np.arange(ranks), 2)
    return Flow([_tell(r, (r + 1) % ranks) for r in src])


def recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 3: with r xor 1, 2, 4, ... below a power of two.

    Ranks from there on tell the one that far below, and hear from it at the
    end (``coll_base_barrier.c``, ``recursivedoubling``).
    """
    half = power_of_two(ranks)
    above, place = np.arange(half, ranks), np.arange(half)
    steps = [_tell(above, above - half)]
    steps += [_tell(place, place ^ (1 << bit)) for bit in range(half.bit_length() - 1)]
    return Flow([*steps, _tell(above - half, above)])


def bruck(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 4: dissemination, to r + 1, r + 2, r + 4, ..."""
    return dissemination(ranks, size)


def dissemination(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return the dissemination barrier of radix k: to r + j k^i, j < k.

    Hensgen, Finkel and Manber 1988; MPICH ``barrier_intra_k_dissemination.c``.
    """
    src = np.arange(ranks)
    steps, distance = [], 1
    while distance < ranks:
        hops = np.arange(distance, min(ranks, radix * distance), distance)
        sender = np.repeat(src, len(hops))
        steps.append(_tell(sender, (sender + np.tile(hops, ranks)) % ranks))
        distance *= radix
    return Flow(steps)


def tree(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 6: up and down the in-order binomial tree."""
    return _up_and_down(trees.in_order_binomial(ranks))


def _up_and_down(parent: Ints) -> Flow:
    levels = trees.levels(parent)
    up = [_tell(level, parent[level]) for level in reversed(levels)]
    return Flow([*up, *(_tell(parent[level], level) for level in levels)])


def _tell(src: Ints | int, dst: Ints | int) -> Step:
    return send(src, dst, 0, reduces=True)
