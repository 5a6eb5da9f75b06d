"""Who shares a switch: a tree of groups from distances between hosts.

Average linkage, cut where the mean silhouette is highest (Rousseeuw 1987), in
each part and over the parts again, so that any number of levels appears. Groups
count where nearly all pairs inside them are nearer than nearly all between them:
a host that is late to everybody makes no group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from cloudcoll.arrays import Floats, Ints

MIN_SILHOUETTE = 0.25
"""Below it a partition counts as noise (Kaufman and Rousseeuw 1990)."""

CLEAR = 0.5
"""From it on a partition is no weak one (the same): pairs between groups are twice as
far as those inside. Where a host's own leg is long, the way between racks adds less."""

NEARLY_ALL = 0.9
"""Share of the pairs inside groups that are nearer than as many of those between."""

BY_CHANCE = 7.0
"""Nats against groups that are none: one in a thousand."""

MAX_CUTS = 64
"""Partitions tried at each level: those with the widest gap below them."""


# A tree while it grows: a host's position, or the list of its parts.
Tree = int | list["Tree"]
T = TypeVar("T")
Splitter = Callable[[list[int], "list[list[int]] | None"], "list[list[int]] | None"]
"""From items, and groups that are likely, to the groups among them; None for none."""


def grow(
    distance: Floats,
    items: list[int],
    by_load: Splitter = lambda items, parts: None,
) -> list[Tree]:
    """Split `items` into groups, those into groups, and group the groups.

    They are positions in `distance`, shape (hosts, hosts): symmetric, zero on the
    diagonal; NaN all over the rest if not known. `by_load`, told items and the smallest
    groups that distances show among them, if any, returns those that loaded rounds
    show, None where these show none or no better ones. They come first: who shares a
    link is what an order is about.
    """
    near = _split(distance[np.ix_(items, items)])
    parts = None if near is None else _pick(items, near)
    inner = by_load(items, parts and bottom(_grown(distance, parts))) or parts
    if inner is None:
        return list(items)
    grown = _grown(distance, inner, by_load)
    # The best cut may have been the finest one: look for coarser groups.
    outer = _split(_between(distance, inner))
    if outer is None:
        return grown
    return [part[0] if len(part) == 1 else part for part in _pick(grown, outer)]


def _grown(
    distance: Floats,
    parts: Iterable[list[int]],
    by_load: Splitter = lambda items, parts: None,
) -> list[Tree]:
    """Return each part as a tree of its own."""
    return [
        part[0] if len(part) == 1 else grow(distance, part, by_load) for part in parts
    ]


def _pick(items: Sequence[T], parts: list[list[int]]) -> list[list[T]]:
    return [[items[i] for i in part] for part in parts]


def flatten(tree: Tree) -> list[int]:
    """Return the hosts of a tree, left to right."""
    if isinstance(tree, int):
        return [tree]
    return [item for part in tree for item in flatten(part)]


def bottom(tree: Tree) -> list[list[int]]:
    """Return the groups of hosts on one switch; hosts beside groups are alone."""
    if isinstance(tree, int):
        return [[tree]]
    if all(isinstance(part, int) for part in tree):
        return [flatten(tree)]
    return [group for part in tree for group in bottom(part)]


def _split(distance: Floats) -> list[list[int]] | None:
    """Return the partition with the best silhouette, None where none is good."""
    if len(distance) < 3 or np.isnan(distance).any():
        return None
    parts, score = _partition(distance)
    clear = score >= CLEAR
    # One group beside lone hosts is a switch with some that are late.
    several = sum(len(part) > 1 for part in parts) > 1
    if not clear and not (several and score >= MIN_SILHOUETTE):
        return None
    return parts if _apart(distance, parts, clear=clear) else None


def _apart(distance: Floats, parts: Sequence[Sequence[int]], *, clear: bool) -> bool:
    """Return whether pairs inside groups are nearer than between them, beyond chance.

    Nearly all are, and either there are so many pairs that hardly any groups of so many
    hosts would part them so, or the groups are `clear`, and the gap is wider than
    either kind scatters.
    """
    label = np.empty(len(distance), dtype=np.int64)
    for number, part in enumerate(parts):
        label[list(part)] = number
    a, b = np.triu_indices(len(distance), 1)
    inside = label[a] == label[b]
    if not inside.any() or inside.all():
        return False
    within, between = distance[a, b][inside], distance[a, b][~inside]
    least, far = np.quantile(within, [1 - NEARLY_ALL, NEARLY_ALL])
    near = np.quantile(between, 1 - NEARLY_ALL)
    if not far < near:
        return False
    # Few pairs inside groups are alike by chance: those between two groups must be.
    blocks = np.unique(
        np.sort([label[a], label[b]], axis=0)[:, ~inside], axis=1, return_inverse=True
    )[1].ravel()
    means = np.bincount(blocks, between) / np.bincount(blocks)
    low, high = np.quantile(between - means[blocks], [1 - NEARLY_ALL, NEARLY_ALL])
    if clear and near - far > max(far - least, high - low):
        return True
    # If the order of the pairs were chance, so many would be the nearest ones.
    pairs, nearest = len(a), len(within)
    ways = math.lgamma(pairs + 1) - math.lgamma(nearest + 1)
    ways -= math.lgamma(pairs - nearest + 1)
    return ways - naming(np.bincount(label)) > BY_CHANCE


