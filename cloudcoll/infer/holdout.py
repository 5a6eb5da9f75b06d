"""What a fit is given of a snapshot, and how well it predicts what was held out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import RTT_QUANTILE, NetworkSnapshot
from cloudcoll.network.fair import Flows
from cloudcoll.network.tree import Fabric

HELD_OUT = 10
"""One in so many rounds and pairs is kept out of the fit that is judged."""

COVERED = 1 / 3
"""Share of the pairs that must have sent for their rounds to show groups."""

FEW = 5
"""Of fewer rounds than this none is kept out: the fit needs them all."""

LATE = 0.8
"""Times the faster of two flows of a pair from which the other counts as late. Of .67,
.8 and 1 it has most answers right, and most of them sure, of 49 probes of emulated
networks after 10 to 35 rounds (benchmarks/grid.py)."""


@dataclass(frozen=True)
class Figures:
    """Measurements of a set of hosts, one figure each.

    Attributes
    ----------
    names : tuple of str
        Host names; their positions are the indices below.
    rtt : ndarray of float64, shape (hosts, hosts)
        Round trip seconds, symmetric; NaN where not measured.
    round, src, dst : ndarray of int64, shape (flows,)
        Flows of one round ran together.
    rate : ndarray of float64, shape (flows,)
        Bytes/s, above zero.
    punctual : bool
        Whether no flow is late, as where none was sent faster than cards carry.
    pace : float
        Bytes/s that flows were sent at, NaN if as fast as TCP does.
    """

    names: tuple[str, ...]
    rtt: Floats
    round: Ints
    src: Ints
    dst: Ints
    rate: Floats
    punctual: bool = False
    pace: float = math.nan

    @cached_property
    def met(self) -> tuple[Ints, Ints]:
        """The number of each flow's meeting, and which flow is that one's fastest.

        A meeting is all that two hosts send each other in a round.
        """
        ends = np.sort([self.src, self.dst], axis=0)
        _, met = np.unique([self.round, *ends], axis=1, return_inverse=True)
        met = met.ravel()
        order = np.lexsort((self.rate, met))
        return met, order[np.diff(met[order], append=-1) != 0]

    @cached_property
    def most(self) -> Floats:
        """Bytes/s that each flow takes at most, shape (flows,); infinite where any.

        Of two flows that a pair sends each other, the acknowledgements of one wait
        behind the data of the other; and any flow may stall. The slower of two is late,
        and tells more of what it takes of links than of what these carry, unless it is
        about as fast as the other, or all are `punctual`.
        """
        if self.punctual:
            return np.full(len(self.rate), np.inf)
        met, fastest = self.met
        late = self.rate < LATE * self.rate[fastest][met]
        return np.where(late, self.rate, np.inf)

    @cached_property
    def through(self) -> Bools:
        """Which paced flows got through, shape (flows,); the others starved."""
        return np.asarray(self.rate >= THROUGH * self.pace)

    @cached_property
    def mute(self) -> Bools:
        """Which hosts none of whose paced flows got through, shape (hosts,).

        All their flows say is that some link of theirs is slower than the pace.
        """
        found = np.full(len(self.names), not math.isnan(self.pace))
        found[self.src[self.through]] = found[self.dst[self.through]] = False
        return found

    @property
    def heard(self) -> Ints:
        """Positions of the hosts of which anything was measured."""
        ends = np.concatenate([self.src, self.dst])
        return np.union1d(np.flatnonzero(np.isfinite(self.rtt).any(axis=1)), ends)

    def among(self, hosts: Ints) -> Figures:
        """Return what was measured between some hosts, by their place in `hosts`."""
        place = np.full(len(self.names), -1)
        place[hosts] = np.arange(len(hosts))
        inside = self.flows((place[self.src] >= 0) & (place[self.dst] >= 0))
        return replace(
            inside,
            names=tuple(self.names[host] for host in hosts),
            rtt=self.rtt[np.ix_(hosts, hosts)],
            src=place[inside.src],
            dst=place[inside.dst],
        )

    @property
    def alike(self) -> Figures:
        """The same with only the rounds in which pairs send both ways, if most do.

        One way, flows are faster, for no acknowledgement waits behind data: next to
        them all others look as if something had held them back.
        """
        met, _ = self.met
        both = np.isin(self.round, self.round[np.bincount(met)[met] > 1])
        return self.flows(both) if 2 * both.sum() > len(both) else self

    def flows(self, keep: Bools) -> Figures:
        """Return the same with only these flows."""
        kept = {name: getattr(self, name)[keep] for name in _FLOWS}
        return replace(self, **kept)


_FLOWS = ("round", "src", "dst", "rate")


FASTEST = 0.75
"""Quantile of hosts' fastest paced flows that tells their pace: few get no further."""

THROUGH = 0.5
"""Of its pace from which a flow got through: most do with .9 or starve with less than
.1, and there is little between .2 and .7 (benchmarks/grid.py)."""

STARVED = 0.03
"""Share of what its cards carry as which a paced flow counts that was starved: less is
as far from what fair shares predict, and weighs no more."""


def measured(snapshot: NetworkSnapshot) -> Figures:
    """Return a snapshot's round trips and loaded flows, one figure each.

    A flow of which nothing arrived says nothing of the links: it is left out. One that
    was paced, and came up, was starved by others on a link: it counts.
    """
    rtt = snapshot.latency.values
    flows = snapshot.flows
    rate = np.nan_to_num(flows.bytes_per_s)
    pace = math.nan
    if flows.paced:
        fastest = flows.fastest(len(snapshot.names))
        pace = float(np.quantile(fastest, FASTEST))
        card = np.minimum(fastest[flows.src], fastest[flows.dst])
        came_up = np.isfinite(flows.bytes_per_s)
        rate = np.where(came_up, np.maximum(rate, STARVED * card), rate)
    good = rate > 0.0
    return Figures(
        names=snapshot.names,
        rtt=np.fmin(rtt, rtt.T),
        round=flows.round[good],
        src=flows.src[good],
        dst=flows.dst[good],
        rate=rate[good],
        punctual=flows.paced,
        pace=pace,
    )


