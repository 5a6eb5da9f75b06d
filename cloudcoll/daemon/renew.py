"""Change a known fabric by a new probe, only where that is sure.

Groups give way to others that explain the new measurements clearly better, and that
are sure by themselves. Where groups stay, the rate of a link changes if the rounds
show that: each of them is predicted by a fit of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer import groups_found, infer_fabric
from cloudcoll.infer.explain import CLEAR, Explainer
from cloudcoll.infer.fit import BETTER, refitted, with_rates
from cloudcoll.infer.holdout import Figures, measured
from cloudcoll.infer.sharing import LARGE
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Links
from cloudcoll.rankmap import SURE

FOLDS = 4
"""Parts of the rounds, each of which is predicted by a fit of the others."""

LEAST_SCALE = 0.05
"""Of log errors of what links carry: no fit is believed to be better."""

LIKELY = 5.0
"""Nats by which a link's rate is likely another: dozens of links often have less."""

LEAST_SCATTER = 0.001
"""Of logarithms of round trips: no more alike are those of any network."""


@dataclass(frozen=True)
class Renewed:
    """A known fabric after a probe.

    Attributes
    ----------
    fabric : Fabric
        The known one itself if nothing else is sure.
    conclusive : bool
        Whether the probe could tell who shares a link, and how much those carry.
    refused : str
        Why the groups that the probe shows were not taken, in a few words; empty if
        they were, or are the same.
    """

    fabric: Fabric
    conclusive: bool = True
    refused: str = ""


def renewed(
    known: Fabric,
    snapshot: NetworkSnapshot,
    *,
    fresh: Collection[str] = (),
    stands: bool = False,
) -> Renewed:
    """Return a known fabric of a snapshot's hosts, changed where that surely shows it.

    The place of `fresh` hosts in it is not known, or no longer: their groups need not
    be clearly better. With `stands` the groups were looked at already, and stay.
    """
    seen = measured(snapshot)
    if stands or not len(seen.heard):
        return Renewed(*_with_sure_rates(known, seen))
    found = groups_found(snapshot)
    before, after = (group_labels(one, seen.names) for one in (known, found))
    others = np.array([name not in fresh for name in seen.names])
    if fresh and _same(before[others], after[others]):
        return Renewed(infer_fabric(snapshot, found))
    conclusive, why = _is_conclusive(found, seen, before, after), ""
    if _same(before, after):
        if _sure(found) > _sure(known):
            known = replace(
                known, confidence=found.confidence, alternatives=found.alternatives
            )
    elif not conclusive:
        why = "its rounds are too few to tell who shares a link"
    elif _better(seen, before, after):
        # Of so many hosts nobody knows how sure groups are.
        if len(seen.names) > LARGE or found.confidence >= _asked(known, before):
            return Renewed(infer_fabric(snapshot, found))
        if _nearer(seen, before, after):
            return Renewed(infer_fabric(snapshot, found))
        conclusive = False
        why = f"its own groups are {_sure(found):.0%} sure"
    else:
        why = "it fits the known groups as well as its own"
    fabric, settled = _with_sure_rates(known, seen)
    return Renewed(fabric, conclusive and settled, why)


def group_labels(fabric: Fabric, names: Sequence[str]) -> Ints:
    """Return the lowest group of each host; one on the core is one by itself."""
    group = fabric.lowest_groups()
    if not group:
        return np.zeros(len(names), dtype=np.int64)
    # No host's name is a pair: a group may be called as a host is.
    keys = [f"group {group[name]}" if name in group else name for name in names]
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _same(one: Ints, other: Ints) -> bool:
    """Return whether two partitions are the same, whatever their labels."""
    pairs = len({*zip(one.tolist(), other.tolist(), strict=True)})
    return pairs == len({*one.tolist()}) == len({*other.tolist()})


