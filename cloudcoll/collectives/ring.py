"""Rings: every rank sends to one neighbour only.

Blocks that differ by one element are taken as equal.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.steps import Flow, Step, send


def ring(ranks: int, size: int) -> Flow:
    """Return Open MPI's ring allreduce (algorithm 4): rank r sends to r + 1.

    2 (N - 1) steps of size / N bytes (``coll_base_allreduce.c``, ``ring``;
    Patarasuk and Yuan 2009).
    """
    return segmented_ring(ranks, size)


def segmented_ring(ranks: int, size: int, segment: int = 0) -> Flow:
    """Return Open MPI's segmented ring allreduce (algorithm 5).

    The reduce-scatter goes round once for each segment of the blocks, the
    allgather once for whole blocks. A vector of less than N segments goes as in
    `ring` (``coll_base_allreduce.c``, ``ring_segmented``).
    """
    phases = max(_round_half_down(size, ranks * segment), 1) if segment else 1
    src = np.arange(ranks)
    dst, block = (src + 1) % ranks, size / ranks / phases
    steps: list[Step] = [
        send(
            src,
            dst,
            block,
            src * phases + phase,
            shift=-phases,
            repeat=ranks - 1,
            reduces=True,
        )
        for phase in range(phases)
    ]
    first = (src + 1) * phases
    around = send(src, dst, block, first, phases, shift=-phases, repeat=ranks - 1)
    return Flow([*steps, around], ranks * phases)


def _round_half_down(number: int, unit: int) -> int:
    whole, rest = divmod(number, unit)
    # Less than one is not rounded up: the library takes the plain ring then.
    return whole + (whole > 0 and rest > unit // 2)


def allgather(ranks: int, size: int) -> Flow:
    """Return the ring allgather: rank r sends to r + 1 what it got last.

    Open MPI's algorithm 4, MPICH's ring.
    """
    src = np.arange(ranks)
    dst, block = (src + 1) % ranks, size / ranks
    return Flow([send(src, dst, block, src, shift=-1, repeat=ranks - 1)], ranks)


def reduce_scatter(ranks: int, size: int) -> Flow:
    """Return Open MPI's ring reduce-scatter (algorithm 3).

    Rank r sends block r - 1 to r + 1 first, and ends with block r.
    """
    src = np.arange(ranks)
    dst, block, turns = (src + 1) % ranks, size / ranks, ranks - 1
    step = send(src, dst, block, src - 1, shift=-1, repeat=turns, reduces=True)
    return Flow([step], ranks)