def hold_out(whole: Figures, seed: int = 0) -> tuple[Figures, Figures]:
    """Split into what is fitted and what the fit is judged by.

    Whole rounds are kept back, because flows of one round depend on each
    other, and pairs of round trips: one in `HELD_OUT`, and at least one
    round of `FEW`.
    """
    generator = np.random.default_rng(seed)
    rounds = np.unique(whole.round)
    late = np.isin(whole.round, _some(rounds, int(len(rounds) >= FEW), generator))
    a, b = np.nonzero(np.triu(np.isfinite(whole.rtt), 1))
    chosen = _some(np.arange(len(a)), 0, generator)
    pairs = np.zeros(whole.rtt.shape, dtype=bool)
    pairs[a[chosen], b[chosen]] = pairs[b[chosen], a[chosen]] = True
    return (
        replace(whole.flows(~late), rtt=np.where(pairs, np.nan, whole.rtt)),
        replace(whole.flows(late), rtt=np.where(pairs, whole.rtt, np.nan)),
    )


def _some(values: Ints, least: int, generator: np.random.Generator) -> Ints:
    count = max(len(values) // HELD_OUT, least)
    return generator.choice(values, count, replace=False)


WARN_ABOVE = 0.15
"""Median relative error from which a fabric is called a bad predictor."""

MOSTLY = 0.5
"""Share of the error from which it is put down to what rounds differ by. With the
right tree it is mostly above, as links' rates are read off their fullest rounds."""


def prediction_errors(fabric: Fabric, held: Figures) -> tuple[float, float]:
    """Return the median relative errors for round trips and for full links.

    Full links by what they carried. NaN where nothing was kept out, or nothing of
    it can be predicted.
    """
    column = np.array([fabric.position(name) for name in held.names])
    links = fabric.links
    a, b = np.nonzero(np.triu(np.isfinite(held.rtt), 1))
    trips = links.pair_rtt()[column[a], column[b]]
    ends = column[held.src], column[held.dst]
    flows = Flows(links, held.round, *ends)
    rates, limits = flows.shared(links)
    _, (got, due) = flows.on_full(limits, held.rate, rates)
    shown = trips > 0
    return (
        _median(np.abs(trips / held.rtt[a, b] - 1)[shown]),
        _median(np.abs(due / got - 1)),
    )


def _median(errors: Floats) -> float:
    return float(np.median(errors)) if len(errors) else math.nan


def known_median(values: Floats) -> float:
    """Return the median of what is known of some values; NaN where nothing is."""
    return _median(values[np.isfinite(values)])


def scatter(rtt: RttSamples) -> float:
    """Return by how much round trips of one pair are longer than its shortest ones.

    The median over the pairs, as a share; NaN where there are none.
    """
    longer = rtt.quantile(0.5) / rtt.quantile(RTT_QUANTILE) - 1.0
    return known_median(longer)


def unevenness(fabric: Fabric, seen: Figures) -> float:
    """Return the median relative error that no fabric of these hosts could avoid.

    By how much what full links carry differs between rounds of the very same
    flows: each is predicted from the others, so that the error of these, too, is
    in the difference and is taken off. NaN where no round was repeated.
    """
    column = np.array([fabric.position(name) for name in seen.names])
    links = fabric.links
    order = np.lexsort((seen.dst, seen.src, seen.round))
    flow = seen.src * len(column) + seen.dst
    same: dict[bytes, list[Ints]] = {}
    starts = np.flatnonzero(np.diff(seen.round[order])) + 1
    for one in np.split(order, starts) if len(order) else ():
        same.setdefault(flow[one].tobytes(), []).append(one)
    errors = []
    for repeats in same.values():
        if (count := len(repeats)) < 2:
            continue
        these = np.concatenate(repeats)
        ends = column[seen.src[these]], column[seen.dst[these]]
        flows = Flows(links, seen.round[these], *ends)
        _, limits = flows.shared(links)
        _, (carried,) = flows.on_full(limits, seen.rate[these])
        # The same flows fill the same links in each of the rounds.
        got = carried.reshape(count, -1)
        others = (got.sum(axis=0) - got) / (count - 1)
        errors.append(np.abs(others / got - 1.0).ravel() * math.sqrt(1 - 1 / count))
    return _median(np.concatenate(errors)) if errors else math.nan


def holdout_warning(error: float, noise: float = math.nan, mode: str = "") -> list[str]:
    """Return the line for a fabric that predicts badly, by `error`, if it does.

    `noise` is by how much the same measurement differs from time to time: `unevenness`
    for an error of links, `scatter` for one of round trips. After a probe of mode
    ``full`` there is no better.
    """
    if not error > WARN_ABOVE:
        return []
    missed = f"measurements kept out of its fit by {error:.0%} (median)"
    if noise >= MOSTLY * error:
        return [
            f"the fabric misses {missed}, mostly because the same measurement differs "
            f"by {noise:.0%} from one time to the next: busy hosts and TCP do that, "
            "and more measuring will not change it"
        ]
    if mode == "full":
        return [
            f"the fabric misses {missed}: something in this network is not in the "
            "model, and predictions may be off by as much"
        ]
    return [
        f"the fabric misses {missed}: probe again with --full when the network is quiet"
    ]
