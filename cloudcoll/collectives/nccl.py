"""NCCL's schedules over the network.

Read in NCCL 2.30 (2026-06): rings, and the double binary tree of
``src/graph/trees.cc`` (``ncclGetBtree``, ``ncclGetDtree``) and
``src/graph/connect.cc`` (``connectTrees``); Sanders, Speck and Traeff, *Two-tree
algorithms for full bandwidth broadcast, reduction and scan*, 2009. Between nodes every
ring goes from one node to the next in rank order, whatever way it takes inside; its
allreduce, allgather and reduce-scatter are those of `ring`. All of it is pipelined in
chunks.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import trees
from cloudcoll.collectives.steps import Flow, pipelined, send


def binary_tree(nodes: int) -> Ints:
    """Return each node's parent in NCCL's binary tree; the root, 0, is its own.

    A node's lowest set bit is its height: xx01 and xx11 hang on xx10, odd
    nodes are leaves. Where the parent does not exist, the bit is cleared
    instead of raised.
    """
    node = np.arange(nodes)
    lowest = node & -node
    cleared = node ^ lowest
    raised = cleared | (lowest << 1)
    return np.where(raised < nodes, raised, cleared)


def double_tree(ranks: int, local: int = 1) -> Ints:
    """Return each rank's parent in both trees, shape (2, ranks); roots are their own.

    The second tree is the first mirrored (an even number of nodes) or moved on
    by one (odd), so that nobody but one node of an odd number is inner in
    both. Inside a node a chain hangs on its first rank; a node's first child
    (the one below it in tree order) hangs on its second rank, to spread the
    traffic ("balanced tree", what NCCL takes before compute capability 9). Rank r is on
    node r // local.
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


PEERS_AT_ONCE = 8
"""Ranks of a node that alltoall takes as one group, at most
(``NCCL_MAX_DEV_WORK_P2P_PER_BATCH``)."""


def tree(ranks: int, size: int, local: int = 1) -> Flow:
    """Return the allreduce on the double binary tree, half of the bytes on each.

    Up to the roots and down again (``src/device/all_reduce.h``,
    ``runTreeSplit``); each node has `local` ranks.
    """
    # Both trees as one forest: position p is rank p % N of tree p // N.
    parent = np.concatenate(double_tree(ranks, local) + np.array([[0], [ranks]]))
    levels = trees.levels(parent)
    half = size / 2
    up = [
        send(p % ranks, parent[p] % ranks, half, p // ranks, reduces=True)
        for p in reversed(levels)
    ]
    down = [send(parent[p] % ranks, p % ranks, half, p // ranks) for p in levels]
    return Flow(pipelined([*up, *down]), 2)


def ring_broadcast(ranks: int, size: int, root: int = 0) -> Flow:
    """Return the broadcast along the ring: root, root + 1, ... (``broadcast.h``)."""
    chain = (np.arange(ranks) + root) % ranks
    hops = itertools.pairwise(chain)
    return Flow(pipelined(send(src, dst, size) for src, dst in hops))


def ring_reduce(ranks: int, size: int, root: int = 0) -> Flow:
    """Return the reduction along the ring: root + 1, ..., root (``reduce.h``)."""
    chain = (np.arange(1, ranks + 1) + root) % ranks
    hops = itertools.pairwise(chain)
    steps = [send(src, dst, size, reduces=True) for src, dst in hops]
    return Flow(pipelined(steps))


def pat_allgather(ranks: int, size: int) -> Flow:
    """Return the parallel aggregated trees' allgather.

    Each block goes down a binomial tree of its own, from its owner q to
    q - 2^d, far first; blocks that take the same way share a message
    (``src/include/collectives.h``, ``PatAGAlgorithm``). Only what does not fit
    the buffers is sent in another order, on the same ways.
    """
    src, steps = np.arange(ranks), []
    for bit in reversed(range((ranks - 1).bit_length())):
        hop = 1 << bit
        way = np.arange(0, ranks - hop, 2 * hop)
        dst = (src - hop) % ranks
        steps.append(send(src, dst, size / ranks, src, len(way), offsets=way))
    return Flow(steps, ranks)


def pat_reduce_scatter(ranks: int, size: int) -> Flow:
    """Return the parallel aggregated trees' reduce-scatter.

    `pat_allgather` backwards: from q - 2^d to q, near first
    (``PatRSAlgorithm``).
    """
    src, steps = np.arange(ranks), []
    for bit in range((ranks - 1).bit_length()):
        hop = 1 << bit
        way = np.arange(0, ranks - hop, 2 * hop)
        dst = (src + hop) % ranks
        steps.append(
            send(src, dst, size / ranks, dst, len(way), offsets=way, reduces=True)
        )
    return Flow(steps, ranks)


def alltoall(ranks: int, size: int, local: int = 1) -> Flow:
    """Return the alltoall in the order of NCCL's point-to-point schedule.

    Groups of ranks, `local` on each node, meet at distances 0, 1, 3, 6, 10, ... modulo
    a power of two, leaving out those beyond the last group; inside a group the local
    numbers are one apart more in each round (``src/init.cc``, ``ncclP2pSchedule``).
    Several rounds are under way at a time. `size` is what each rank sends to all
    together.
    """
    last = ranks % local or local
    group = math.gcd(PEERS_AT_ONCE, local, last) if local < ranks else ranks
    groups = ranks // group
    src, around = np.arange(ranks), 1 << (groups - 1).bit_length()
    mine, number = np.divmod(src, group)
    distances = [x * (x + 1) // 2 % around for x in range(around)]
    steps = []
    for distance in distances:
        for delta in range(group) if distance < groups else ():
            theirs = (mine + distance) % groups
            dst = theirs * group + (number + delta) % group
            block = src * ranks + (dst - src) % ranks
            if distance or delta:
                steps.append(send(src, dst, size / ranks, block))
    return Flow(steps, ranks**2)
