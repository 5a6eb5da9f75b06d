"""Labels as a prior: who is said to share a switch, where measurements are few.

A group of the labels is believed as far as what was measured bears it out: its
hosts must be nearer to each other than to the rest. What it says then fills in
pairs that nobody measured; a measured figure is never changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.hosts import Host
from cloudcoll.infer.grouping import Splitter
from cloudcoll.infer.holdout import COVERED, Figures
from cloudcoll.measured.samples import medians, middle
from cloudcoll.network.tree import Fabric, Node

GROUP = "cloudcoll/group"
"""Key of the label that names the smallest group a host is said to stand in."""

HALF = 0.5
"""A host is of a group if it stands out there by this share of what is usual."""

NEARER = 0.1
"""A group is told by latency if it is nearer to itself than to the next one by
this share; less may be noise."""

HELD_BACK = 1.35
"""Times what two hosts' cards would take from which a flow met a full link."""

MAX_WARNINGS = 3
"""Disagreements named one by one; the rest is counted."""


def label_groups(hosts: Iterable[Host]) -> list[tuple[str, frozenset[str]]]:
    """Return the groups of two and more hosts that their labels name."""
    groups: dict[str, set[str]] = {}
    for host in hosts:
        if name := host.labels.get(GROUP):
            groups.setdefault(name, set()).add(host.name)
    return [(name, frozenset(said)) for name, said in groups.items() if len(said) > 1]


def label_numbers(hosts: Sequence[Host]) -> Ints:
    """Return the number of each host's group, -1 where it has none to share."""
    number = {name: i for i, (name, _) in enumerate(label_groups(hosts))}
    said = [number.get(host.labels.get(GROUP, ""), -1) for host in hosts]
    return np.array(said, dtype=np.int64)


def informed(trips: Floats, labels: Ints) -> Floats:
    """Fill in round trips that nobody measured with those of the hosts' groups.

    A pair gets the median of what was measured between the two groups, and what its
    hosts are usually later than that, if both hosts' labels (see `label_numbers`) are
    borne out by their own round trips. `trips`, shape (hosts, hosts), are seconds,
    symmetric; NaN where not measured, and after this where the labels do not tell
    either.
    """
    groups = int(labels.max(initial=-1)) + 1
    if not groups:
        return trips
    # A slow host is late in all its round trips, those not measured too.
    late = np.nan_to_num(middle(trips - _explained(trips, labels, groups)))
    both = np.add.outer(late, late)
    level = trips - both
    believed = _believed(level, labels, groups)
    guess = _explained(level, believed, groups) + both
    return np.where(np.isnan(trips), guess, trips)


def _explained(trips: Floats, labels: Ints, groups: int) -> Floats:
    """Return for each pair the usual round trip between its groups; NaN for none."""
    # One row and column more, for hosts without a group.
    between = np.full((groups + 1, groups + 1), math.nan)
    between[:-1, :-1] = _between(trips, labels, groups)
    return between[labels][:, labels]


def _believed(trips: Floats, labels: Ints, groups: int) -> Ints:
    """Return the labels that measurements bear out or say nothing of, else -1.

    A group whose hosts mostly do not stand out in it is none. Hosts that stand
    out in another one go first; then those that do not stand out in theirs,
    judged without the first.
    """
    shares = _shares(trips, labels, groups)
    own = _own(shares, labels)
    tested = np.bincount(labels[np.isfinite(own)], minlength=groups)
    agree = np.bincount(labels[np.nan_to_num(own) >= HALF], minlength=groups)
    misplaced = ~(own >= HALF) & (shares >= HALF).any(axis=1)
    kept = (labels >= 0) & (2 * agree > tested)[labels] & ~misplaced
    rest = np.where(kept, labels, -1)
    own = _own(_shares(trips, rest, groups), rest)
    return np.where(own < HALF, -1, rest)


def _shares(trips: Floats, labels: Ints, groups: int) -> Floats:
    """Return how much each host stands out in each group; 1 is what is usual.

    What counts is by how much a host, or a group, is nearer to a group than to
    the next one: a delay of the host itself does not change that. NaN where
    not measured, or where latency does not tell the group.
    """
    hosts = np.arange(len(labels))
    near = _medians(trips, hosts, labels, (len(hosts), groups))
    between = _between(trips, labels, groups)
    inside, usual = between.diagonal(), _contrasts(between).diagonal().copy()
    usual[~(usual > NEARER * (inside + usual))] = math.nan
    return _contrasts(near) / usual


def _own(shares: Floats, labels: Ints) -> Floats:
    """Return each host's share in its own group, NaN if it has none."""
    return np.where(labels >= 0, shares[np.arange(len(labels)), labels], math.nan)


def _between(trips: Floats, labels: Ints, groups: int) -> Floats:
    """Return the median round trip between each two groups; NaN for none."""
    return _medians(trips, labels, labels, (groups, groups))


