"""Which groups explain all loaded rounds best, and how sure that is.

A partition is judged by what max-min fairness predicts for every flow of every
round once its links have the rates that fit best. So it counts who else was
sending: a flow that had a half-empty uplink to itself is fast between racks, too,
and one behind a full link says how full that was. The search goes from several
partitions to better ones by moving, splitting and joining. How sure the answer is
shows where rounds count more or less by chance: noise is explained in another way each
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.infer.fit import (
    BETTER,
    SATURATED,
    Fit,
    Load,
    fitted_links,
    group_links,
    idle,
    with_one_rate,
)
from cloudcoll.infer.grouping import naming
from cloudcoll.infer.holdout import Figures
from cloudcoll.infer.partition import (
    agreement,
    canonical,
    cuts,
    moved,
    neighbours,
    splits,
)
from cloudcoll.infer.starving import starving
from cloudcoll.network.fair import Flows
from cloudcoll.network.tree import Links

KINDS = 4
"""Of what a partition explains, as of `Explained`."""

STEPS = 40
"""Partitions taken on the way to the best one, at most."""

CLIMBS = 3
"""Partitions that such a way begins at: those that explain the rounds best."""

MOST = 400
"""Partitions that are judged on all ways together, after which none is begun: in a
network without groups there is no end to what explains noise a little better."""

FAR = 50.0
"""Nats that another beginning may be worse than what was found, to be tried at all:
half of what such a way usually gains."""

MANY = 32
"""Hosts above which it begins at the best one alone: of 64 it takes some seconds."""

HALF = 0.5
"""Weight of a late flow beside the other one of its pair. With 1 more answers are sure,
and racks are found where there are none."""

LONE = 5.0
"""Nats that it takes to say that hosts stand beside groups: one often seems to, by
chance. Without it 53 of 152 answers about emulated networks were right, and with it 72;
most of these have two racks."""

SCALES = np.geomspace(0.03, 2.0, 14)
"""Scales of log errors that are tried, from 3 % to a factor of seven. Where cards hold
flows back a model is not better than that, and a finer scale would fit the rest."""

CLEAR = 0.1
"""Nats a meeting by which they must explain more than groups that round trips show:
a scatter of errors that is narrower by a tenth. Less may be the model's own fault."""

SURELY = 20.0
"""Nats by which groups must explain more than none do, or than those that round trips
show, where flows are late: of 24 simulated networks without racks, in which a few
hosts' flows stall, the `BETTER` of others found racks in four."""

SLIGHT = 0.04
"""Nats a meeting by which groups must explain more than none do: in a network of 40
hosts without racks the best of very many partitions explains .03 more by chance."""

DRAWS = 400
"""Times that the rounds are weighted anew: a share of 95 % is then known to 1 %."""

CONCERNED = 0.5
"""Share of a round's meetings that tell two likely partitions apart. With it 99 % of 74
answers that were at least 95 % sure were right, of probes of 60 networks; with all of
them 95 % of 94, and a probe looks several times whether it is sure by now."""

TAIL = 0.1
"""Share of errors, the largest, that are taken to be no larger than the others: few
stalls would hide how alike a round's errors are."""

RIVALS = 256
"""Partitions that may win a draw, at most: those that explain the rounds best."""

STABLE = 0.75
"""Agreement of the draws with groups from which these count: clusters that agree less
are not to be relied on (Hennig 2007, of Jaccard's index, which is the stricter one)."""

SPARED = 32
"""One host in so many may stand elsewhere in groups that are called the same: of fewer
hosts none, for a pair that shares a link unknown to us may slow down all of them."""

UNEVEN = 0.2
"""Mean log error of meetings above which nobody can say that there are no groups. It is
up to .11 in 39 probes of emulated networks without racks, and from .26 on in 51 that
found none of the racks there are (benchmarks/grid.py)."""

_score = attrgetter("score")