def naming(sizes: Ints) -> float:
    """Return the nats that name a partition into groups of these sizes."""
    hosts = int(sizes.sum())
    ways = math.lgamma(hosts + 1) - sum(math.lgamma(size + 1) for size in sizes)
    # Groups have no order; their sizes are any that add up.
    return ways - math.lgamma(len(sizes) + 1) + (len(sizes) - 1) * math.log(hosts)


def _partition(distance: Floats) -> tuple[list[list[int]], float]:
    """Return the partition with the best mean silhouette, and that."""
    from scipy.cluster.hierarchy import cut_tree, leaves_list, linkage
    from scipy.spatial.distance import squareform

    merges = linkage(squareform(distance, checks=False), "average")
    heights = merges[:, 2]
    gaps = np.diff(heights) / np.maximum(heights[1:], 1e-12)
    # Cutting between merges i and i + 1 leaves len(distance) - 1 - i groups.
    widest = np.argsort(-gaps, kind="stable")[:MAX_CUTS]
    order = leaves_list(merges)
    labels = cut_tree(merges, n_clusters=np.sort(len(distance) - 1 - widest))[order]
    near = distance[np.ix_(order, order)]
    scores = [_silhouette(near, column) for column in labels.T]
    best = int(np.argmax(scores))
    column = labels[np.argsort(order), best]
    parts = [np.flatnonzero(column == group).tolist() for group in np.unique(column)]
    return parts, scores[best]


def _silhouette(distance: Floats, labels: Ints) -> float:
    """Return the mean silhouette of a partition; a group of one counts as 0.

    Hosts of one group must be neighbours, as the leaves of a linkage are.
    """
    starts = np.flatnonzero(np.diff(labels, prepend=-1))
    sizes = np.diff(starts, append=len(labels))
    group = np.repeat(np.arange(len(starts)), sizes)
    sums = np.add.reduceat(distance, starts, axis=1)
    rows = np.arange(len(labels))
    mine = sizes[group]
    within = sums[rows, group] / np.maximum(mine - 1, 1)
    means = sums / sizes
    means[rows, group] = math.inf
    nearest = means.min(axis=1)
    widest = np.maximum(np.maximum(nearest, within), 1e-12)
    return float(np.where(mine > 1, (nearest - within) / widest, 0.0).mean())


def _between(distance: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """Return the mean distance between groups, 0 from each to itself."""
    order = np.concatenate([np.asarray(group) for group in groups])
    sizes = np.array([len(group) for group in groups])
    starts = np.cumsum(sizes) - sizes
    rows = np.add.reduceat(distance[np.ix_(order, order)], starts, axis=0)
    means: Floats = np.add.reduceat(rows, starts, axis=1) / np.outer(sizes, sizes)
    np.fill_diagonal(means, 0.0)
    return means


def complete(distance: Floats) -> Floats:
    """Return a full matrix, shape (hosts, hosts), from one with pairs not measured.

    A missing pair gets the longest leg of the path between them that has the shortest
    longest leg: in a tree of switches a third host of either group gives exactly the
    pair's own figure. That leg is the height at which single linkage joins the two.
    Symmetric, zero on the diagonal; NaN all over the rest if nothing was measured.
    """
    from scipy.cluster.hierarchy import cophenet, linkage
    from scipy.spatial.distance import squareform

    full = distance.copy()
    np.fill_diagonal(full, 0.0)
    missing = np.isnan(full)
    if not missing.any() or not full[~missing].any():
        return full
    far = 2.0 * np.nanmax(full)  # longer than any: joins what nothing joins
    full[missing] = far
    joined = squareform(cophenet(linkage(squareform(full, checks=False), "single")))
    full[missing] = joined[missing]
    full[full == far] = full[full < far].max()
    return full
