"""Rings in more than one direction: both ways round, and over rows and columns."""

from __future__ import annotations

import math

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.schedule.steps import Flow, send


def bidirectional_reduce_scatter(ranks: int, size: int) -> Flow:
    """Return UCC's ring reduce-scatter: half of each block either way round.

    UCC 1.5 (2026-08) ``tl/ucp/reduce_scatter/reduce_scatter_ring.c`` with
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
    return Flow(steps, 2 * ranks, concurrent=True)


def torus(ranks: int, size: int, columns: int = 0) -> Flow:
    """Return the two-level ring allreduce on rows of neighbouring ranks.

    Reduce-scatter in the rows, allreduce of each part in its column, allgather
    in the rows; rank r is in row r // columns (Mikami et al. 2018).

    Parameters
    ----------
    ranks, size : int
        World size, and bytes of the vector.
    columns : int
        Ranks of a row; 0 for the most square grid.

    Raises
    ------
    UsageError
        N does not divide by `columns`.
    """
    columns = columns or _most_square(ranks)
    if ranks % columns:
        raise UsageError(
            f"{ranks} ranks are no rows of {columns}: columns must divide them"
        )
    rows, block = ranks // columns, size / ranks
    rank = np.arange(ranks)
    row, column = np.divmod(rank, columns)
    right = row * columns + (column + 1) % columns
    below = (rank + columns) % ranks
    # Part c of a row is blocks c, c + columns, ...: one for each row.
    part, turns = np.arange(rows) * columns, columns - 1
    steps = [
        send(
            rank,
            right,
            block,
            column - 1,
            rows,
            offsets=part,
            shift=-1,
            repeat=turns,
            reduces=True,
        ),
        send(rank, below, block, rank, shift=-columns, repeat=rows - 1, reduces=True),
        send(rank, below, block, rank + columns, shift=-columns, repeat=rows - 1),
        send(rank, right, block, column, rows, offsets=part, shift=-1, repeat=turns),
    ]
    return Flow([step for step in steps if step.repeat], ranks)


def _most_square(ranks: int) -> int:
    rows = next(n for n in range(math.isqrt(ranks), 0, -1) if ranks % n == 0)
    return ranks // rows
