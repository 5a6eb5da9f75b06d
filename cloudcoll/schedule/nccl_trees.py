"""NCCL's double binary tree: who is whose parent, over nodes and inside them.

Read in NCCL 2.30 (2026-06): ``src/graph/trees.cc`` (``ncclGetBtree``,
``ncclGetDtree``) and ``src/graph/connect.cc`` (``connectTrees``); Sanders,
Speck and Traeff, *Two-tree algorithms for full bandwidth broadcast,
reduction and scan*, 2009.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def binary_tree(nodes: int) -> Ints:
    """Return each node's parent in NCCL's binary tree, -1 for the root, node 0.

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
    parent = np.where(raised < nodes, raised, cleared)
    parent[0] = -1
    return parent


def double_tree(nodes: int, gpus: int = 1) -> Ints:
    """Return each rank's parent in both trees, -1 for their roots.

    The second tree is the first mirrored (an even number of nodes) or moved on
    by one (odd), so that nobody but one node of an odd number is inner in
    both. Inside a node a chain hangs on its first rank; a node's first child
    (the one below it in tree order) hangs on its second rank, to spread the
    traffic ("balanced tree", the default before compute capability 9).

    Parameters
    ----------
    nodes, gpus : int
        Nodes, and ranks on each; rank r is on node r // gpus.

    Returns
    -------
    ndarray of int64, shape (2, nodes * gpus)
    """
    position = np.arange(nodes)
    up = binary_tree(nodes)
    # Where the node at each position of the first tree stands in the second.
    second = (position + 1) % nodes if nodes % 2 else position[::-1]
    # A lone rank has no neighbour to leave its first child to.
    hook = (position < up) if gpus > 1 else np.zeros(nodes, dtype=np.int64)
    chain = np.arange(nodes * gpus) - 1
    trees = np.stack([chain, chain])
    for tree, place in zip(trees, (position, second), strict=True):
        tree[place * gpus] = np.where(up < 0, -1, place[up] * gpus + hook)
    return trees


def tree_depth(parent: Ints) -> Ints:
    """Return each rank's distance from the root of its tree, same shape."""
    depth = np.zeros_like(parent)
    ancestor = parent
    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
    return depth