def _better(seen: Figures, before: Ints, after: Ints) -> bool:
    """Return whether groups explain the measurements clearly better than others.

    Round trips or loaded rounds may say so, if the others don't say the opposite.
    """
    trips, enough = _nats_of_trips(seen, before, after)
    rounds, many = _nats_of_rounds(seen, before, after)
    return (trips > enough or rounds > many) and min(trips, rounds) > -BETTER


def _nearer(seen: Figures, before: Ints, after: Ints) -> bool:
    """Return whether round trips alone say so, which don't share a link."""
    trips, enough = _nats_of_trips(seen, before, after)
    return trips > enough


def _asked(known: Fabric, labels: Ints) -> float:
    """Return how sure other groups have to be in place of the known ones."""
    if math.isnan(known.confidence):
        return SURE if labels.any() else 0.0  # nothing was known of groups
    return min(SURE, known.confidence)


def _sure(fabric: Fabric) -> float:
    """Return how sure a fabric's groups are; what was not looked at is not."""
    return 0.0 if math.isnan(fabric.confidence) else fabric.confidence


def _is_conclusive(found: Fabric, seen: Figures, *groups: Ints) -> bool:
    """Return whether measurements can tell groups: rounds, or trips for some groups."""
    if not math.isnan(found.confidence) or len(seen.names) > LARGE:
        return True
    return any(_nearer(seen, np.zeros_like(labels), labels) for labels in groups)


def _nats_of_rounds(seen: Figures, before: Ints, after: Ints) -> tuple[float, float]:
    """Return how many nats better groups explain the rounds, and how many are clear."""
    if not len(seen.rate):
        return 0.0, BETTER
    judge = Explainer(seen)
    one, other = judge.judge(before), judge.judge(after)
    # To name known groups costs nothing: those that are fewer are not better for it.
    gain = other.score + other.penalty - one.score - one.penalty
    return gain, max(BETTER, CLEAR * float(one.meetings.sum()))


def _nats_of_trips(seen: Figures, before: Ints, after: Ints) -> tuple[float, float]:
    """Return the same of round trips: of a kind, in groups or between, they are alike.

    Log errors are taken to have Laplace's distribution.
    """
    a, b = np.nonzero(np.triu(np.isfinite(seen.rtt) & (seen.rtt > 0.0), 1))
    if not len(a):
        return 0.0, BETTER
    trips = np.log(seen.rtt[a, b])

    def scale(labels: Ints) -> float:
        inside = labels[a] == labels[b]
        parts = [trips[kind] for kind in (inside, ~inside) if kind.any()]
        off = np.concatenate([np.abs(part - np.median(part)) for part in parts])
        return max(float(off.mean()), LEAST_SCATTER)

    gain = math.log(scale(before) / scale(after))
    return len(trips) * gain, max(BETTER, CLEAR * len(trips))


def _with_sure_rates(known: Fabric, seen: Figures) -> tuple[Fabric, bool]:
    """Return the fabric with the rates of those links that are surely others now.

    And whether that is all: no link's rate is likely another, but not surely.
    """
    rounds = np.unique(seen.round)
    if len(rounds) < 2:
        return known, True
    column = np.array([known.position(name) for name in seen.names])
    links, whole = known.links, known.root

    def links_by(part: Figures) -> Links:
        return Fabric(refitted(whole, part)).links

    tests = []
    for held in np.array_split(rounds, min(FOLDS, len(rounds))):
        late = np.isin(seen.round, held)
        tests.append((seen.flows(late), links_by(seen.flows(~late))))

    def missed(taken: Bools | None) -> Floats:
        """Return what links are missed by in all rounds if some, or all, are others."""
        parts = [
            _misses(now if taken is None else _mixed(links, now, taken), test, column)
            for test, now in tests
        ]
        return np.concatenate(parts, axis=1)

    taken, settled = _surely_others(links, missed)
    if not taken.any():
        return known, settled
    renewed_links = _mixed(links, links_by(seen), taken)
    others = tuple(
        replace(one, root=_with_sure_rates(Fabric(one.root), seen)[0].root)
        for one in known.alternatives
    )
    root = with_rates(whole, known, renewed_links)
    return replace(known, root=root, alternatives=others), settled


