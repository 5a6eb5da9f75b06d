"""Reduce-scatter by halving, distances falling or rising."""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.doubling import hand_down
from cloudcoll.collectives.rabenseifner import window
from cloudcoll.collectives.steps import Flow, Step, power_of_two_below, send


def recursive_halving(ranks: int, size: int) -> Flow:
    """Return the reduce-scatter at distance p'/2, p'/4, ..., 1.

    Where N is not a power of two, even ranks below 2 rem send all to the odd
    one above, and get their block from it (Open MPI's algorithm 2, of
    reduce_scatter_block 3; MPICH ``reduce_scatter_intra_recursive_halving.c``).
    """
    places, edge = _folded(ranks)
    block = size / ranks
    even = np.arange(0, 2 * (ranks - len(places)), 2)
    fold = send(even, even + 1, block, 0, ranks, reduces=True)
    unfold = send(even + 1, even, block, even)
    return Flow([fold, *far_first(places, edge, block), unfold], ranks)


def far_first(places: Ints, edge: Ints, block: float) -> list[Step]:
    """Return the reduce-scatter in which position v trades with v xor p'/2, ..., 1.

    Parameters
    ----------
    places : ndarray of int64
        The rank at each position; a power of two of them.
    edge : ndarray of int64, shape (positions + 1,)
        At which block each position's blocks begin, and the last one's end.
    block : float
        Bytes of a block.
    """
    place, distance = np.arange(len(places)), len(places) // 2
    steps = []
    while distance:
        partner = place ^ distance
        low = partner & -distance
        first, count = edge[low], edge[low + distance] - edge[low]
        steps.append(send(places, places[partner], block, first, count, reduces=True))
        distance //= 2
    return steps


def butterfly(ranks: int, size: int) -> Flow:
    """Return Open MPI's butterfly reduce-scatter (algorithm 4).

    Distances rise as halves fall, so that position v ends with the block of
    its bits in reverse and sends it there (``coll_base_reduce_scatter.c``;
    Traeff 2005).
    """
    places, edge = _folded(ranks)
    block, half = size / ranks, len(places)
    even = np.arange(0, 2 * (ranks - half), 2)
    place = np.arange(half)
    steps = [send(even, even + 1, block, 0, ranks, reduces=True)]
    bits = half.bit_length() - 1
    for bit in range(bits):
        partner = place ^ (1 << bit)
        low, width = window(partner, bit + 1, half)
        first, count = edge[low], edge[low + width] - edge[low]
        steps.append(send(places, places[partner], block, first, count, reduces=True))
    mirror, _ = window(place, bits, half)
    owner = places[mirror]
    folded = mirror < len(even)
    for_even = send(places[folded], owner[folded] - 1, block, owner[folded] - 1)
    moved = mirror != place
    own = send(places[moved], owner[moved], block, owner[moved])
    return Flow([*steps, for_even, own], ranks)


def butterfly_block(ranks: int, size: int) -> Flow:
    """Return Open MPI's butterfly of reduce_scatter_block (algorithm 4).

    Of a power of two, blocks are put in reverse order of bits before, and
    nothing has to be sent after.
    """
    half = power_of_two_below(ranks)
    if half < ranks:
        return butterfly(ranks, size)
    place = np.arange(ranks)
    steps = []
    for bit in range(ranks.bit_length() - 1):
        partner = place ^ (1 << bit)
        low = partner & ((2 << bit) - 1)
        offsets = np.arange(0, ranks, 2 << bit)
        steps.append(
            send(
                place,
                partner,
                size / ranks,
                low,
                len(offsets),
                offsets=offsets,
                reduces=True,
            )
        )
    return Flow(steps, ranks)


def block_recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling of reduce_scatter_block (algorithm 2).

    Rank r trades with r xor 2^i all blocks but those of its own 2^i ranks. What
    a rank without a partner misses is passed on to it as it came
    (``coll_base_reduce_scatter_block.c``, ``recursivedoubling``).
    """
    place, block = np.arange(ranks), size / ranks
    steps = []
    for bit in range((ranks - 1).bit_length()):
        half = 1 << bit
        src = place[place ^ half < ranks]
        end = np.minimum((src & -half) + half, ranks)
        count = ranks - end + (src & -half)
        steps.append(send(src, src ^ half, block, end, count, reduces=True))
        rest = ranks & -(2 * half) | half
        steps += [
            send(giver, getter, block, 0, rest, reduces=True, relays=True)
            for giver, getter in hand_down(ranks, half)
        ]
    return Flow(steps, ranks)


def _folded(ranks: int) -> tuple[Ints, Ints]:
    """Return the rank at each position, and at which block each position begins.

    The odd one of the first rem pairs stands for both.
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    place = np.arange(half + 1)
    edge = place + np.minimum(place, rem)
    return edge[:-1] + (place[:-1] < rem), edge
