"""Bruck's algorithms: all to all in about log N steps, for any N.

Bruck, Ho, Kipnis, Upfal and Weathersby 1997.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives import ring
from cloudcoll.collectives.steps import Flow, send


def allgather(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return Bruck's allgather: everything so far to r - 1, r - 2, r - 4, ...

    With radix k to r - j k^i, j = 1 to k - 1, in step i; the last step carries
    only what is missing (Open MPI ``coll_base_allgather.c``, ``bruck``,
    ``k_bruck``; MPICH ``allgather_intra_brucks.c``, ``allgather_intra_k_brucks.c``).
    """
    src = np.arange(ranks)
    steps, distance = [], 1
    while distance < ranks:
        hops = np.arange(distance, min(ranks, radix * distance), distance)
        count = np.minimum(distance, ranks - hops)
        sender, hop = np.repeat(src, len(hops)), np.tile(hops, ranks)
        receiver = (sender - hop) % ranks
        many = np.tile(count, ranks)
        steps.append(send(sender, receiver, size / ranks, sender, many))
        distance *= radix
    return Flow(steps, ranks)


def alltoall(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return Bruck's alltoall: step i moves blocks by digit i of their distance.

    Rank r sends to r + j k^i all blocks whose distance to go has digit j at
    place i of radix k, about a k-th of all (Open MPI ``coll_base_alltoall.c``,
    ``bruck``, k = 2; MPICH ``alltoall_intra_brucks.c``, ``alltoall_intra_k_brucks.c``).
    """
    src, way = np.arange(ranks), np.arange(ranks)
    steps, distance = [], 1
    while distance < ranks:
        # A block with so far to go has come as far as the lower digits say.
        home = way - way % distance * ranks
        for digit in range(1, radix):
            chosen = home[way // distance % radix == digit]
            dst = (src + digit * distance) % ranks
            steps.append(
                send(src, dst, size / ranks, src * ranks, len(chosen), offsets=chosen)
            )
        distance *= radix
    return Flow(steps, ranks**2)


def neighbor_exchange(ranks: int, size: int) -> Flow:
    """Return Open MPI's neighbour exchange (algorithm 5); of odd N, the ring.

    Pairs (2 k, 2 k + 1) trade a block, then all trade the two blocks they got
    last with the other neighbour and this one in turn: N / 2 steps
    (``coll_base_allgather.c``, ``neighborexchange``; Chen, Zhang, Zhang and
    Yuan 2005).
    """
    if ranks % 2:
        return ring.allgather(ranks, size)
    src = np.arange(ranks)
    sign = 1 - 2 * (src % 2)
    block = size / ranks
    steps = [send(src, src + sign, block, src)]
    # Two blocks from an even one on: the pair's own at first.
    came = {0: src - src % 2, 1: src - src % 2}
    last = came[0]
    for turn in range(1, ranks // 2):
        other = turn % 2
        towards = -sign if other else sign
        steps.append(send(src, (src + towards) % ranks, block, last, 2))
        came[other] = last = (came[other] + 2 * towards) % ranks
    return Flow(steps, ranks)


def sparbit(ranks: int, size: int) -> Flow:
    """Return Open MPI's Sparbit allgather (algorithm 7, since 5.0).

    Distances halve and data doubles, so that the most data goes to the nearest
    rank; blocks lie apart and travel as messages of their own, counted
    together here (``coll_base_allgather.c``, ``sparbit``; Loch and Koslovski
    2021).
    """
    src = np.arange(ranks)
    steps, held = [], 1
    distance = 1 << ((ranks - 1).bit_length() - 1)
    zeros = (ranks & -ranks).bit_length() - 1
    skipping = (~(ranks >> zeros) | 1) << zeros
    while distance:
        skips = distance & skipping == distance
        offsets = -2 * distance * np.arange(held - skips)
        dst = (src + distance) % ranks
        steps.append(send(src, dst, size / ranks, src, len(offsets), offsets=offsets))
        held = 2 * held - skips
        distance //= 2
    return Flow(steps, ranks)
