"""NCCL's double binary tree: who is whose parent, over nodes and inside them.

Read in NCCL 2.30 (2026-06): ``src/graph/trees.cc`` (``ncclGetBtree``,
``ncclGetDtree``) and ``src/graph/connect.cc`` (``connectTrees``); Sanders,
Speck and Traeff, *Two-tree algorithms for full bandwidth broadcast,
reduction and scan*, 2009.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.steps import Ints


def binary_tree(nodes: int) -> Ints:
    """Return each node's parent in NCCL's binary tree; the root, 0, is its own.

    A node's lowest set bit is its height: xx01 and xx11 hang on xx10, odd
    nodes are leaves. Where the parent does not exist, the bit is cleared
    instead of raised.

    Parameters
    ----------
    nodes : int
        At least 1.

    Returns
    -------
    ndarray of int64, shape (nodes,)
    """
    node = np.arange(nodes)
    lowest = node & -node
    cleared = node ^ lowest
    raised = cleared | (lowest << 1)
    return np.where(raised < nodes, raised, cleared)


def double_tree(ranks: int, local: int = 1) -> Ints:
    """Return each rank's parent in both trees; the roots are their own.

    The second tree is the first mirrored (an even number of nodes) or moved on
    by one (odd), so that nobody but one node of an odd number is inner in
    both. Inside a node a chain hangs on its first rank; a node's first child
    (the one below it in tree order) hangs on its second rank, to spread the
    traffic ("balanced tree", what NCCL takes before compute capability 9).

    Parameters
    ----------
    ranks, local : int
        World size, and ranks on each node; rank r is on node r // local.

    Returns
    -------
    ndarray of int64, shape (2, ranks)
    """
    nodes = -(-ranks // local)
    position, up = np.arange(nodes), binary_tree(nodes)
    # Where the node at each position of the first tree stands in the second.
    second = (position + 1) % nodes if nodes % 2 else position[::-1]
    chain = np.maximum(np.arange(ranks) - 1, 0)
    trees = np.stack([chain, chain])
    for tree, place in zip(trees, (position, second), strict=True):
        parent = place[up] * local
        # A node of one rank has no second one to leave its first child to.
        balanced = (position < up) & (local > 1) & (parent + 1 < ranks)
        tree[place * local] = parent + balanced
    return trees
