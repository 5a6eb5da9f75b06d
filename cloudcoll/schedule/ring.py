"""Ring allreduce: reduce-scatter and allgather along one ring."""

from __future__ import annotations

import numpy as np

from cloudcoll.schedule.steps import Schedule, Step


def ring(ranks: int, size: int) -> Schedule:
    """Return Open MPI's ring allreduce (algorithm 4): rank r sends to r + 1.

    2 (N - 1) steps of size / N bytes, one neighbour (Open MPI 5.0
    ``coll_base_allreduce.c``, ``ring``; Patarasuk and Yuan 2009). Blocks that
    differ by one element are taken as equal.
    """
    steps: tuple[Step, ...] = ()
    if ranks > 1:
        src = np.arange(ranks)
        block = np.full(ranks, size / ranks)
        steps = (Step(src, (src + 1) % ranks, block, repeat=2 * (ranks - 1)),)
    return Schedule("allreduce", "ring", "Open MPI 5.0", ranks, size, steps)
