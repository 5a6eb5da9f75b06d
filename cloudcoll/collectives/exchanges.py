"""Exchanges between all ranks: allgathers, all-to-alls, a reduce-scatter, barriers.

And messages to neighbours alone, as a pipeline sends them. Directly, each rank with
each other or with its neighbours; or by Bruck's hops, in about log N steps for any N
(Bruck, Ho, Kipnis, Upfal and Weathersby 1997). A barrier's messages have no content:
after it each rank knows of all others.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import ring, trees
from cloudcoll.collectives.steps import Flow, Step, send
from cloudcoll.libraries.question import power_of_two


def linear_alltoall(ranks: int, size: int) -> Flow:
    """Return the alltoall in which all messages start at once.

    Open MPI's linear and, but for how many are under way at a time,
    linear_sync; MPICH's scattered.
    """
    src, way = others(ranks)
    step = send(src, (src + way) % ranks, size / ranks, src * ranks + way)
    return Flow([step], ranks**2)


def pairwise_alltoall(ranks: int, size: int) -> Flow:
    """Return the alltoall that sends to r + s and gets from r - s in step s.

    Open MPI's pairwise, any N; MPICH's where N is not a power of two.
    """
    src = np.arange(ranks)
    steps = [
        send(src, (src + way) % ranks, size / ranks, src * ranks + way)
        for way in range(1, ranks)
    ]
    return Flow(steps, ranks**2)


def mpich_pairwise_alltoall(ranks: int, size: int) -> Flow:
    """Return MPICH's pairwise alltoall: with r xor s where N is a power of two.

    Else as `pairwise_alltoall` (``alltoall_intra_pairwise.c``).
    """
    if ranks & (ranks - 1):
        return pairwise_alltoall(ranks, size)
    src = np.arange(ranks)
    steps = []
    for mask in range(1, ranks):
        way = ((src ^ mask) - src) % ranks
        steps.append(send(src, src ^ mask, size / ranks, src * ranks + way))
    return Flow(steps, ranks**2)


def pairwise_reduce_scatter(ranks: int, size: int) -> Flow:
    """Return MPICH's pairwise reduce-scatter: r gives r + s its block in step s.

    ``reduce_scatter_intra_pairwise.c``.
    """
    src = np.arange(ranks)
    steps = []
    for way in range(1, ranks):
        dst = (src + way) % ranks
        steps.append(send(src, dst, size / ranks, dst, reduces=True))
    return Flow(steps, ranks)


def linear_allgather(ranks: int, size: int) -> Flow:
    """Return the allgather in which each sends its block to all (Open MPI 6, 8)."""
    src, way = others(ranks)
    return Flow([send(src, (src + way) % ranks, size / ranks, src)], ranks)


def others(ranks: int) -> tuple[Ints, Ints]:
    """Return each rank once for every other one, and the distance up to that one."""
    way = np.arange(1, ranks)
    return np.repeat(np.arange(ranks), ranks - 1), np.tile(way, ranks)


def forward(ranks: int, size: int) -> Flow:
    """Return rank r sending the whole vector to r + 1: activations."""
    src = np.arange(ranks - 1)
    return Flow([send(src, src + 1, size, src)], ranks)


def backward(ranks: int, size: int) -> Flow:
    """Return rank r sending the whole vector to r - 1: gradients."""
    src = np.arange(1, ranks)
    return Flow([send(src, src - 1, size, src)], ranks)


def both(ranks: int, size: int) -> Flow:
    """Return both at once: a pipeline that goes forward and backward in turn.

    Narayanan et al. (2021), 2.2: one micro-batch forward, one backward.
    """
    low = np.arange(ranks - 1)
    src, dst = np.concatenate([[low, low + 1], [low + 1, low]], axis=1)
    return Flow([send(src, dst, size, src)], ranks)


def bruck_allgather(ranks: int, size: int, radix: int = 2) -> Flow:
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


def bruck_alltoall(ranks: int, size: int, radix: int = 2) -> Flow:
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


def linear_barrier(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 1: all to rank 0, and back."""
    return _up_and_down(trees.star(ranks))


def double_ring_barrier(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 2: twice round, one rank after the other."""
    src = np.tile(np.arange(ranks), 2)
    return Flow([_tell(r, (r + 1) % ranks) for r in src])


def recursive_doubling_barrier(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 3: with r xor 1, 2, 4, ... below a power of two.

    Ranks from there on tell the one that far below, and hear from it at the
    end (``coll_base_barrier.c``, ``recursivedoubling``).
    """
    half = power_of_two(ranks)
    above, place = np.arange(half, ranks), np.arange(half)
    steps = [_tell(above, above - half)]
    steps += [_tell(place, place ^ (1 << bit)) for bit in range(half.bit_length() - 1)]
    return Flow([*steps, _tell(above - half, above)])


def bruck_barrier(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 4: dissemination, to r + 1, r + 2, r + 4, ..."""
    return dissemination_barrier(ranks, size)


def dissemination_barrier(ranks: int, size: int, radix: int = 2) -> Flow:
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


def tree_barrier(ranks: int, size: int) -> Flow:
    """Return Open MPI's barrier 6: up and down the in-order binomial tree."""
    return _up_and_down(trees.in_order_binomial(ranks))


def _up_and_down(parent: Ints) -> Flow:
    levels = trees.levels(parent)
    up = [_tell(level, parent[level]) for level in reversed(levels)]
    return Flow([*up, *(_tell(parent[level], level) for level in levels)])


def _tell(src: Ints | int, dst: Ints | int) -> Step:
    return send(src, dst, 0, reduces=True)
