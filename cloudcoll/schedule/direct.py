"""Each rank with each other, without anyone in between."""

from __future__ import annotations

import numpy as np

from cloudcoll.schedule.steps import Flow, Ints, send


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


def allgather(ranks: int, size: int) -> Flow:
    """Return the allgather in which each sends its block to all (Open MPI 6, 8)."""
    src, way = others(ranks)
    return Flow([send(src, (src + way) % ranks, size / ranks, src)], ranks)


def others(ranks: int) -> tuple[Ints, Ints]:
    """Return each rank once for each other one, and how far that is above it."""
    way = np.arange(1, ranks)
    return np.repeat(np.arange(ranks), ranks - 1), np.tile(way, ranks)
