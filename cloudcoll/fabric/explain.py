"""Which groups explain all loaded rounds best, with what their links carry.

A partition is judged by what max-min fairness predicts for every flow of every
round once its links have the rates that fit best. So it counts who else was
sending: a flow that had a half-empty uplink to itself is fast between racks, too,
and one behind a full link says how full that was. The search goes from several
partitions to better ones by moving, splitting and joining.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.capacity import with_capacities
from cloudcoll.fabric.fair import fair_rounds
from cloudcoll.fabric.fit import fitted
from cloudcoll.fabric.grouping import naming
from cloudcoll.fabric.links import Links
from cloudcoll.fabric.measured import Measured
from cloudcoll.fabric.tree import Fabric, Node

STEPS = 40
"""Partitions taken on the way to the best one, at most."""

USUAL = 0.3
"""Log error of a flow of which nothing is known."""

SURE = 10.0
"""Nats by which groups must explain more than none do: errors of flows that ran at
the same time are not as independent as the likelihood takes them to be."""

CLEAR = 0.1
"""Nats a meeting by which they must explain more than groups that round trips show:
a scatter of errors that is narrower by a tenth. Less may be the model's own fault."""

MOVES = 2
"""Groups that a host is tried in, the nearest ones."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Explained:
    """A partition of hosts, and how well it explains what was measured.

    Attributes
    ----------
    labels : ndarray of int64, shape (hosts,)
        The group of each host.
    errors : ndarray of float64, shape (2, rounds)
        Sum of the absolute log errors of each round's flows: of those that
        their cards hold back, and of those that share a full link.
    meetings : ndarray of float64, shape (2, rounds)
        How many there are, the two flows of a pair counted as one and their errors
        by their mean.
    """

    labels: Ints
    errors: Floats
    meetings: Floats

    @property
    def shares_links(self) -> bool:
        """Whether any flow is said to have shared a group's full link."""
        return bool(self.meetings[1].any())

    @property
    def score(self) -> float:
        """Log likelihood, less what it takes to say it (Schwarz 1978)."""
        sizes = np.bincount(self.labels)
        links = 2 * np.count_nonzero(sizes > 1) if len(sizes) > 1 else 0
        known = math.log(self.meetings.sum())
        return self.likelihood - links * known / 2.0 - naming(sizes)

    @property
    def likelihood(self) -> float:
        """Logarithm of the likelihood of what was measured, but for a constant.

        Log errors are taken to have Laplace distributions, so that a flow that
        stalls counts for little: a narrow one where a card holds flows back, a
        wide one where they share a link, since TCP seldom shares it evenly. The
        two flows of a pair are taken to err together.
        """
        meetings, errors = self.meetings.sum(axis=1), self.errors.sum(axis=1)
        # As if one more flow of each kind had been off by USUAL.
        scale = (errors + USUAL) / (meetings + 1.0)
        return -float((meetings * np.log(scale)).sum())


class Explainer:
    """Judges partitions of the hosts of some measurements, each once."""

    def __init__(self, seen: Measured) -> None:
        self.seen = seen
        self.known: dict[bytes, Explained] = {}
        self._rounds = np.unique(seen.round, return_inverse=True)[1]
        ends = np.sort([seen.src, seen.dst], axis=0)
        _, met, count = np.unique(
            [self._rounds, *ends], axis=1, return_inverse=True, return_counts=True
        )
        self._weight = 1.0 / count[met.ravel()]

    def judge(self, labels: Ints) -> Explained:
        """Return how well a partition explains the rounds."""
        labels = canonical(labels)
        key = labels.tobytes()
        if key not in self.known:
            self.known[key] = self._judged(labels)
        return self.known[key]

    def _judged(self, labels: Ints) -> Explained:
        seen = self.seen
        root = fitted(with_capacities(tree(labels, seen.names), seen), seen)
        fabric = Fabric(root)
        column = np.array([fabric.position(name) for name in seen.names])
        src, dst = column[seen.src], column[seen.dst]
        links = fabric.links()
        due, limits = fair_rounds(links, seen.round, src, dst)
        error = np.abs(np.log(seen.rate / due))
        shared = _uplinks(labels, column, links)[limits].astype(np.int64)
        kind = shared * (self._rounds.max() + 1) + self._rounds
        count = 2 * (self._rounds.max() + 1)
        weight = self._weight
        errors = np.bincount(kind, error * weight, count).astype(np.float64)
        meetings = np.bincount(kind, weight, count).astype(np.float64)
        return Explained(labels, errors.reshape(2, -1), meetings.reshape(2, -1))

    def best(
        self, starts: Iterable[Ints], near: Floats, likely: Ints | None = None
    ) -> Explained:
        """Return the best partition found from these.

        Parameters
        ----------
        starts : iterable of ndarray of int64
            Partitions to begin with; the one without groups always is.
        near : ndarray of float64, shape (hosts, hosts)
            The higher, the likelier two hosts are of one group: decides what
            is tried.
        likely : ndarray of int64, optional
            Groups that something else shows: they stay unless the rounds are
            clearly against them.
        """
        flat = self.judge(np.zeros(len(self.seen.names), dtype=np.int64))
        found = max((flat, *map(self.judge, starts)), key=_score)
        for _ in range(STEPS):
            tried = (self.judge(labels) for labels in neighbours(found.labels, near))
            better = max(tried, key=_score, default=found)
            if better.score <= found.score + 1e-9:
                break
            found = better
        if likely is not None:
            other = self.judge(likely)
            gain = found.likelihood - other.likelihood
            clear = gain > max(SURE, CLEAR * float(found.meetings.sum()))
            return found if found.shares_links and clear else other
        sure = found.shares_links and found.score > flat.score + SURE
        return found if sure else flat


def _uplinks(labels: Ints, column: Ints, links: Links) -> npt.NDArray[np.bool_]:
    """Return which links are those of groups, up and then down; the last is none."""
    found = np.zeros(2 * len(links.up) + 1, dtype=bool)
    sizes = np.bincount(labels)
    if len(sizes) > 1:
        mine = links.member[0, column[sizes[labels] > 1]]
        found[mine] = found[mine + len(links.up)] = True
    return found


def _score(explained: Explained) -> float:
    return explained.score


def canonical(labels: Ints) -> Ints:
    """Return the same partition with groups numbered by their first hosts."""
    _, first, number = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)


def neighbours(labels: Ints, near: Floats) -> Iterator[Ints]:
    """Yield partitions one step from this: a group split, two joined, a host moved."""
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
    """Yield ways to take some hosts out of a group: along a linkage, or one alone."""
    if len(group) < 2:
        return
    if len(group) > 2:
        from scipy.cluster.hierarchy import cut_tree, linkage
        from scipy.spatial.distance import squareform

        inner = near[np.ix_(group, group)]
        distance = inner.max() - inner
        np.fill_diagonal(distance, 0.0)
        merges = linkage(squareform(distance, checks=False), "average")
        for parts in (2, 3):
            cut = cut_tree(merges, n_clusters=[parts])[:, 0]
            for part in range(1, int(cut.max()) + 1):
                yield group[cut == part]
    for host in group:
        yield np.array([host])


def tree(labels: Ints, names: Sequence[str]) -> Node:
    """Return the hosts in groups below one core, rates and latencies not known."""
    children = []
    for group in range(int(labels.max()) + 1):
        hosts = tuple(Node(names[i]) for i in np.flatnonzero(labels == group).tolist())
        children.append(hosts[0] if len(hosts) == 1 else Node(f"group-{group}", hosts))
    return Node("core", tuple(children) if len(children) > 1 else children[0].children)
