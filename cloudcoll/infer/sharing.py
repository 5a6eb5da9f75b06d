"""Who shares a switch, by loaded rounds alone.

Flows between hosts of one switch meet nothing but their NICs; flows that leave
it are slow whenever others fill the uplink. How slow either kind is, and how
much a queue, a policer or a busy host scatters it, differs from network to
network, so nothing is assumed of it: groups are sought for which the rates of
flows inside differ most from those between, as a stochastic block model with
two kinds of pairs has it (Aicher, Jacobs, Clauset 2014, for weighted graphs).
They count if they explain the rates better than groups could by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer.explain import Explainer, Explanation
from cloudcoll.infer.grouping import naming
from cloudcoll.infer.holdout import COVERED, Figures
from cloudcoll.infer.partition import canonical, line

LARGE = 64
"""Hosts up to which partitions are judged by predicting every flow: that takes
seconds. Of more hosts the kinds of pairs alone decide, of which there are many."""

ALONE = 2
"""Flows of a round up to which they met on no link: each pair was measured by
itself, and a slow one is slow whoever else sends."""

LEVELS = 10
"""Kinds of rates that are told apart, at most: equally many of each."""

LEAST = 12
"""Meetings of each such kind, at least: fewer would be fitted to noise."""

ROUNDS = 8
"""Times that groups, and how fast flows inside them are, are refined."""

REFINED = 3
"""Cuts of many hosts that are refined: those that explain the rates best."""

SLOW = 0.1
"""Quantile of the paces from which on a meeting is as slow as any: it stalled."""

CUTS = 24
"""Numbers of groups with which the search begins, at most."""


class _Meetings(NamedTuple):
    """Two hosts each that sent at the same time, and how much of it got through.

    A pair that sent both ways in a round met once: what held back one of its
    flows mostly held back the other.

    Attributes
    ----------
    one, other : ndarray of int64, shape (meetings,)
        Positions of the hosts.
    share : ndarray of float64, shape (meetings,)
        Rate over what the slower of the two cards carries.
    round : ndarray of int64, shape (meetings,)
        In which they met, numbered from 0.
    """

    one: Ints
    other: Ints
    share: Floats
    round: Ints


class LoadSplitter:
    """Splits hosts into groups that share a switch, as loaded rounds show them.

    Parameters
    ----------
    hosts : ndarray of int64
        Positions in `seen`; what is split are positions in these.

    Attributes
    ----------
    answer : Explanation or None
        How sure it is how all of them are split; None while nobody has asked, and
        where there are too many hosts to tell, or too few flows.
    """

    def __init__(self, seen: Figures, hosts: Ints) -> None:
        self.answer: Explanation | None = None
        self._seen, self._hosts = seen.alike, hosts

    def __call__(
        self, items: list[int], likely: list[list[int]] | None = None
    ) -> list[list[int]] | None:
        """Return the groups among positions in `hosts`; None where rounds show none.

        `likely` are groups of them that something else shows.
        """
        whole = len(items) == len(self._hosts)
        if likely is not None and not whole:
            # Of what loads their links, the flows from elsewhere are missing here.
            return None
        chosen = self._seen.among(self._hosts[np.asarray(items)])
        told = np.flatnonzero(~chosen.mute)
        of_told = [items[host] for host in told.tolist()]
        labels, answer = _partition(chosen.among(told), _labels(of_told, likely))
        if len(told) < len(items):
            labels = None if labels is None else _beside(labels, told, len(items))
            answer = answer and _all_beside(answer, told, len(items))
        if whole:
            self.answer = answer
        return None if labels is None else parted(items, labels)


def _beside(labels: Ints, told: Ints, hosts: int) -> Ints:
    """Return groups of the hosts that are `told` of as such of all.

    In no group would anything show that the others are in it: they stand beside.
    """
    everyone = np.zeros(hosts, dtype=np.int64)
    if labels.any():
        everyone = labels.max() + 1 + np.arange(hosts)
        everyone[told] = labels
    return canonical(everyone)


def _all_beside(answer: Explanation, told: Ints, hosts: int) -> Explanation:
    """Return an answer about the hosts that are `told` of as one about all."""
    draws = [(share, _beside(drawn, told, hosts)) for share, drawn in answer.draws]
    labels = _beside(answer.labels, told, hosts)
    return replace(answer, labels=labels, draws=tuple(draws))


def parted(items: Sequence[int], labels: Ints) -> list[list[int]] | None:
    """Return items by their labels; None where they share no link beside a card."""
    if not 1 < np.bincount(labels).max() < len(labels) - 1:
        # The link of all but one host carries what the card of that one does.
        return None
    groups = range(int(labels.max()) + 1)
    return [[items[i] for i in np.flatnonzero(labels == g).tolist()] for g in groups]


def _labels(items: list[int], groups: list[list[int]] | None) -> Ints | None:
    """Return groups of items as labels."""
    if groups is None:
        return None
    number = {item: group for group, part in enumerate(groups) for item in part}
    return np.array([number[item] for item in items])


def _partition(
    seen: Figures, likely: Ints | None
) -> tuple[Ints | None, Explanation | None]:
    """Return the likeliest groups of all hosts, None if unknown, and how sure."""
    met, hosts = _meetings(seen), len(seen.names)
    none = np.zeros(hosts, dtype=np.int64)
    known = len(np.unique(met.one * hosts + met.other))
    if hosts < 3 or 2 * known < COVERED * hosts * (hosts - 1):
        return None, None
    near = _near(met, hosts)
    starts = list(_starts(near))
    if hosts <= LARGE and len(seen.rate) > ALONE * len(np.unique(seen.round)):
        starts += [labels for labels, _ in _blocks(met, starts)]
        answer = Explainer(seen).answer(starts, _contrast(met, hosts), near, likely)
        if not answer.labels.any() and np.isfinite(seen.most).any():
            # On links that are hardly full, uneven shares look like flows that are
            # late: that there are no groups has to show if none is, too.
            _, even = _partition(replace(seen, punctual=True), likely)
            if even is not None:
                as_sure = 0.0 if even.labels.any() else even.confidence
                answer = replace(answer, confidence=min(as_sure, answer.confidence))
        return answer.labels, answer
    if likely is not None:
        return None, None
    # Groups that explain no more than chance are none; one group is all but busy hosts.
    labels, gain = max(_blocks(met, starts), key=itemgetter(1), default=(none, 0.0))
    several = np.count_nonzero(np.bincount(labels) > 1) > 1
    return (labels if several and gain > 0.0 else none), None


def in_line(seen: Figures) -> Ints:
    """Return hosts in a line, as positions: its ends least likely share a link."""
    return line(_contrast(_meetings(seen.alike), len(seen.names)))


def _meetings(seen: Figures) -> _Meetings:
    """Return what each two hosts got through in each round, both ways together."""
    card = _cards(seen)
    share = np.log(seen.rate / np.minimum(card[seen.src], card[seen.dst]))
    number, fastest = seen.met
    told = np.isinf(seen.most)
    both = np.bincount(number, share * told) / np.bincount(number, told)
    one, other = np.sort([seen.src[fastest], seen.dst[fastest]], axis=0)
    apart = one != other  # a host shares nothing with itself
    round_ = np.unique(seen.round[fastest][apart], return_inverse=True)[1]
    return _Meetings(one[apart], other[apart], np.exp(both[apart]), round_)


def _cards(seen: Figures) -> Floats:
    """Return what each host's card carries: its fastest flows, either way.

    The mean of the two fastest, since a host that hands over late what has
    arrived makes a single flow look faster than its card.
    """
    # Both directions together: one host may never have sent within its rack.
    ends = np.concatenate([seen.src, seen.dst])
    rates = np.tile(seen.rate, 2)
    order = np.lexsort((-rates, ends))
    hosts, first, count = np.unique(ends[order], return_index=True, return_counts=True)
    ordered = rates[order]
    card = np.zeros(len(seen.names))
    card[hosts] = (ordered[first] + ordered[first + np.minimum(count, 2) - 1]) / 2.0
    return card


def _contrast(met: _Meetings, hosts: int) -> Floats:
    """Return how much speaks for each two hosts being of one group.

    Who was slow in a round crossed what others had filled, and who was fast did not; a
    round in which all are fast tells nothing.
    """
    pace = np.log(met.share)
    slow = np.quantile(pace, SLOW)
    full = -np.bincount(met.round, pace) / np.bincount(met.round)
    told = full[met.round] * (np.maximum(pace, slow) - slow / 2.0)
    contrast = np.zeros((hosts, hosts))
    np.add.at(contrast, (met.one, met.other), told)
    return contrast + contrast.T


def _blocks(met: _Meetings, starts: Sequence[Ints]) -> list[tuple[Ints, float]]:
    """Return groups that a block model of the rates has, and the nats they explain."""
    levels = min(LEVELS, len(met.share) // LEAST)
    if levels < 2:
        return []
    level = _levels(met.share, levels)
    # To refine a bad cut of hundreds of hosts takes seconds, and ends no better.
    promising = sorted(starts, key=lambda cut: -_gain(met, level, levels, cut))
    return [_refined(met, level, levels, start) for start in promising[:REFINED]]


def _levels(share: Floats, levels: int) -> Ints:
    """Return which of equally many rates each is among, the slowest first."""
    rank = np.argsort(np.argsort(share, kind="stable"), kind="stable")
    return rank * levels // len(share)


def _near(met: _Meetings, hosts: int) -> Floats:
    """Return how fast each two hosts mostly were with each other, logarithmic."""
    total, count = np.zeros((hosts, hosts)), np.zeros((hosts, hosts))
    # Seconds a byte add up over what holds flows back; rates don't.
    np.add.at(total, (met.one, met.other), 1.0 / met.share)
    np.add.at(count, (met.one, met.other), 1.0)
    total, count = total + total.T, count + count.T
    usual = total.sum() / count.sum()
    # Of pairs that never met as much is known as of one meeting of the usual kind.
    near: Floats = -np.log((total + usual) / (count + 1.0))
    return near


def _starts(near: Floats) -> Iterator[Ints]:
    """Yield partitions to begin with: cuts of an average linkage of the rates."""
    from scipy.cluster.hierarchy import cut_tree, linkage
    from scipy.spatial.distance import squareform

    hosts = len(near)
    distance = np.exp(-near)
    np.fill_diagonal(distance, 0.0)
    merges = linkage(squareform(distance, checks=False), "average")
    groups = np.unique(np.geomspace(2, max(2, hosts - 1), CUTS).round().astype(int))
    for column in cut_tree(merges, n_clusters=groups).T:
        yield column.astype(np.int64)


def _refined(
    met: _Meetings, level: Ints, levels: int, labels: Ints
) -> tuple[Ints, float]:
    """Return groups that explain the rates best, near those to begin with.

    And by how many nats better than no groups, what it takes to name them
    taken off.
    """
    hosts = len(labels)
    for _ in range(ROUNDS):
        odds = _odds(level, levels, labels[met.one] == labels[met.other])
        worth = np.zeros((hosts, hosts))
        np.add.at(worth, (met.one, met.other), odds[level])
        found = _improved(worth + worth.T, labels)
        if (found == labels).all():
            break
        labels = found
    return labels, _gain(met, level, levels, labels)


def _odds(level: Ints, levels: int, inside: Bools) -> Floats:
    """Return the log odds that a meeting of each level is inside a group.

    The faster, the likelier: levels that say otherwise are joined with their
    neighbours, as in isotonic regression.
    """
    from scipy.optimize import isotonic_regression

    near = np.bincount(level[inside], minlength=levels) + 0.5
    all_ = np.bincount(level, minlength=levels) + 1.0
    share = isotonic_regression(near / all_, weights=all_).x
    usual = (inside.sum() + 0.5) / (len(inside) + 1.0)
    odds: Floats = np.log(share / (1 - share)) - math.log(usual / (1 - usual))
    return odds


def _gain(met: _Meetings, level: Ints, levels: int, labels: Ints) -> float:
    """Return by how many nats groups explain the rates better than none do.

    What it takes to say who is in which group, and how fast flows inside and
    between them are, is taken off (Schwarz 1978).
    """
    inside = labels[met.one] == labels[met.other]
    if inside.all() or not inside.any():
        return 0.0
    counts = np.array(
        [np.bincount(level[k], minlength=levels) for k in (inside, ~inside)]
    )
    expected = counts.sum(axis=0) * counts.sum(axis=1, keepdims=True) / counts.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = np.where(counts > 0, counts * np.log(counts / expected), 0.0).sum()
    named = naming(np.bincount(labels))
    return float(nats - named - 0.5 * (levels - 1) * math.log(len(level)))


def _improved(worth: Floats, labels: Ints) -> Ints:
    """Move single hosts and join groups as long as that is worth something."""
    labels = labels.copy()
    # Each step gains; the bound is for gains that rounding makes up.
    for _ in range(len(labels) ** 2):
        labels = np.unique(labels, return_inverse=True)[1]
        # One column more: a group of its own.
        member = np.eye(int(labels.max()) + 2)[labels]
        gains = worth @ member
        moves = gains - gains[np.arange(len(labels)), labels][:, None]
        joins = np.triu(member.T @ gains, 1)
        if max(moves.max(), joins.max()) <= 1e-9:
            return labels
        if moves.max() >= joins.max():
            host, target = np.unravel_index(moves.argmax(), moves.shape)
            labels[host] = target
        else:
            one, other = np.unravel_index(joins.argmax(), joins.shape)
            labels[labels == other] = one
    return np.unique(labels, return_inverse=True)[1]
