"""Trees: the whole vector along each edge, down for a broadcast, up for a reduce.

A shape is an array of parents over positions 0 to N - 1, whose root is its own
parent; position p is rank (p + root) % N. In segments, all levels of a tree are
busy at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.steps import Flow, pipelined, send


def star(ranks: int) -> Ints:
    """Return the shape in which everyone hangs on the root."""
    return np.zeros(ranks, dtype=np.int64)


def chains(ranks: int, fanout: int) -> Ints:
    """Return `fanout` chains on the root, the first ones longer by one at most.

    Open MPI ``coll_base_topo.c``, ``build_chain``; at most 32 chains.
    """
    parent = np.arange(-1, ranks - 1)
    for chain in np.array_split(np.arange(1, ranks), min(fanout, 32, ranks - 1)):
        parent[chain[0]] = 0
    parent[0] = 0
    return parent


def complete(ranks: int, fanout: int) -> Ints:
    """Return the complete tree with odd positions on the left if `fanout` is 2.

    Children of position v on a level of n positions are v + n, v + 2 n, ...
    (Open MPI ``coll_base_topo.c``, ``build_tree``).
    """
    parent = np.zeros(ranks, dtype=np.int64)
    above, start, width = 0, 1, fanout
    while start < ranks:
        level = np.arange(start, min(start + width, ranks))
        parent[level] = above + (level - start) % (width // fanout)
        above, start, width = start, start + width, width * fanout
    return parent


def binomial(ranks: int) -> Ints:
    """Return the binomial tree whose parents lack the *highest* set bit.

    Open MPI ``coll_base_topo.c``, ``build_bmtree``.
    """
    place = np.arange(ranks)
    _, bits = np.frexp(place)
    return np.where(place > 0, place - (1 << np.maximum(bits - 1, 0)), 0)


def in_order_binomial(ranks: int) -> Ints:
    """Return the binomial tree whose parents lack the *lowest* set bit.

    Open MPI ``coll_base_topo.c``, ``build_in_order_bmtree``; MPICH.
    """
    place = np.arange(ranks)
    return place & (place - 1)


def knomial(ranks: int, radix: int) -> Ints:
    """Return the tree whose parents lack the lowest digit that is not zero.

    Open MPI ``coll_base_topo.c``, ``build_kmtree``; radix 2 is
    `in_order_binomial`.
    """
    place = np.arange(ranks)
    parent, span = np.zeros_like(place), radix
    while span // radix < ranks:
        lower = place - place % span
        parent = np.where((parent == 0) & (lower < place), lower, parent)
        # A parent 0 that was found is 0 for every wider span too.
        span *= radix
    return parent


def kary(ranks: int, radix: int) -> Ints:
    """Return the complete tree in breadth-first order: 1 to k below 0, and so on.

    MPICH ``treeutil.c``, ``kary``.
    """
    place = np.arange(ranks)
    return np.maximum(place - 1, 0) // radix


def range_knomial(ranks: int, radix: int) -> Ints:
    """Return the k-nomial tree whose subtrees are ranges, largest first.

    MPICH ``treeutil.c``, ``knomial_1``; knomial_2 is `knomial`.
    """
    span = 1
    while span < ranks:
        span *= radix
    parent, inner = np.zeros(ranks, dtype=np.int64), np.zeros(1, dtype=np.int64)
    after = inner + 1
    while span > 1:
        span //= radix
        child = (after + span * np.arange(radix - 1)[:, None]).ravel()
        above = np.tile(inner, radix - 1)[child < ranks]
        after = after + span * (radix - 1)
        child = child[child < ranks]
        parent[child] = above
        inner, after = np.append(inner, child), np.append(after, child + 1)
    return parent


def in_order_binary(ranks: int) -> Ints:
    """Return the binary tree whose subtrees are ranges of ranks, root N - 1.

    Open MPI ``coll_base_topo.c``, ``build_in_order_bintree``.
    """
    parent = np.full(ranks, ranks - 1)
    pending = [(0, ranks)]
    while pending:
        low, high = pending.pop()
        middle = low + (high - low) // 2
        # The right child's subtree has the lower ranks; of two there is none.
        parts = [(low, middle), (middle, high - 1)]
        for start, end in parts if high - low > 2 else [(low, high - 1)]:
            if start < end:
                parent[end - 1] = high - 1
                pending.append((start, end))
    return parent


def levels(parent: Ints) -> list[Ints]:
    """Return the positions of each level below the root, highest first."""
    depth, above = (parent != np.arange(len(parent))).astype(np.int64), parent
    # Each turn doubles how far up `above` is, so that chains are quick too.
    while depth[above].any():
        depth, above = depth + depth[above], above[above]
    ordered = np.argsort(depth, kind="stable")
    return np.split(ordered, np.cumsum(np.bincount(depth))[:-1])[1:]


def broadcast(parent: Ints, size: float, root: int = 0, segment: int = 0) -> Flow:
    """Return the broadcast of `size` bytes down the tree of `parent`, shape (ranks,).

    Position 0 is the rank `root`. A `segment` of 0, or more than `size`, is the whole.
    """
    rank = (np.arange(len(parent)) + root) % len(parent)
    steps = [send(rank[parent[v]], rank[v], size) for v in levels(parent)]
    return Flow(pipelined(steps) if 0 < segment < size else steps)


def reduction(parent: Ints, size: float, root: int = 0, segment: int = 0) -> Flow:
    """Return the reduction up a tree; parameters as of `broadcast`."""
    rank = (np.arange(len(parent)) + root) % len(parent)
    steps = [
        send(rank[v], rank[parent[v]], size, reduces=True)
        for v in reversed(levels(parent))
    ]
    return Flow(pipelined(steps) if 0 < segment < size else steps)


def both_ways(parent: Ints, size: float) -> Flow:
    """Return the allreduce by a reduction to position 0 and a broadcast."""
    up, down = reduction(parent, size), broadcast(parent, size)
    return Flow([*up.steps, *down.steps])


MPICH = {"kary": kary, "knomial_1": range_knomial, "knomial_2": knomial}
"""Types of MPICH's trees, ``MPIR_CVAR_*_TREE_TYPE``."""


def mpich_allreduce(
    shape: Callable[[int, int], Ints], ranks: int, size: int, radix: int = 2
) -> Flow:
    """Return MPICH's tree allreduce, of any type (``allreduce_intra_tree.c``)."""
    return both_ways(shape(ranks, radix), size)