@dataclass(frozen=True, eq=False)
class Explained:
    """A partition of hosts, and how well it explains what was measured.

    What is explained is of four kinds: how fast flows are that their cards hold
    back; what the flows together get that share a group's full link; how TCP shares
    it among them, which is seldom even; and by how much flows that are late (of
    `Figures.most`) miss what they would have got if only links had held them back.

    Attributes
    ----------
    labels : ndarray of int64, shape (hosts,)
        The group of each host.
    nats : ndarray of float64, shape (4, scales, rounds)
        Log likelihood of each kind, for each of `SCALES`; of paced flows for each of
        the chances of `cloudcoll.infer.starving`.
    errors : ndarray of float64, shape (rounds,)
        Sum of the absolute log errors of each round's meetings, of the better explained
        of the two flows, late ones left out.
    meetings : ndarray of float64, shape (4, rounds)
        How many of each kind there are, two flows of a pair of which none is late
        counted as one, and their errors by their mean.
    leanings : ndarray of float64, shape (pairs that met,)
        The mean log error of the flows of each, late ones left out, with its sign.
    rates : int
        Of groups' links: how many it takes to say what these carry.
    lone : bool
        Whether hosts stand beside groups, or in one whose link their cards cannot fill.
    """

    labels: Ints
    nats: Floats
    errors: Floats
    meetings: Floats
    leanings: Floats
    rates: int
    lone: bool

    @property
    def shares_links(self) -> bool:
        """Whether any flow is said to have shared a group's full link."""
        return bool(self.meetings[1].any())

    @property
    def penalty(self) -> float:
        """Nats that it takes to say the partition and its links (Schwarz 1978)."""
        said = self.rates * math.log(self.meetings.sum()) / 2.0
        return said + naming(np.bincount(self.labels)) + LONE * self.lone

    @cached_property
    def score(self) -> float:
        """Log likelihood with the scales that fit best, less `penalty`."""
        return float(_likelihoods([self])[0, 0]) - self.penalty


@dataclass(frozen=True, eq=False)
class Explanation:
    """The groups that the rounds show, and how sure they are.

    Attributes
    ----------
    labels : ndarray of int64, shape (hosts,)
        The group of each host.
    confidence : float
        The share of `draws` that have these groups, but for a host in 32. Where there
        are none: of those that have none either, and in which meetings were even enough
        to say so.
    draws : tuple of (float, ndarray of int64)
        Shares, which add up to 1, and what is the answer for so many of the draws;
        the most frequent first.
    """

    labels: Ints
    confidence: float
    draws: tuple[tuple[float, Ints], ...]


