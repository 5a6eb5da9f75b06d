"""Who shares a switch: a tree of groups from distances between hosts.

Average linkage, cut where the mean silhouette is highest (Rousseeuw 1987), in
each part and over the parts again, so that any number of levels appears.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_CUTS = 64
"""Partitions tried at each level: those with the widest gap below them."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class View(NamedTuple):
    """One kind of distance between the hosts.

    Attributes
    ----------
    distance : ndarray of float64, shape (hosts, hosts)
        Symmetric, zero on the diagonal; NaN where a pair was not measured.
    least : float
        Mean silhouette below which a partition counts as noise.
    """

    distance: Floats
    least: float


# A tree while it grows: a host's position, or the list of its parts.
Tree = int | list["Tree"]


def grow(views: Sequence[View], items: Sequence[int]) -> list[Tree]:
    """Split `items` into groups, those into groups, and group the groups.

    Parameters
    ----------
    views : sequence of View
        The first that shows groups among some items decides about these.
    items : sequence of int
        Positions in the views.
    """
    parts = _split([(v.distance[np.ix_(items, items)], v.least) for v in views])
    if parts is None:
        return list(items)
    inner = [[items[i] for i in part] for part in parts]
    grown: list[Tree] = [
        part[0] if len(part) == 1 else grow(views, part) for part in inner
    ]
    # The best cut may have been the finest one: look for coarser groups.
    outer = None
    if len(inner) > 2:
        outer = _split([(_between(v.distance, inner), v.least) for v in views])
    if outer is None:
        return grown
    return [
        grown[part[0]] if len(part) == 1 else [grown[i] for i in part] for part in outer
    ]


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


def _split(views: Sequence[tuple[Floats, float]]) -> list[list[int]] | None:
    """Return the best partition of the first view that has a good one."""
    for distance, least in views:
        if len(distance) < 3:
            continue
        # The mean of these very items speaks neither for nor against a pair.
        apart = distance[~np.eye(len(distance), dtype=bool)]
        neutral = np.nanmean(apart) if not np.isnan(apart).all() else 0.0
        parts, score = _partition(np.where(np.isnan(distance), neutral, distance))
        if score >= least:
            return parts
    return None


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
    """Return the mean distance between groups, 0 from each to itself, or NaN."""
    order = np.concatenate([np.asarray(group) for group in groups])
    sizes = np.array([len(group) for group in groups])
    starts = np.cumsum(sizes) - sizes
    near = distance[np.ix_(order, order)]

    def blocks(values: Floats) -> Floats:
        rows = np.add.reduceat(values, starts, axis=0)
        sums: Floats = np.add.reduceat(rows, starts, axis=1)
        return sums

    known = blocks(np.isfinite(near).astype(float))
    means = np.full(known.shape, math.nan)
    np.divide(blocks(np.nan_to_num(near)), known, out=means, where=known > 0)
    np.fill_diagonal(means, 0.0)
    return means
