"""Rabenseifner's algorithm: halving reduce-scatter, doubling allgather."""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.steps import Flow, Step, power_of_two_below, send


def rabenseifner(ranks: int, size: int) -> Flow:
    """Return Open MPI's Rabenseifner allreduce (algorithm 6).

    Step i trades size / 2^(i + 1) bytes with v xor 2^i, and the allgather goes
    the same way back, so half of all bytes stay inside pairs of neighbours.
    Where N is not a power of two the first 2 rem ranks fold in halves and the
    *even* one takes part (``coll_base_allreduce.c``, ``redscat_allgather``;
    Rabenseifner 2004). MPICH keeps the odd one.
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    blocks = max(half, 2)
    block = size / blocks
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even, np.arange(2 * rem, ranks)])
    steps = [
        *fold_in_halves(rem, block, blocks),
        *halving(taking_part, blocks, block),
        *doubling(taking_part, blocks, block),
        send(even, even + 1, block, 0, blocks),
    ]
    return Flow(steps, blocks)


def mpich_rabenseifner(ranks: int, size: int) -> Flow:
    """Return MPICH's reduce_scatter_allgather allreduce.

    As `rabenseifner`, but of the first 2 rem ranks the even ones send all they
    have to the *odd* ones, which take part
    (``allreduce_intra_reduce_scatter_allgather.c``).
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    block = size / half
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    steps = [
        send(even, even + 1, block, 0, half, reduces=True),
        *halving(taking_part, half, block),
        *doubling(taking_part, half, block),
        send(even + 1, even, block, 0, half),
    ]
    return Flow(steps, half)


def fold_in_halves(rem: int, block: float, blocks: int) -> list[Step]:
    """Return how each even rank below 2 rem gets the sum of its and the next one's.

    They trade halves, and the odd one sends its half of the sum back.

    Parameters
    ----------
    rem : int
        Ranks by which N exceeds a power of two.
    block : float
        Bytes of a block.
    blocks : int
        Of the vector.
    """
    even, middle = np.arange(0, 2 * rem, 2), blocks // 2
    pairs = np.concatenate([even, even + 1])
    halves = np.repeat([middle, 0], rem)
    return [
        send(pairs, pairs ^ 1, block, halves, middle, reduces=True),
        send(even + 1, even, block, middle, middle),
    ]


def halving(ranks: Ints, blocks: int, block: float) -> list[Step]:
    """Return the reduce-scatter in which v trades half its window with v xor 2^i.

    Parameters
    ----------
    ranks : ndarray of int64
        The rank at each position v; a power of two of them.
    blocks : int
        Of the vector; a multiple of their number.
    block : float
        Bytes of a block.
    """
    place = np.arange(len(ranks))
    steps = []
    for bit in range(len(ranks).bit_length() - 1):
        partner = place ^ (1 << bit)
        # What the partner keeps of the window that both still have.
        first, count = window(partner, bit + 1, blocks)
        steps.append(send(ranks, ranks[partner], block, first, count, reduces=True))
    return steps


def doubling(ranks: Ints, blocks: int, block: float) -> list[Step]:
    """Return the allgather that takes `halving`'s way back."""
    place = np.arange(len(ranks))
    steps = []
    for bit in reversed(range(len(ranks).bit_length() - 1)):
        first, count = window(place, bit + 1, blocks)
        steps.append(send(ranks, ranks[place ^ (1 << bit)], block, first, count))
    return steps


def window(place: Ints, halvings: int, blocks: int) -> tuple[Ints, int]:
    """Return first block and number of blocks left to a position.

    Each halving keeps the upper half where that bit of the position is set,
    lowest bit first.
    """
    first = np.zeros_like(place)
    for bit in range(halvings):
        blocks //= 2
        first += blocks * ((place >> bit) & 1)
    return first, blocks
