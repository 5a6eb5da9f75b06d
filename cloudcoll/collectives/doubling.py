"""Recursive doubling: ranks trade all they have at distances of 1, 2, 4 and so on."""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import bruck
from cloudcoll.collectives.steps import Flow, Step, power_of_two_below, send


def doubling_gather(ranks: Ints, block: float) -> list[Step]:
    """Return the allgather in which v trades all it has with v xor 1, 2, 4, ...

    A position without a partner gets the partner's part from those in its own
    half that had one, who pass it on by halving (Open MPI 5.0
    ``coll_base_bcast.c``, ``scatter_allgather``; MPICH
    ``allgather_intra_recursive_doubling.c``).

    Parameters
    ----------
    ranks : ndarray of int64
        The rank at each position; position v has block v.
    block : float
        Bytes of a block.
    """
    number = len(ranks)
    place = np.arange(number)
    steps = []
    for bit in range((number - 1).bit_length()):
        half = 1 << bit
        src = place[(place ^ half) < number]
        first = src & -half
        count = np.minimum(half, number - first)
        steps.append(send(ranks[src], ranks[src ^ half], block, first, count))
        for giver, getter in hand_down(number, half):
            rest = number & -(2 * half) | half
            ends = ranks[giver], ranks[getter]
            steps.append(send(*ends, block, rest, number - rest))
    return steps


def hand_down(number: int, half: int) -> list[tuple[Ints, Ints]]:
    """Return who passes data on to ranks without a partner in an incomplete tree.

    Trees of 2 `half` positions trade between halves; only the last one can
    lack positions in its upper half. Those below that had a partner pass it on.

    Parameters
    ----------
    number : int
        Of positions.
    half : int
        A power of two.

    Returns
    -------
    list of (ndarray, ndarray)
        Positions that send and get, hop by hop; none if nobody lacks a partner.
    """
    tree = number & -(2 * half)
    partners = number - tree - half
    if not 0 < partners < half:
        return []
    hops = []
    place = np.arange(tree, tree + half)
    hop = half // 2
    while hop:
        edge = (place & -(2 * hop)) + partners
        giver = place[(place & hop == 0) & (place < edge) & (place + hop >= edge)]
        hops.append((giver, giver + hop))
        hop //= 2
    return hops


def mpich_allgather(ranks: int, size: int) -> Flow:
    """Return MPICH's recursive doubling allgather, for any N.

    ``allgather_intra_recursive_doubling.c``.
    """
    return Flow(doubling_gather(np.arange(ranks), size / ranks), ranks)


def open_mpi_allgather(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling allgather (algorithm 3).

    Only of a power of two: of any other N it takes Bruck's instead
    (``coll_base_allgather.c``, ``recursivedoubling``).
    """
    if ranks & (ranks - 1):
        return bruck.allgather(ranks, size)
    return mpich_allgather(ranks, size)


def recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling allreduce (algorithm 3).

    Where N is not a power of two, the first 2 rem ranks fold: each even one
    sends its vector to the odd one above and gets the result at the end; the
    odd one takes part (``coll_base_allreduce.c``, ``recursivedoubling``; MPICH
    ``allreduce_intra_recursive_doubling.c`` folds the same way).
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    place = np.arange(half)
    steps = [send(even, even + 1, size, reduces=True)]
    for bit in range(half.bit_length() - 1):
        partner = taking_part[place ^ (1 << bit)]
        steps.append(send(taking_part, partner, size, reduces=True))
    return Flow([*steps, send(even + 1, even, size)])
