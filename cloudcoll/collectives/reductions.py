"""Reductions to one rank: along trees, and by halving first.

Defaults are Open MPI's where an algorithm is forced by its number alone.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import trees
from cloudcoll.collectives.doubling import fold_in_halves, halving, window
from cloudcoll.collectives.steps import Flow, Step, send
from cloudcoll.libraries.question import power_of_two


def linear(ranks: int, size: int, root: int = 0) -> Flow:
    """Return Open MPI's reduction 1: all send to the root."""
    return trees.reduction(trees.star(ranks), size, root)


def chain(
    ranks: int, size: int, root: int = 0, segment: int = 0, fanout: int = 4
) -> Flow:
    """Return Open MPI's reduction 2: up several chains."""
    return trees.reduction(trees.chains(ranks, fanout), size, root, segment)


def pipeline(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's reduction 3: up one chain."""
    return trees.reduction(trees.chains(ranks, 1), size, root, segment)


def binary(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's reduction 4: up a complete binary tree."""
    return trees.reduction(trees.complete(ranks, 2), size, root, segment)


def binomial(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's reduction 5: up the *in-order* binomial tree."""
    return trees.reduction(trees.in_order_binomial(ranks), size, root, segment)


def in_order_binary(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's reduction 6: up the in-order binary tree, then to the root.

    That tree's root is always rank N - 1 (``coll_base_reduce.c``).
    """
    flow = trees.reduction(trees.in_order_binary(ranks), size, segment=segment)
    if root == ranks - 1:
        return flow
    return flow._replace(steps=[*flow.steps, send(ranks - 1, root, size)])


def knomial(ranks: int, size: int, root: int = 0, radix: int = 4) -> Flow:
    """Return Open MPI's reduction 8: up a k-nomial tree, never in segments."""
    return trees.reduction(trees.knomial(ranks, radix), size, root)


def rabenseifner(ranks: int, size: int, root: int = 0) -> Flow:
    """Return Open MPI's reduction 7: halving reduce-scatter, binomial gather.

    Folds as the allreduce does, so that even ranks take part. An odd root below
    2 rem did not: it gets position 0's part and takes its place
    (``coll_base_reduce.c``, ``redscat_gather``).
    """
    half = power_of_two(ranks)
    blocks = max(half, 2)
    fold = fold_in_halves(ranks - half, size / blocks, blocks)
    return Flow([*fold, *_halve_and_gather(ranks, root, blocks, size)], blocks)


def mpich_rabenseifner(ranks: int, size: int, root: int = 0) -> Flow:
    """Return MPICH's reduce_scatter_gather reduction.

    As `rabenseifner`, but odd ranks below 2 rem send all they have to the even
    ones at first (``reduce_intra_reduce_scatter_gather.c``).
    """
    half = power_of_two(ranks)
    even = np.arange(0, 2 * (ranks - half), 2)
    fold = send(even + 1, even, size / half, 0, half, reduces=True)
    return Flow([fold, *_halve_and_gather(ranks, root, half, size)], half)


def _halve_and_gather(ranks: int, root: int, blocks: int, size: int) -> list[Step]:
    """Return what follows the fold into even ranks."""
    half = power_of_two(ranks)
    rem = ranks - half
    block = size / blocks
    taking_part = np.concatenate([np.arange(0, 2 * rem, 2), np.arange(2 * rem, ranks)])
    steps = halving(taking_part, blocks, block)
    place = root // 2 if root < 2 * rem else root - rem
    if root < 2 * rem and root % 2:
        steps.append(send(0, root, block, 0, blocks // half))
        taking_part[0], place = root, 0
    return steps + _gather(taking_part, place, blocks, block)


def _gather(ranks: Ints, root: int, blocks: int, block: float) -> list[Step]:
    """Return `halving`'s way back to one position: who is far sends to who is near."""
    place = np.arange(len(ranks))
    steps = []
    for bit in reversed(range(len(ranks).bit_length() - 1)):
        # Those that agree with the root in all higher bits, not in this one.
        src = place[(place ^ root) >> bit == 1]
        first, count = window(src, bit + 1, blocks)
        steps.append(send(ranks[src], ranks[src ^ (1 << bit)], block, first, count))
    return steps


def mpich_binomial(ranks: int, size: int, root: int = 0) -> Flow:
    """Return MPICH's binomial reduction: one child after the other, nearest first.

    ``reduce_intra_binomial.c``, commutative operations.
    """
    steps = []
    for bit in range((ranks - 1).bit_length()):
        dst = np.arange(0, ranks - (1 << bit), 2 << bit)
        src = (dst + (1 << bit) + root) % ranks
        steps.append(send(src, (dst + root) % ranks, size, reduces=True))
    return Flow(steps)
