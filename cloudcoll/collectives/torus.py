"""Rings in more than one direction: both ways round, and over rows and columns."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from cloudcoll.collectives.steps import Flow, pipelined, send
from cloudcoll.errors import UsageError


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
