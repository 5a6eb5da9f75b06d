"""Schedules of LightGBM and XGBoost, over TCP.

LightGBM's own choice between its schedules is here, too: nothing can be forced, size
and N decide (read in 4.6, 2026-03: ``src/network/network.cpp``, ``linker_topo.cpp``).
Where blocks get unequal numbers of features they are taken as equal.

XGBoost was read in 2.1, 3.2 and 3.4 (``src/collective``). Its ring allgather takes N
turns, not N - 1: in the last everyone gets back what it has. The last segment also has
what does not divide by N, which is not counted.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives import doubling, exchanges, ring
from cloudcoll.collectives.broadcasts import mpich_binomial
from cloudcoll.collectives.doubling import far_first
from cloudcoll.collectives.steps import Flow, send
from cloudcoll.libraries.question import power_of_two

RING_FROM = 10 << 20
"""Bytes of the whole vector from which LightGBM takes rings (``kRingThreshold``)."""
RING_BELOW = 64
"""Ranks below which an allgather may be a ring (``kRingNodeThreshold``)."""
GATHER_BELOW = 4096
"""Bytes below which an allreduce gathers all vectors."""


def lightgbm_allreduce(ranks: int, size: int) -> Flow:
    """Return LightGBM's allreduce: reduce-scatter and allgather.

    Less than 4096 bytes are gathered whole. So are fewer elements than ranks,
    of which nothing is known here.
    """
    if size < GATHER_BELOW:
        return Flow(lightgbm_allgather(ranks, size * ranks).steps, ranks)
    scattered, gathered = (
        lightgbm_reduce_scatter(ranks, size),
        lightgbm_allgather(ranks, size),
    )
    return Flow([*scattered.steps, *gathered.steps], ranks)


def lightgbm_reduce_scatter(ranks: int, size: int) -> Flow:
    """Return LightGBM's choice: halving, or a ring of 10 MiB and more.

    Powers of two always halve.
    """
    power_of_two = ranks & (ranks - 1) == 0
    if power_of_two or size < RING_FROM:
        return lightgbm_halving(ranks, size)
    return ring.reduce_scatter(ranks, size)


def lightgbm_allgather(ranks: int, size: int) -> Flow:
    """Return LightGBM's choice: a ring above 10 MiB on less than 64 ranks.

    Else recursive doubling of a power of two, and Bruck's of any other N.
    """
    if size > RING_FROM and ranks < RING_BELOW:
        return ring.allgather(ranks, size)
    if ranks & (ranks - 1) == 0:
        return Flow(doubling.doubling_gather(np.arange(ranks), size / ranks), ranks)
    return exchanges.bruck_allgather(ranks, size)


def lightgbm_halving(ranks: int, size: int) -> Flow:
    """Return the reduce-scatter at distance p'/2, p'/4, ..., 1.

    So half of all bytes take the *farthest* way. Where N is not a power of two
    pairs are made *from the end*: the right one sends all to the left one, and
    gets its block from it at last (``ReduceScatterRecursiveHalving``).
    """
    half, block = power_of_two(ranks), size / ranks
    right = ranks - 1 - 2 * np.arange(ranks - half)
    leader = np.setdiff1d(np.arange(ranks), right)
    # A leader has the blocks from its own to the next leader's.
    edge = np.append(leader, ranks)
    fold = send(right, right - 1, block, 0, ranks, reduces=True)
    unfold = send(right - 1, right, block, right)
    return Flow([fold, *far_first(leader, edge, block), unfold], ranks)


def xgboost_ring(ranks: int, size: int) -> Flow:
    """Return the ring allreduce, r to r + 1 (``allreduce.cc``)."""
    src = np.arange(ranks)
    dst, block = (src + 1) % ranks, size / ranks
    turns = ranks - 1
    reduce_scatter = send(src, dst, block, src, shift=-1, repeat=turns, reduces=True)
    allgather = send(src, dst, block, src + 1, shift=-1, repeat=ranks)
    return Flow([reduce_scatter, allgather], ranks)


def xgboost_gather(ranks: int, size: int) -> Flow:
    """Return the allreduce of fewer elements than ranks: all vectors go round."""
    return xgboost_allgather(ranks, size * ranks)


def xgboost_allgather(ranks: int, size: int) -> Flow:
    """Return the ring allgather, r to r + 1 (``allgather.cc``)."""
    src = np.arange(ranks)
    dst, block = (src + 1) % ranks, size / ranks
    return Flow([send(src, dst, block, src, shift=-1, repeat=ranks)], ranks)


def relayed_broadcast(ranks: int, size: int, root: int = 0) -> Flow:
    """Return the broadcast since 3.3: up the binomial tree to rank 0, then down.

    Until 3.2 the tree was rooted at the root: `broadcasts.mpich_binomial`
    (``broadcast.cc``).
    """
    steps = []
    while root:
        parent = root & (root - 1)
        steps.append(send(root, parent, size))
        root = parent
    return Flow([*steps, *mpich_binomial(ranks, size).steps])
