"""Allreduces put together from other collectives."""

from __future__ import annotations

from cloudcoll.schedule import trees
from cloudcoll.schedule.steps import Flow


def basic_linear(ranks: int, size: int) -> Flow:
    """Return Open MPI's allreduce 1: all to rank 0, and back to all."""
    return trees.both_ways(trees.star(ranks), size)


def mpich_kary(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's tree allreduce, type kary (``allreduce_intra_tree.c``)."""
    return trees.both_ways(trees.kary(ranks, radix), size)


def mpich_knomial_1(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's tree allreduce, type knomial_1, its default."""
    return trees.both_ways(trees.range_knomial(ranks, radix), size)


def mpich_knomial_2(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's tree allreduce, type knomial_2."""
    return trees.both_ways(trees.knomial(ranks, radix), size)
