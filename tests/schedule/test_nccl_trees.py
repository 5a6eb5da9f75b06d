"""NCCL's trees against published logs (NCCL_DEBUG=INFO) and its own drawings."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cloudcoll.schedule.nccl_trees import binary_tree, double_tree, tree_depth

LOGS = sorted((Path(__file__).parent / "data" / "nccl").glob("*.log"))

# The drawings in NCCL's src/graph/trees.cc: parent -> children.
DRAWN_14 = {0: [8], 8: [4, 12], 4: [2, 6], 12: [10, 13], 2: [1, 3], 6: [5, 7]}
DRAWN_14 |= {10: [9, 11]}
DRAWN_12 = {11: [3], 3: [1, 7], 1: [0, 2], 7: [5, 9], 5: [4, 6], 9: [8, 10]}
DRAWN_13 = {1: [9], 9: [5, 0], 5: [3, 7], 0: [11], 3: [2, 4], 7: [6, 8], 11: [10, 12]}


def log_shape(path: Path) -> tuple[int, int, int]:
    """Return the nodes, the GPUs on each and the channels of one tree."""
    words = path.read_text().splitlines()[0].split()
    nodes, gpus, channels = words[2::2]
    return int(nodes), int(gpus), int(channels)


def logged_edges(path: Path) -> set[tuple[int, int, int]]:
    """Return (tree, rank, parent) for every link that a log names."""
    edges = set()
    *_, channels = log_shape(path)
    text = path.read_text()
    # Since 2.5: children->rank->parent; as many channels on the second tree follow.
    for words in re.findall(r"\[(\d+)\] ([-\d/]+/-?\d+)->(\d+)->(-?\d+)", text):
        channel, children, rank, parent = words
        tree = int(channel) // channels % 2
        edges.add((tree, int(rank), int(parent)))
        edges |= {(tree, int(child), int(rank)) for child in children.split("/")}
    # NCCL 2.4: parent->rank->children.
    for parent, rank, _ in re.findall(r"\[0\] (\d+)->(\d+)->(-?\d+/)", text):
        edges.add((0, int(rank), int(parent)))
    return {edge for edge in edges if edge[1] >= 0 and edge[2] >= 0}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_nodes_are_linked_as_nccl_logged_them(path: Path) -> None:
    """Tests every link between nodes that a published log names."""
    nodes, gpus, _ = log_shape(path)
    trees = double_tree(nodes)
    between = {
        (tree, rank // gpus, parent // gpus)
        for tree, rank, parent in logged_edges(path)
        if rank // gpus != parent // gpus
    }
    assert between
    for tree, node, parent in between:
        assert trees[tree, node] == parent


@pytest.mark.parametrize(
    "path",
    [path for path in LOGS if log_shape(path)[1] <= 2],
    ids=lambda path: path.stem,
)
def test_ranks_are_linked_as_nccl_logged_them(path: Path) -> None:
    """Tests links inside nodes too, where GPUs are chained in rank order."""
    trees = double_tree(*log_shape(path)[:2])
    edges = logged_edges(path)
    assert edges
    for tree, rank, parent in edges:
        assert trees[tree, rank] == parent


def test_the_connections_of_64_nodes_are_the_rings_or_the_trees() -> None:
    """Tests the sockets that NCCL 2.4 opened on 64 nodes."""
    path = next(path for path in LOGS if path.stem.startswith("64"))
    parent = double_tree(64)[0]
    found = re.findall(r"Ring 00 : (\d+) -> (\d+)", path.read_text())
    assert len(found) > 30
    for src, dst in np.array(found, dtype=np.int64):
        in_tree = parent[src] == dst or parent[dst] == src
        assert in_tree or dst == (src + 1) % 64


@pytest.mark.parametrize(
    ("nodes", "tree", "drawn"),
    [(14, 0, DRAWN_14), (12, 1, DRAWN_12), (13, 1, DRAWN_13)],
)
def test_trees_are_those_that_nccl_draws(
    nodes: int, tree: int, drawn: dict[int, list[int]]
) -> None:
    """Tests the drawings in NCCL's source: plain, mirrored and moved on."""
    parent = double_tree(nodes)[tree]
    children = {
        node: sorted(np.flatnonzero(parent == node).tolist())
        for node in range(nodes)
        if (parent == node).any()
    }
    assert children == {node: sorted(below) for node, below in drawn.items()}


@pytest.mark.parametrize("nodes", range(1, 300))
def test_both_trees_span_all_nodes(nodes: int) -> None:
    """Tests one root, two children at most, no cycle and a logarithmic depth."""
    trees = double_tree(nodes)
    for parent in trees:
        assert (parent < 0).sum() == 1
        depth = tree_depth(parent)
        assert depth.max(initial=0) <= max(nodes - 1, 0).bit_length()
        inner, children = np.unique(parent[parent >= 0], return_counts=True)
        assert (children <= 2).all()
        assert len(inner) <= nodes
    both = np.intersect1d(*(parent[parent >= 0] for parent in trees))
    assert len(both) == (nodes % 2 and nodes > 1)


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 13])
def test_nodes_hang_together_by_one_link(nodes: int, gpus: int) -> None:
    """Tests that a tree crosses from node to node once per node and chains inside."""
    for parent, over_nodes in zip(
        double_tree(nodes, gpus), double_tree(nodes), strict=True
    ):
        rank = np.flatnonzero(parent >= 0)
        crosses = rank // gpus != parent[rank] // gpus
        assert crosses.sum() == nodes - 1
        assert (rank[crosses] % gpus == 0).all()
        node = rank[crosses] // gpus
        assert (over_nodes[node] == parent[rank[crosses]] // gpus).all()
        assert (parent[rank[~crosses]] == rank[~crosses] - 1).all()


def test_a_tree_of_one_node_is_a_root() -> None:
    """Tests the smallest tree."""
    assert binary_tree(1).tolist() == [-1]
