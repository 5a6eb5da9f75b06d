"""LightGBM's schedules, and its own choice between them.

Read in LightGBM 4.6 (2026-03): ``src/network/network.cpp`` and
``linker_topo.cpp``. Nothing can be forced: size and N decide. Where blocks get
unequal numbers of features they are taken as equal.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives import bruck, doubling, ring
from cloudcoll.collectives.halving import far_first
from cloudcoll.collectives.steps import Flow, power_of_two_below, send

RING_FROM = 10 << 20
"""Bytes of the whole vector from which rings are taken (``kRingThreshold``)."""
RING_BELOW = 64
"""Ranks below which an allgather may be a ring (``kRingNodeThreshold``)."""
GATHER_BELOW = 4096
"""Bytes below which an allreduce gathers all vectors."""


def allreduce(ranks: int, size: int) -> Flow:
    """Return LightGBM's allreduce: reduce-scatter and allgather.

    Less than 4096 bytes are gathered whole. So are fewer elements than ranks,
    of which nothing is known here.
    """
    if size < GATHER_BELOW:
        return Flow(allgather(ranks, size * ranks).steps, ranks)
    scattered, gathered = reduce_scatter(ranks, size), allgather(ranks, size)
    return Flow([*scattered.steps, *gathered.steps], ranks)


def reduce_scatter(ranks: int, size: int) -> Flow:
    """Return LightGBM's choice: halving, or a ring of 10 MiB and more.

    Powers of two always halve.
    """
    power_of_two = ranks & (ranks - 1) == 0
    if power_of_two or size < RING_FROM:
        return halving(ranks, size)
    return ring.reduce_scatter(ranks, size)


def allgather(ranks: int, size: int) -> Flow:
    """Return LightGBM's choice: a ring above 10 MiB on less than 64 ranks.

    Else recursive doubling of a power of two, and Bruck's of any other N.
    """
    if size > RING_FROM and ranks < RING_BELOW:
        return ring.allgather(ranks, size)
    if ranks & (ranks - 1) == 0:
        return Flow(doubling.doubling_gather(np.arange(ranks), size / ranks), ranks)
    return bruck.allgather(ranks, size)


def halving(ranks: int, size: int) -> Flow:
    """Return the reduce-scatter at distance p'/2, p'/4, ..., 1.

    So half of all bytes take the *farthest* way. Where N is not a power of two
    pairs are made *from the end*: the right one sends all to the left one, and
    gets its block from it at last (``ReduceScatterRecursiveHalving``).
    """
    half, block = power_of_two_below(ranks), size / ranks
    right = ranks - 1 - 2 * np.arange(ranks - half)
    leader = np.setdiff1d(np.arange(ranks), right)
    # A leader has the blocks from its own to the next leader's.
    edge = np.append(leader, ranks)
    fold = send(right, right - 1, block, 0, ranks, reduces=True)
    unfold = send(right - 1, right, block, right)
    return Flow([fold, *far_first(leader, edge, block), unfold], ranks)
