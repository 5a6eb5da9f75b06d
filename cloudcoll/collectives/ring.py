"""Rings: every rank sends to a neighbour, one way, both ways, or over rows and columns.

Blocks that differ by one element are taken as equal.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from cloudcoll.collectives.steps import Flow, Step, pipelined, send
from cloudcoll.errors import UsageError


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


def bidirectional_reduce_scatter(ranks: int, size: int) -> Flow:
    """Return UCC's ring reduce-scatter: half of each block either way round.

    UCC 1.10 (2026-08) ``tl/ucp/reduce_scatter/reduce_scatter_ring.c`` with
    ``REDUCE_SCATTER_RING_BIDIRECTIONAL=y``, its default.
    """
    src, half = np.arange(ranks), size / ranks / 2
    steps = [
        send(
            src,
            (src + way) % ranks,
            half,
            2 * (src - way) + (way < 0),
            shift=-2 * way,
            repeat=ranks - 1,
            reduces=True,
        )
        for way in (1, -1)
    ]
    return Flow(pipelined(steps), 2 * ranks)


def torus(ranks: int, size: int, columns: int = 0) -> Flow:
    """Return the two-level ring allreduce on rows of neighbouring ranks.

    Reduce-scatter in the rows, allreduce of each part in its column, allgather in the
    rows; rank r is in row r // columns (Mikami et al. 2018). Without `columns` the grid
    is the most square one; N has to divide by them.
    """
    columns = _columns(ranks, columns)
    rank, column = np.arange(ranks), np.arange(ranks) % columns
    right = rank - column + (column + 1) % columns
    below = (rank + columns) % ranks
    block, rows = size / ranks, ranks // columns
    # Part c of a row is blocks c, c + columns, ...: one for each row.
    part = np.arange(rows) * columns
    along = partial(
        send, rank, right, block, count=rows, offsets=part, shift=-1, repeat=columns - 1
    )
    across = partial(send, rank, below, block, shift=-columns, repeat=rows - 1)
    steps = [
        along(column - 1, reduces=True),
        across(rank, reduces=True),
        across(rank + columns),
        along(column),
    ]
    return Flow([step for step in steps if step.repeat], ranks)


def _columns(ranks: int, columns: int) -> int:
    if columns == 0:
        rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
        return ranks // rows
    if ranks % columns:
        raise UsageError(
            f"{ranks} ranks are no rows of {columns}: columns must divide them"
        )
    return columns
