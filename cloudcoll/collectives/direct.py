"""Each rank with each other, or with its neighbours, without anyone in between."""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.steps import Flow, send


def alltoall(ranks: int, size: int) -> Flow:
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


def allgather(ranks: int, size: int) -> Flow:
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
