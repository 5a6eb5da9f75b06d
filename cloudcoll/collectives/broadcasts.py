"""Broadcasts: along trees, and by scattering first.

Defaults are Open MPI's where an algorithm is forced by its number alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import trees
from cloudcoll.collectives.doubling import doubling_gather
from cloudcoll.collectives.steps import Flow, Step, pipelined, send


def linear(ranks: int, size: int, root: int = 0) -> Flow:
    """Return Open MPI's broadcast 1: the root sends to all at once."""
    return trees.broadcast(trees.star(ranks), size, root)


def chain(
    ranks: int, size: int, root: int = 0, segment: int = 0, fanout: int = 4
) -> Flow:
    """Return Open MPI's broadcast 2: down several chains."""
    return trees.broadcast(trees.chains(ranks, fanout), size, root, segment)


def pipeline(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's broadcast 3: down one chain."""
    return trees.broadcast(trees.chains(ranks, 1), size, root, segment)


def split_binary_tree(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's broadcast 4: each half down one half of a binary tree.

    Then each position trades halves with its like in the other half of the
    tree, its neighbour; the last position of an even number gets the right
    half from the root. Halves of less than a segment go down a chain instead
    (``coll_base_bcast.c``, ``split_bintree``).
    """
    if segment > size / 2:
        return pipeline(ranks, size, root, segment)
    parent = trees.complete(ranks, 2)
    rank = (np.arange(ranks) + root) % ranks
    steps = [
        send(rank[parent[v]], rank[v], size / 2, 1 - v % 2)
        for v in trees.levels(parent)
    ]
    left = np.arange(1, ranks - 1, 2)
    right = left + 1
    src, dst = np.concatenate([left, right]), np.concatenate([right, left])
    trade = send(rank[src], rank[dst], size / 2, 1 - src % 2)
    last = [send(rank[0], rank[-1], size / 2, 1)] if ranks % 2 == 0 else []
    steps += [trade, *last]
    return Flow(pipelined(steps) if 0 < segment < size / 2 else steps, 2)


def binary_tree(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's broadcast 5: down a complete binary tree."""
    return trees.broadcast(trees.complete(ranks, 2), size, root, segment)


def binomial(ranks: int, size: int, root: int = 0, segment: int = 0) -> Flow:
    """Return Open MPI's broadcast 6: to all children of a binomial tree at once."""
    return trees.broadcast(trees.binomial(ranks), size, root, segment)


def knomial(
    ranks: int, size: int, root: int = 0, segment: int = 0, radix: int = 4
) -> Flow:
    """Return Open MPI's broadcast 7: down a k-nomial tree."""
    return trees.broadcast(trees.knomial(ranks, radix), size, root, segment)


def scatter_allgather(ranks: int, size: int, root: int = 0) -> Flow:
    """Return binomial scatter and recursive doubling allgather.

    Open MPI's broadcast 8 and MPICH's scatter_recursive_doubling_allgather
    (van de Geijn).
    """
    block = size / ranks
    rank = (np.arange(ranks) + root) % ranks
    steps = [*scatter(ranks, block, root), *doubling_gather(rank, block)]
    return Flow(steps, ranks)


def scatter_allgather_ring(ranks: int, size: int, root: int = 0) -> Flow:
    """Return binomial scatter and ring allgather.

    Open MPI's broadcast 9 and MPICH's scatter_ring_allgather.
    """
    block = size / ranks
    place = np.arange(ranks)
    src, dst = (place + root) % ranks, (place + root + 1) % ranks
    ring = send(src, dst, block, place, shift=-1, repeat=ranks - 1)
    return Flow([*scatter(ranks, block, root), ring], ranks)


def scatter(ranks: int, block: float, root: int) -> list[Step]:
    """Return the scatter down an in-order binomial tree, one child at a time.

    Block b belongs to position b, counted from the root; the last block may be
    smaller by what does not divide, which is not counted.
    """
    steps = []
    for bit in reversed(range((ranks - 1).bit_length())):
        half = 1 << bit
        src = np.arange(0, ranks - half, 2 * half)
        count = np.minimum(half, ranks - half - src)
        dst = (src + half + root) % ranks
        steps.append(send((src + root) % ranks, dst, block, src + half, count))
    return steps


def mpich_binomial(ranks: int, size: int, root: int = 0) -> Flow:
    """Return MPICH's binomial broadcast: one child after the other, farthest first.

    ``bcast_intra_binomial.c``.
    """
    steps = []
    for bit in reversed(range((ranks - 1).bit_length())):
        src = np.arange(0, ranks - (1 << bit), 2 << bit)
        dst = (src + (1 << bit) + root) % ranks
        steps.append(send((src + root) % ranks, dst, size))
    return Flow(steps)


def mpich_tree(
    shape: Callable[[int, int], Ints],
    ranks: int,
    size: int,
    root: int = 0,
    segment: int = 0,
    radix: int = 2,
) -> Flow:
    """Return MPICH's tree broadcast (in segments: pipelined_tree), of any type."""
    return trees.broadcast(shape(ranks, radix), size, root, segment)
