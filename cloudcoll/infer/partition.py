"""Partitions of hosts into groups: how alike two are, and which are one step apart.

A partition is the number of each host's group, an array of shape (hosts,).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from cloudcoll.arrays import Floats, Ints

SMALL = 6
"""Hosts of a group that is split in any way: there are 25 with two hosts or more."""

MOVES = 2
"""Groups that a host is tried in, the nearest ones."""


def agreement(one: Ints, other: Ints) -> float:
    """Return how alike two partitions are: 1 if the same, about 0 by chance.

    The adjusted Rand index (Hubert and Arabie 1985); 0 if only one has no groups.
    """
    table = _in_common(one, other)

    def pairs(count: Floats) -> float:
        return float((count * (count - 1.0) / 2.0).sum())

    both = pairs(table)
    mine, theirs = pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    chance = mine * theirs / max(pairs(np.array([float(len(one))])), 1.0)
    most = (mine + theirs) / 2.0
    return (both - chance) / (most - chance) if most > chance else 1.0


def _in_common(one: Ints, other: Ints) -> Floats:
    """Return how many hosts each group of one has in common with each of the other."""
    table = np.zeros((int(one.max()) + 1, int(other.max()) + 1))
    np.add.at(table, (one, other), 1.0)
    return table


def moved(one: Ints, other: Ints) -> int:
    """Return how many hosts have to change groups to get from one to the other."""
    from scipy.optimize import linear_sum_assignment

    table = _in_common(one, other)
    stay = table[linear_sum_assignment(table, maximize=True)]
    return len(one) - int(stay.sum())


def canonical(labels: Ints) -> Ints:
    """Return the same partition with groups numbered by their first hosts."""
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)


def neighbours(labels: Ints, near: Floats) -> Iterator[Ints]:
    """Yield partitions one step from this: a group split, two joined, a host moved.

    In `near`, shape (hosts, hosts), is how much speaks for each two being of one group.
    """
    groups = int(labels.max()) + 1
    members = [np.flatnonzero(labels == group) for group in range(groups)]
    for group in members:
        for part in _halves(group, near):
            split = labels.copy()
            split[part] = groups
            yield split
    for one in range(groups):
        for other in range(one + 1, groups):
            yield np.where(labels == other, one, labels)
    member = np.eye(groups)[labels]
    pull = near @ member / np.maximum(member.sum(axis=0) - member, 1.0)
    for host, row in enumerate(pull):
        others = [g for g in np.argsort(-row, kind="stable") if g != labels[host]]
        for group in others[:MOVES]:
            moved = labels.copy()
            moved[host] = group
            yield moved


def _halves(group: Ints, near: Floats) -> Iterator[Ints]:
    """Yield ways to take some hosts out of a group: one alone, or the end of a line."""
    if len(group) < 2:
        return
    hosts = group[line(near[np.ix_(group, group)])]
    for first in range(2, len(group) - 1):
        yield hosts[first:]
    for host in group:
        yield np.array([host])


def cuts(labels: Ints, rates: Floats) -> Iterator[Ints]:
    """Yield partitions with a group in two: the ends of a line by its hosts' rates.

    Of two racks that are taken for one, all that speaks for a link between these hosts
    and others tells nothing; how fast they are with each other does. In `rates`, shape
    (hosts, hosts), is how fast each two mostly were, logarithmic.
    """
    groups = int(labels.max()) + 1
    for number in range(groups):
        group = np.flatnonzero(labels == number)
        if len(group) <= SMALL:
            continue
        inside, apart = rates[np.ix_(group, group)], ~np.eye(len(group), dtype=bool)
        hosts = group[line(np.where(apart, inside - inside[apart].mean(), 0.0))]
        for first in range(2, len(group) - 1):
            split = labels.copy()
            split[hosts[first:]] = groups
            yield split


def line(near: Floats) -> Ints:
    """Return hosts in a line, neighbours those of whom most speaks for one group.

    It follows the eigenvector that parts two groups best (Newman 2006); `near` is as of
    `neighbours`.
    """
    order: Ints = np.argsort(np.linalg.eigh(near)[1][:, -1], kind="stable")
    return order


def splits(labels: Ints) -> Iterator[Ints]:
    """Yield partitions with one group of at most `SMALL` hosts in two, in any way."""
    groups = int(labels.max()) + 1
    for group in range(groups):
        members = np.flatnonzero(labels == group)
        if len(members) > SMALL:
            continue
        for count in range(2, len(members) // 2 + 1):
            for part in itertools.combinations(members, count):
                split = labels.copy()
                split[list(part)] = groups
                yield split
