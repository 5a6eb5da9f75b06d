"""Rings: every rank sends to one neighbour only.

Blocks that differ by one element are taken as equal.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.schedule.steps import Flow, send


def ring(ranks: int, size: int) -> Flow:
    """Return Open MPI's ring allreduce (algorithm 4): rank r sends to r + 1.

    2 (N - 1) steps of size / N bytes (``coll_base_allreduce.c``, ``ring``;
    Patarasuk and Yuan 2009).
    """
    src = np.arange(ranks)
    dst, block, turns = (src + 1) % ranks, size / ranks, ranks - 1
    reduce_scatter = send(src, dst, block, src, shift=-1, repeat=turns, reduces=True)
    allgather = send(src, dst, block, src + 1, shift=-1, repeat=turns)
    return Flow([reduce_scatter, allgather], ranks)