class Explainer:
    """Judges partitions of the hosts of some measurements, each once."""

    def __init__(self, seen: Figures) -> None:
        self.seen = seen
        self.known: dict[bytes, Explained] = {}
        self._load = Load(seen)
        self._round = np.unique(seen.round, return_inverse=True)[1]
        self._met, fastest = seen.met
        self._round_met = self._round[fastest]
        self._late = np.isfinite(seen.most)
        # Flows of a pair that are alike count as one together; late ones less.
        count = np.bincount(self._met, ~self._late)[self._met]
        self._weight = np.where(self._late, HALF, 1.0 / count)

    @property
    def rounds(self) -> int:
        """How many rounds there are."""
        return int(self._round.max()) + 1

    @property
    def none(self) -> Explained:
        """How well it explains the rounds that there are no groups."""
        return self.judge(np.zeros(len(self.seen.names), dtype=np.int64))

    def judge(self, labels: Ints) -> Explained:
        """Return how well a partition explains the rounds."""
        labels = canonical(labels)
        key = labels.tobytes()
        if key not in self.known:
            self.known[key] = self._judged(labels)
        return self.known[key]

    def _judged(self, labels: Ints) -> Explained:
        """Return the better of two: groups' links of one rate, or each of its own."""
        seen, sizes = self.seen, np.bincount(labels)
        links = group_links(labels, self._load)
        ends = seen.round, seen.src, seen.dst
        flows, free = Flows(links, *ends, most=seen.most), Flows(links, *ends)
        groups = int((sizes > 1).sum()) if len(sizes) > 1 else 0
        own = fitted_links(links, flows, seen.rate)
        found = self._with(labels, own, free, 2 * groups)
        alike = len(labels) + np.arange(groups)
        if not groups or (one_rate := with_one_rate(links, alike)) is None:
            return found
        same = fitted_links(one_rate, flows, seen.rate, alike=alike)
        # Of a group whose links hold nothing back there is as much to say as before.
        ways = np.stack([alike, alike + len(links.up)], axis=1)
        useless = len(idle(same, ways, flows))
        return max(found, self._with(labels, same, free, 1 + 2 * useless), key=_score)

    def _with(self, labels: Ints, fit: Fit, free: Flows, rates: int) -> Explained:
        """Return how well links explain the rounds.

        `free` are the flows as if none were late; `rates` is as of `Explained`.
        """
        seen, late = self.seen, self._late
        links, due, limits = fit
        if late.any():
            due = np.where(late, free.shared(links)[0], due)
        error = np.log(seen.rate / due)
        weight = self._weight.copy()
        least = np.full(len(self._round_met), np.inf)
        np.minimum.at(least, self._met[~late], np.abs(error[~late]))
        errors = _sums(self._round_met, least, self.rounds)
        told = np.where(late, 0.0, error * weight)
        leanings = _sums(self._met, told, len(self._round_met))
        lone = _lone(labels, links)
        # By a group's link, which are those after the hosts' own, up and down.
        by_group = (limits >= 0) & (limits % len(links.up) >= len(labels))
        if not math.isnan(seen.pace):
            shape = KINDS, self.rounds
            nats, meetings = starving(seen, fit, by_group, self._round, shape)
            return Explained(labels, nats, errors, meetings, leanings, rates, lone)
        held = np.flatnonzero(by_group & ~late)
        kind = np.where(late, 3, 0)
        kind[held] = 2
        # What the flows on a full link get together says more than each of them.
        case = limits[held] * self.rounds + self._round[held]
        cases, case, count = np.unique(case, return_inverse=True, return_counts=True)
        total = np.log(
            np.bincount(case, seen.rate[held], len(cases))
            / np.bincount(case, due[held], len(cases))
        )
        each = np.bincount(case, weight[held], len(cases)) / np.maximum(count, 1)
        error[held] -= total[case]
        weight[held] *= 1.0 - 1.0 / count[case]
        round_ = np.concatenate([self._round, cases % self.rounds])
        kind = np.concatenate([kind, np.ones(len(cases), dtype=np.int64)])
        place = kind * self.rounds + round_
        off = np.abs(np.concatenate([error, total]))
        weight = np.concatenate([weight, each])
        nats = self._nats(place, off, weight)
        # Of n flows the sum has the density of all, but for a factor of n.
        nats[1] -= _sums(cases % self.rounds, each * np.log(count), self.rounds)
        meetings = _sums(place, weight, KINDS * self.rounds).reshape(KINDS, -1)
        return Explained(labels, nats, errors, meetings, leanings, rates, lone)

    def _nats(self, place: Ints, off: Floats, weight: Floats) -> Floats:
        """Return log likelihoods of log errors, shape (4, scales, rounds).

        They are taken to have Pareto's distribution to both sides: most are small
        where a card holds flows back, and any flow may stall.
        """
        scale = SCALES[:, None]
        density = -weight * (np.log(2.0 * scale) + 2.0 * np.log1p(off / scale))
        count = KINDS * self.rounds
        places = place + count * np.arange(len(SCALES))[:, None]
        nats = _sums(places.ravel(), density.ravel(), len(SCALES) * count)
        return nats.reshape(len(SCALES), KINDS, -1).swapaxes(0, 1).copy()

    def answer(
        self,
        starts: Iterable[Ints],
        near: Floats,
        rates: Floats,
        likely: Ints | None = None,
    ) -> Explanation:
        """Return the groups that the rounds show.

        The search begins with the partitions `starts`. In `near`, shape (hosts, hosts),
        the higher, the likelier two hosts are of one group: it decides what is tried,
        and where no step helps, so do `rates`, of which each two met how fast.
        Groups that something else shows, `likely`, stay unless the rounds are clearly
        against them.
        """
        ranked = sorted({*map(self.judge, starts)}, key=_score, reverse=True)
        climbs = CLIMBS if len(near) <= MANY else 1
        ways: list[Explained] = []
        for start in (*ranked[:climbs], self.none):
            if not ways or start.score >= max(map(_score, ways)) - FAR:
                ways.append(self._climbed(start, near, rates))
        usual = self.none if likely is None else self.judge(likely)
        ways += [usual, *sorted(self.known.values(), key=_score, reverse=True)[:RIVALS]]
        rivals = list(dict.fromkeys(ways))
        winners = partial(self._winners, rivals, usual, likely is not None)
        best = rivals[int(winners()[0])]
        if best is not usual:
            # What holds a host's flows back goes on from round to round: whether there
            # are groups at all has to show whichever rounds count.
            stable = sum(
                share * agreement(best.labels, one.labels)
                for share, one in _shares(winners(self._times(1.0)), rivals)
            )
            if stable < STABLE:
                best = usual
        pieces = CONCERNED * independent(best.leanings, self._round_met)
        times = self._times(max(pieces, 1.0))
        won = winners(times)
        draws = [(share, one.labels) for share, one in _shares(won, rivals)]
        confidence = sum(
            share
            for share, drawn in draws
            if moved(best.labels, drawn) <= len(drawn) // SPARED
        )
        if best is self.none:
            met = times @ best.meetings.sum(axis=0)
            even = times @ best.errors < UNEVEN * met
            confidence = float(np.mean(even & (won == rivals.index(best))))
        return Explanation(best.labels, confidence, tuple(draws))

    def _times(self, pieces: float) -> Floats:
        """Return how often each round counts in each draw, shape (`DRAWS`, rounds).

        By the Bayesian bootstrap (Rubin 1981) of `pieces` of evidence in a round.
        """
        generator = np.random.default_rng(0)
        return generator.dirichlet([pieces] * self.rounds, DRAWS) * self.rounds

    def _climbed(self, found: Explained, near: Floats, rates: Floats) -> Explained:
        """Return the best partition that steps to better ones lead to."""
        for _ in range(STEPS):
            if len(self.known) > MOST:
                break
            steps = (
                neighbours(found.labels, near),
                splits(found.labels),
                cuts(found.labels, rates),
            )
            for step in steps:
                better = max(map(self.judge, step), key=_score, default=found)
                if better.score > found.score + 1e-9:
                    break
            else:
                break
            found = better
        return found

    def _winners(
        self,
        rivals: Sequence[Explained],
        usual: Explained,
        is_likely: bool,
        times: Floats | None = None,
    ) -> Ints:
        """Return which partition is the answer, for each way to count the rounds.

        That is the one that explains them best, if it is clearly better than the usual
        one, which `is_likely` if something else shows its groups. `times`, of shape
        (ways, rounds), says how often each round counts: once if not given.
        """
        likelihood = _likelihoods(rivals, times)
        score = likelihood - np.array([one.penalty for one in rivals])[:, None]
        best, ways = score.argmax(axis=0), np.arange(score.shape[1])
        default = rivals.index(usual)
        met = usual.meetings.sum(axis=0)
        met = met.sum() if times is None else times @ met
        worth, least = (likelihood, CLEAR) if is_likely else (score, SLIGHT)
        gain = worth[best, ways] - worth[default]
        enough = SURELY if self._late.any() else BETTER
        clear = gain > np.maximum(enough, least * met)
        shares = np.array([one.shares_links for one in rivals])
        return np.where(shares[best] & clear, best, default).astype(np.int64)


