"""NCCL's trees against published logs (NCCL_DEBUG=INFO) and its own drawings."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from cloudcoll.collectives import trees as shapes
from cloudcoll.collectives.nccl import binary_tree, double_tree

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
    nodes, gpus, _ = log_shape(path)
    trees = double_tree(nodes * gpus, gpus)
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
    below = edges_below(double_tree(nodes)[tree])
    children = {
        node: sorted(child for child, parent in below if parent == node)
        for _, node in below
    }
    assert children == {node: sorted(hung) for node, hung in drawn.items()}


@pytest.mark.parametrize("nodes", range(2, 300))
def test_both_trees_span_all_nodes(nodes: int) -> None:
    """Tests one root, two children at most, no cycle and a logarithmic depth."""
    inner = []
    for parent in double_tree(nodes):
        below = edges_below(parent)
        assert len(below) == nodes - 1
        levels = shapes.levels(parent)
        assert len(levels) <= (nodes - 1).bit_length()
        assert sum(len(level) for level in levels) == nodes - 1
        above, children = np.unique(below[:, 1], return_counts=True)
        assert children.max() <= 2
        inner.append(above)
    first, second = inner
    assert len(np.intersect1d(first, second)) == nodes % 2


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 13])
def test_nodes_hang_together_by_one_link(nodes: int, gpus: int) -> None:
    """Tests that a tree crosses from node to node once per node and chains inside."""
    both = zip(double_tree(nodes * gpus, gpus), double_tree(nodes), strict=True)
    for parent, over_nodes in both:
        below = edges_below(parent)
        crosses = below[:, 0] // gpus != below[:, 1] // gpus
        assert crosses.sum() == nodes - 1
        assert (below[crosses, 0] % gpus == 0).all()
        child, above = (below[crosses] // gpus).T
        assert (over_nodes[child] == above).all()
        assert (below[~crosses, 1] == below[~crosses, 0] - 1).all()


@pytest.mark.parametrize("ranks", range(2, 40))
@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_last_node_of_fewer_ranks_hangs_on_too(ranks: int, gpus: int) -> None:
    """Tests that both trees span all ranks where the nodes are not equal."""
    for parent in double_tree(ranks, gpus):
        assert sum(len(level) for level in shapes.levels(parent)) == ranks - 1


def test_a_tree_of_one_node_is_a_root() -> None:
    """Tests the smallest tree."""
    assert binary_tree(1).tolist() == [0]


def edges_below(parent: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (child, parent) of all but the root, shape (edges, 2)."""
    child = np.flatnonzero(parent != np.arange(len(parent)))
    return np.stack([child, parent[child]], axis=1)