def _surely_others(
    links: Links, missed: Callable[[Bools | None], Floats]
) -> tuple[Bools, bool]:
    """Return which links, up ones and then down ones, surely are others; whether all.

    `missed` returns what each link is missed by in each round, as `_misses` does, where
    some links are others, or all if these are None.
    """
    taken = np.zeros(2 * len(links.up), dtype=bool)
    kind, least = _kinds(links), missed(None)
    scale, now = _scales(links, least, kind), missed(taken)
    while True:
        gain = np.nansum(now - least, axis=1)
        gain[taken] = 0.0
        sure = np.where(gain > BETTER * scale, gain, 0.0)
        if not sure.any():
            return taken, not (gain > LIKELY * scale).any()
        # What one link explains is not explained by others that its flows cross, and
        # no flow crosses two of a kind. Behind a slow uplink all cards look slow, too:
        # those are taken with which least is left to explain.
        kinds = [
            np.where(kind == one, sure, 0.0) for one in np.unique(kind[sure > 0.0])
        ]
        likely = [taken | (ours > ours.max() / 2.0) for ours in kinds]
        tried = [(them, missed(them)) for them in likely]
        taken, now = min(tried, key=lambda one: float(np.nansum(one[1])))


def _scales(links: Links, missed: Floats, kind: Ints) -> Floats:
    """Return the mean of what all links are missed by; less where hosts share one.

    What many flows share is predicted better than a card, of which one flow that
    stalls is all that is seen in a round.
    """
    overall = max(float(np.nanmean(missed)), LEAST_SCALE)
    scale = np.full(len(kind), overall)
    below = np.bincount(links.member.ravel(), minlength=len(links.up))
    shared = np.tile(below > 1, 2)
    for one in np.unique(kind[shared]):
        of_kind = missed[shared & (kind == one)]
        if np.isfinite(of_kind).any():
            own = max(float(np.nanmean(of_kind)), LEAST_SCALE)
            scale[shared & (kind == one)] = min(own, overall)
    return scale


def _kinds(links: Links) -> Ints:
    """Return the depth of each link, up ones and then down ones, other numbers."""
    depth = np.zeros(len(links.up), dtype=np.int64)
    for number, row in enumerate(links.member):
        depth[row] = number
    return np.concatenate([depth, depth + len(links.member)])


def _mixed(links: Links, now: Links, taken: Bools) -> Links:
    """Return links of which some have another rate, where that is known."""
    up, down = np.split(taken, 2)
    return replace(
        links,
        up=np.where(up & np.isfinite(now.up), now.up, links.up),
        down=np.where(down & np.isfinite(now.down), now.down, links.down),
    )


def _misses(links: Links, seen: Figures, column: Ints) -> Floats:
    """Return by how much what each link carried in each round is missed.

    Shape (links up and then down, rounds): absolute log errors, NaN where no flow
    crossed a link.
    """
    numbers, number = np.unique(seen.round, return_inverse=True)
    src, dst = column[seen.src], column[seen.dst]
    due, _ = fair_rounds(links, number, src, dst)
    due = np.minimum(due, seen.rate.max())  # where no link is known to limit
    shape = (2 * len(links.up), len(numbers))
    got, expected = np.zeros(shape), np.zeros(shape)
    for row in links.member:
        crosses = row[src] != row[dst]
        for place in (row[src], row[dst] + len(links.up)):
            at = place[crosses], number[crosses]
            np.add.at(got, at, seen.rate[crosses])
            np.add.at(expected, at, due[crosses])
    known_rates = got > 0.0
    missed: Floats = np.full(shape, math.nan)
    missed[known_rates] = np.abs(np.log(got[known_rates] / expected[known_rates]))
    return missed