def _lone(labels: Ints, links: Links) -> bool:
    """Return whether hosts are beside groups, or in one whose link they cannot fill."""
    sizes, hosts = np.bincount(labels), len(labels)
    groups = np.flatnonzero(sizes > 1)
    if len(sizes) == 1:
        return False
    filled = np.zeros(len(groups), dtype=bool)
    for way in (links.up, links.down):
        cards = np.bincount(labels, way[:hosts])[groups]
        filled |= way[hosts : hosts + len(groups)] < SATURATED * cards
    return len(groups) < len(sizes) or not filled.all()


def _shares(
    winners: Ints, rivals: Sequence[Explained]
) -> list[tuple[float, Explained]]:
    """Return in which share of the draws who won, the most frequent first."""
    share = np.bincount(winners, minlength=len(rivals)) / len(winners)
    order = np.argsort(-share, kind="stable")[: np.count_nonzero(share)]
    return [(float(share[i]), rivals[i]) for i in order.tolist()]


def _sums(place: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(place, values, count).astype(np.float64)


def _likelihoods(rivals: Sequence[Explained], times: Floats | None = None) -> Floats:
    """Return log likelihoods where each round counts so often.

    Shape (rivals, ways), with the scales that fit best; `times` as of `_winners`.
    """
    nats = np.stack([one.nats for one in rivals])
    if times is None:
        times = np.ones((1, nats.shape[-1]))
    best: Floats = (nats @ times.T).max(axis=2).sum(axis=1)
    return best


def independent(error: Floats, round_: Ints) -> float:
    """Return how many of a round's errors are independent evidence, on average.

    All of them, unless those of a round are alike: Kish's design effect (1965), by
    Fisher's intraclass correlation. Rounds are numbered from 0, none without errors.
    """
    count = np.bincount(round_).astype(np.float64)
    rounds, mean = len(count), len(error) / len(count)
    if rounds < 2 or len(error) == rounds:
        return 1.0
    most = np.quantile(np.abs(error), 1.0 - TAIL)
    error = np.clip(error, -most, most)
    by_round = np.bincount(round_, error) / count
    within = np.sum((error - by_round[round_]) ** 2) / (len(error) - rounds)
    between = np.sum(count * (by_round - error.mean()) ** 2) / (rounds - 1)
    total = between + (mean - 1.0) * within
    alike = max(float((between - within) / total), 0.0) if total > 0.0 else 0.0
    return mean / (1.0 + (mean - 1.0) * alike)
