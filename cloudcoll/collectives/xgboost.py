"""XGBoost's schedules over TCP.

Read in XGBoost 2.1, 3.2 and 3.4: ``src/collective``. Its ring allgather takes N
turns, not N - 1: in the last everyone gets back what it has. The last segment
also has what does not divide by N, which is not counted.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.broadcasts import mpich_binomial
from cloudcoll.collectives.steps import Flow, send


def ring(ranks: int, size: int) -> Flow:
    """Return the ring allreduce, r to r + 1 (``allreduce.cc``)."""
    src = np.arange(ranks)
    dst, block = (src + 1) % ranks, size / ranks
    turns = ranks - 1
    reduce_scatter = send(src, dst, block, src, shift=-1, repeat=turns, reduces=True)
    allgather = send(src, dst, block, src + 1, shift=-1, repeat=ranks)
    return Flow([reduce_scatter, allgather], ranks)


def gather(ranks: int, size: int) -> Flow:
    """Return the allreduce of fewer elements than ranks: all vectors go round."""
    return allgather(ranks, size * ranks)


def allgather(ranks: int, size: int) -> Flow:
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
