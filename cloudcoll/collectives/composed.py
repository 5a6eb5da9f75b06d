"""Collectives that Open MPI puts together from others.

Which ones it takes follows from its own rules for these; here they are
parameters, by the library's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm

import numpy as np

from cloudcoll.collectives import (
    barriers,
    broadcasts,
    bruck,
    direct,
    doubling,
    reductions,
    ring,
    trees,
)
from cloudcoll.collectives.steps import Flow, Step, refine, send

Build = Callable[..., Flow]

REDUCE: dict[int, Build] = {
    1: reductions.linear,
    2: reductions.chain,
    3: reductions.pipeline,
    4: reductions.binary,
    5: reductions.binomial,
    6: reductions.in_order_binary,
    7: reductions.rabenseifner,
    8: reductions.knomial,
}
"""Open MPI's reductions by ``coll_tuned_reduce_algorithm``."""

BCAST: dict[int, Build] = {
    1: broadcasts.linear,
    2: broadcasts.chain,
    3: broadcasts.pipeline,
    4: broadcasts.split_binary_tree,
    5: broadcasts.binary_tree,
    6: broadcasts.binomial,
    7: broadcasts.knomial,
    8: broadcasts.scatter_allgather,
    9: broadcasts.scatter_allgather_ring,
}
"""Open MPI's broadcasts by ``coll_tuned_bcast_algorithm``."""

BARRIER: dict[int, Build] = {
    1: barriers.linear,
    2: barriers.double_ring,
    3: barriers.recursive_doubling,
    4: barriers.bruck,
    5: barriers.recursive_doubling,
    6: barriers.tree,
}
"""Open MPI's barriers by ``coll_tuned_barrier_algorithm``; 5 is of two ranks."""


def basic_linear(ranks: int, size: int) -> Flow:
    """Return Open MPI's allreduce 1: all to rank 0, and back to all."""
    return trees.both_ways(trees.star(ranks), size)


def nonoverlapping(ranks: int, size: int, reduce: int = 5, bcast: int = 6) -> Flow:
    """Return Open MPI's allreduce 2: a reduction to rank 0, then a broadcast."""
    return _then(REDUCE[reduce](ranks, size), BCAST[bcast](ranks, size))


def allgather_reduce(ranks: int, size: int, allgather: int = 3) -> Flow:
    """Return Open MPI's allreduce 7: everyone gets and adds up all vectors."""
    return ALLGATHER[allgather](ranks, size * ranks)


def gather_bcast(ranks: int, size: int, gather: int = 1, bcast: int = 6) -> Flow:
    """Return Open MPI's allgather 1: a gather to rank 0, then a broadcast.

    Of the gathers, 2 is binomial, 1 and 3 are linear.
    """
    block, src = size / ranks, np.arange(1, ranks)
    steps = [send(src, 0, block, src)]
    if gather == 2:
        steps = [
            _turned(step) for step in reversed(broadcasts.scatter(ranks, block, 0))
        ]
    return _then(Flow(steps, ranks), BCAST[bcast](ranks, size))


def reduce_scatterv(ranks: int, size: int, reduce: int = 5) -> Flow:
    """Return Open MPI's reduce_scatter 1: a reduction, then a linear scatter."""
    return reduce_scatter_block(ranks, size, reduce)


def reduce_scatter_block(
    ranks: int, size: int, reduce: int = 5, scatter: int = 1
) -> Flow:
    """Return Open MPI's reduce_scatter_block 1: a reduction, then a scatter.

    Of the scatters, 2 is binomial, 1 and 3 are linear.
    """
    block, dst = size / ranks, np.arange(1, ranks)
    steps = [send(0, dst, block, dst)]
    if scatter == 2:
        steps = broadcasts.scatter(ranks, block, 0)
    return _then(REDUCE[reduce](ranks, size), Flow(steps, ranks))


ALLGATHER: dict[int, Build] = {
    1: gather_bcast,
    2: bruck.allgather,
    3: doubling.open_mpi_allgather,
    4: ring.allgather,
    5: bruck.neighbor_exchange,
    6: direct.allgather,
    7: bruck.sparbit,
    8: direct.allgather,
}
"""Open MPI's allgathers by ``coll_tuned_allgather_algorithm``; 6 is of two ranks."""


def _turned(step: Step) -> Step:
    return Step(step.dst, step.src, step.size, cargo=step.cargo)


def _then(first: Flow, second: Flow) -> Flow:
    """Return one flow after another, over blocks that both can be cut into."""
    blocks = lcm(first.blocks, second.blocks)
    first, second = refine(first, blocks), refine(second, blocks)
    return Flow([*first.steps, *second.steps], blocks)