def _medians(
    values: Floats, rows: Ints, columns: Ints, shape: tuple[int, int]
) -> Floats:
    """Return the median of each block of a matrix; NaN and the diagonal do not count.

    `rows` and `columns` have the block of each row and column; -1 is none.
    """
    a, b = np.nonzero(np.isfinite(values) & ~np.eye(len(values), dtype=bool))
    inside = (rows[a] >= 0) & (columns[b] >= 0)
    a, b = a[inside], b[inside]
    block = rows[a] * shape[1] + columns[b]
    return medians(block, values[a, b], shape[0] * shape[1]).reshape(shape)


def _contrasts(near: Floats) -> Floats:
    """Return by how much each row is nearer to a column than to the next one."""
    known = np.where(np.isnan(near), math.inf, near)
    place = known.argmin(axis=1)
    rows = np.arange(len(known))
    nearest = known[rows, place].copy()
    rest = known.copy()
    rest[rows, place] = math.inf
    others = np.repeat(nearest[:, None], known.shape[1], axis=1)
    others[rows, place] = rest.min(axis=1)
    others[np.isinf(others)] = math.nan
    return others - near


def with_labels_for(
    by_rounds: Splitter, seen: Figures, hosts: Ints, labels: Ints
) -> Splitter:
    """Return a splitter that asks the labels where too few pairs were loaded.

    Only of all hosts together: inside of groups that were measured labels have
    no say. Hosts whose transfers to their own group were mostly held back are
    left out of it. `by_rounds` is as of `LoadSplitter`; what is split are positions in
    `hosts`, which are positions in `seen`. For `labels` see `label_numbers`.
    """

    def split(
        items: list[int], likely: list[list[int]] | None = None
    ) -> list[list[int]] | None:
        parts = by_rounds(items, likely) or likely
        if parts is not None or len(items) < len(hosts) or labels.max() < 0:
            return parts
        loaded, held = (flows[np.ix_(hosts, hosts)] for flows in _flows(seen))
        if loaded.sum() >= COVERED * len(hosts) * (len(hosts) - 1):
            return None
        same = (labels[:, None] == labels) & (labels >= 0)
        misplaced = 2 * (held & same).sum(axis=1) > (loaded & same).sum(axis=1)
        kept = np.where(misplaced, -1, labels)
        groups = [np.flatnonzero(kept == group) for group in np.unique(kept[kept >= 0])]
        lone = np.flatnonzero(kept < 0).tolist()
        found = [*(group.tolist() for group in groups), *([host] for host in lone)]
        return found if 1 < len(found) < len(hosts) else None

    return split


def _flows(seen: Figures) -> tuple[Bools, Bools]:
    """Return which pairs sent, and which of them met a full link, symmetric."""
    card = np.zeros(len(seen.names))
    np.maximum.at(card, seen.src, seen.rate)
    np.maximum.at(card, seen.dst, seen.rate)
    late = np.minimum(card[seen.src], card[seen.dst]) > HELD_BACK * seen.rate
    found = []
    for chosen in (np.ones(len(late), dtype=bool), late):
        pairs = np.zeros((len(card), len(card)), dtype=bool)
        pairs[seen.src[chosen], seen.dst[chosen]] = True
        found.append(pairs | pairs.T)
    return found[0], found[1]


def disagreements(
    measured: Fabric, labels: Sequence[tuple[str, frozenset[str]]]
) -> list[str]:
    """Return a line for each host that the measurement puts elsewhere than its label.

    Groups that hold each other do not disagree: labels may be finer than the
    network, or coarser. Where most of a group's hosts stand together, the
    others are named. `labels` has the name of each group and its hosts.
    """
    hosts = frozenset[str]().union(*(said for _, said in labels))
    if not hosts:
        return []
    found = sorted(groups_of(measured.restrict(hosts).root), key=lambda g: len(g[1]))
    lines = []
    for name, said in labels:
        homes = [group for _, group in found if 2 * len(group & said) > len(said)]
        crossing = [g & said for _, g in found if g - said and said - g]
        odd = said - homes[0] if homes else frozenset[str]().union(*crossing)
        for host in sorted(odd):
            if place := _elsewhere(host, said, found):
                lines.append(
                    f"labels put {host} in {name}, measured it stands {place}: the "
                    "measurement is kept"
                )
    more = len(lines) - MAX_WARNINGS
    if more > 0:
        lines[MAX_WARNINGS:] = [f"{more} more hosts disagree: probe without labels"]
    return lines


def _elsewhere(
    host: str, said: frozenset[str], found: Sequence[tuple[str, frozenset[str]]]
) -> str:
    """Say with whom a host stands, nothing if only with others of its label."""
    for name, group in found:
        if host in group:
            others = sorted(group - said)
            return f"in group {name} with {others[0]}" if others else ""
    return "apart"


def groups_of(root: Node) -> list[tuple[str, frozenset[str]]]:
    """Return the groups below the root, each with its hosts; parents come first."""
    groups = []
    for child in root.children:
        if child.children:
            groups += [(child.name, frozenset(child.leaves())), *groups_of(child)]
    return groups
