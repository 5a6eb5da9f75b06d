"""From measurements to a fabric: who shares a switch, and how fast its link is.

Groups come from round trip times: average linkage, cut where the mean
silhouette is highest (Rousseeuw 1987), in each part and over the parts again,
so that any number of levels appears. A network without structure is flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.capacity import with_capacities
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.snapshot import NetworkSnapshot

MIN_SILHOUETTE = 0.5
"""Below it a partition counts as noise (Kaufman and Rousseeuw 1990)."""

MAX_CUTS = 64
"""Partitions tried at each level: those with the widest gap below them."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def infer_fabric(snapshot: NetworkSnapshot) -> Fabric:
    """Return the fabric that explains a snapshot's measurements.

    Hosts without a measurement hang on the core by themselves. Capacities
    that no round filled are NaN: not known to limit anything.
    """
    rtt = snapshot.latency.values
    heard = np.flatnonzero(np.isfinite(rtt).any(axis=1))
    warnings = [
        f"nothing measured with {name}: {why}" for name, why in snapshot.failed.items()
    ]
    children: tuple[Node, ...] = ()
    if len(heard):
        distance = _complete(rtt[np.ix_(heard, heard)])
        tree = _tree(distance, list(range(len(heard))))
        children = _node(tree, distance, [snapshot.names[h] for h in heard]).children
    silent = np.setdiff1d(np.arange(len(rtt)), heard)
    children += tuple(Node(snapshot.names[h]) for h in silent)
    root = _numbered(Node("core", children))
    warnings += _slow_hosts(snapshot, root)
    return Fabric(with_capacities(root, snapshot), warnings=tuple(warnings))


# A tree while it grows: an item's position, or the list of its parts.
_Tree = int | list["_Tree"]


def _complete(rtt: Floats) -> Floats:
    """Return a full symmetric matrix from one with pairs not measured.

    A missing pair gets the longest leg of the path between them that has the
    shortest longest leg: in a tree of switches a third host of either group
    gives exactly the pair's own figure.
    """
    full = np.fmin(rtt, rtt.T)
    np.fill_diagonal(full, 0.0)
    missing = np.isnan(full)
    through = np.where(missing, math.inf, full)
    for host in range(len(full) if missing.any() else 0):
        through = np.minimum(through, np.maximum.outer(through[host], through[host]))
    full[missing] = through[missing]
    if np.isinf(full).any():
        full[np.isinf(full)] = full[np.isfinite(full)].max()
    return full


def _tree(distance: Floats, items: list[int]) -> list[_Tree]:
    """Split `items` into groups, those into groups, and group the groups."""
    parts = _split(distance[np.ix_(items, items)])
    if parts is None:
        return list(items)
    inner = [[items[i] for i in part] for part in parts]
    grown: list[_Tree] = [
        part[0] if len(part) == 1 else _tree(distance, part) for part in inner
    ]
    # The best cut may have been the finest one: look for coarser groups.
    means = np.array([[_between(distance, a, b) for b in inner] for a in inner])
    np.fill_diagonal(means, 0.0)
    outer = _split(means) if len(inner) > 2 else None
    if outer is None:
        return grown
    return [
        grown[part[0]] if len(part) == 1 else [grown[i] for i in part] for part in outer
    ]


def _split(distance: Floats) -> list[list[int]] | None:
    """Return the partition with the best silhouette, None where none is good."""
    if len(distance) < 3:
        return None
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    merges = linkage(squareform(distance, checks=False), "average")
    heights = merges[:, 2]
    gaps = np.diff(heights) / np.maximum(heights[1:], 1e-12)
    # Cutting between merges i and i + 1 leaves len(distance) - 1 - i groups.
    widest = np.argsort(-gaps, kind="stable")[:MAX_CUTS]
    labels = cut_tree(merges, n_clusters=np.sort(len(distance) - 1 - widest))
    scores = [_silhouette(distance, column) for column in labels.T]
    best = int(np.argmax(scores))
    if scores[best] < MIN_SILHOUETTE:
        return None
    column = labels[:, best]
    return [np.flatnonzero(column == group).tolist() for group in np.unique(column)]


def _silhouette(distance: Floats, labels: Ints) -> float:
    """Return the mean silhouette of a partition; a group of one counts as 0."""
    own = labels[:, None] == np.unique(labels)
    sizes = own.sum(axis=0)
    sums = distance @ own
    mine = sizes[own.argmax(axis=1)]
    within = sums[own] / np.maximum(mine - 1, 1)
    nearest = np.where(own, math.inf, sums / sizes).min(axis=1)
    widest = np.maximum(np.maximum(nearest, within), 1e-12)
    return float(np.where(mine > 1, (nearest - within) / widest, 0.0).mean())


def _between(distance: Floats, a: Sequence[int], b: Sequence[int]) -> float:
    return float(np.median(distance[np.ix_(a, b)]))


def _flatten(tree: _Tree) -> list[int]:
    if isinstance(tree, int):
        return [tree]
    return [item for part in tree for item in _flatten(part)]


def _node(tree: _Tree, distance: Floats, names: Sequence[str]) -> Node:
    """Return the tree as nodes whose links add up to the round trips."""
    if isinstance(tree, int):
        return Node(names[tree])
    reach = _reach(tree, distance)
    children = [
        # Links never shorten a path, whatever the noise says.
        replace(
            _node(part, distance, names),
            latency_s=max(reach - _reach(part, distance), 0.0),
        )
        for part in tree
    ]
    return Node("group", tuple(children))


def _reach(tree: _Tree, distance: Floats) -> float:
    """Return the one-way seconds from a group's switch down to a host.

    A round trip between hosts of two parts goes down and up this way four
    times.
    """
    if isinstance(tree, int) or len(tree) < 2:
        return 0.0
    parts = [_flatten(part) for part in tree]
    trips = [_between(distance, a, b) for i, a in enumerate(parts) for b in parts[:i]]
    return float(np.median(trips)) / 4.0


def _numbered(root: Node) -> Node:
    """Name the groups ``1``, ``2`` and theirs ``1.1``, left to right."""

    def rename(node: Node, name: str) -> Node:
        if not node.children:
            return node
        children: list[Node] = []
        for child in node.children:
            inner = f"{name}.{len(children) + 1}" if name else str(len(children) + 1)
            children.append(rename(child, inner))
        return replace(node, name=name or "core", children=tuple(children))

    return rename(root, "")


def _slow_hosts(snapshot: NetworkSnapshot, root: Node) -> list[str]:
    """Name hosts whose own round trips are longer than their place explains."""
    fabric = Fabric(root)
    links = fabric.links()
    position = {name: i for i, name in enumerate(snapshot.names)}
    order = [position[name] for name in fabric.hosts]
    measured = snapshot.latency.values[np.ix_(order, order)]
    expected = links.pair_rtt()
    with np.errstate(invalid="ignore"):
        extra = np.where(np.isfinite(measured), measured - expected, np.nan)
    warnings = []
    for column, name in enumerate(fabric.hosts):
        others = extra[column][np.isfinite(extra[column])]
        if len(others) < 3:
            continue
        usual = np.nanmedian(measured)
        if (slow := float(np.median(others))) > usual / 2:
            warnings.append(
                f"{name} answers {slow * 1e6:.0f} us later than its place explains: "
                "a slow host, not a slow link"
            )
    return warnings
