"""What beats see against the snapshot in force, and whether a figure changed for good.

That is a two-sided CUSUM. E. S. Page, "Continuous inspection schemes", Biometrika 41
(1954): sums of what departs from the usual by more than a slack grow without bound
after a change and fall back to zero without. The usual value and its spread are not
known beforehand; they are learnt while nothing changes (D. M. Hawkins, "Self-starting
CUSUM charts for location and scale", The Statistician 36, 1987). Values are cut at
`CLIP` spreads, so that no single one makes a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats, Ints
from cloudcoll.daemon.beats import Beat, HostGroup
from cloudcoll.infer.holdout import known_median, measured
from cloudcoll.measured.snapshot import RTT_QUANTILE, NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node

FULL = 0.85
"""A link of unknown capacity that lets through less than this share of what was
expected is what held the flows back."""


@dataclass(frozen=True)
class Ratios:
    """Figures of one group's uplink, measured over expected; NaN for unknown.

    Attributes
    ----------
    trip : float
        The expected round trip out of the group, seconds.
    rates : tuple of float
        Bytes/s measured out of the group and into it.
    """

    rtt: float = math.nan
    up: float = math.nan
    down: float = math.nan
    trip: float = math.nan
    rates: tuple[float, float] = (math.nan, math.nan)

    def over(self, first: Sequence[Ratios]) -> Ratios:
        """Return the same with rates divided by the median of the `first` ones.

        A burst has its own idea of a rate: switches let its first bytes pass,
        and TCP is just beginning.
        """
        up, down = (
            known_median(np.array([getattr(one, way) for one in first]))
            for way in ("up", "down")
        )
        return replace(self, up=self.up / up, down=self.down / down)

    def series(self, group: str) -> Iterator[tuple[str, float]]:
        """Yield the name and the logarithm of each ratio."""
        for name in ("rtt", "up", "down"):
            yield f"{name} {group}", logarithm(getattr(self, name))


def groups_of(fabric: Fabric) -> tuple[HostGroup, ...]:
    """Return the lowest groups, and each host on the core by itself."""
    below = fabric.lowest_groups()
    named: dict[str, list[str]] = {}
    for host, name in below.items():
        named.setdefault(name, []).append(host)
    loose = (host for host in fabric.hosts if host not in below)
    racks = (HostGroup(name, tuple(hosts)) for name, hosts in named.items())
    return (*racks, *(HostGroup("", (host,)) for host in loose))


def ratios(fabric: Fabric, beat: Beat, seen: NetworkSnapshot) -> Ratios:
    """Return what a beat measured between members and partners, over the expected.

    The fabric is that in force, `seen` a probe of hosts of the beat.
    """
    part = fabric.restrict(seen.names)
    links = part.links
    column = np.array([part.position(name) for name in seen.names])
    member = np.isin(seen.names, [name for name, _ in beat.pairs])
    found = measured(seen)
    a, b = np.nonzero(np.isfinite(found.rtt) & (member[:, None] > member))
    expected = links.pair_rtt()[column[a], column[b]]
    src, dst = column[found.src], column[found.dst]
    fair, _ = fair_rounds(links, found.round, src, dst)
    out, into = (
        (float(found.rate[way].sum()), float(fair[way].sum()))
        for way in (member[found.src], member[found.dst])
    )
    return Ratios(
        rtt=known_median(_over(found.rtt[a, b], expected)),
        up=float(_over(*out)),
        down=float(_over(*into)),
        trip=known_median(expected),
        rates=(out[0], into[0]),
    )


def drifted(fabric: Fabric, seen: Mapping[str, Ratios]) -> Fabric:
    """Return the fabric in force with the uplinks of groups as they were seen last."""

    def changed(node: Node) -> Node:
        if not node.children:
            return node
        node = replace(node, children=tuple(map(changed, node.children)))
        one = seen.get(node.name)
        if one is None:
            return node
        late = (one.rtt - 1.0) * one.trip / 2.0
        return replace(
            node,
            uplink_bytes_per_s=_rate(node.uplink_bytes_per_s, one.up, one.rates[0]),
            downlink_bytes_per_s=_rate(
                node.downlink_bytes_per_s, one.down, one.rates[1]
            ),
            # Links never shorten a path, whatever the noise says.
            latency_s=max(node.latency_s + (0.0 if math.isnan(late) else late), 0.0),
        )

    return replace(fabric, root=changed(fabric.root))


def median_trips(probe: NetworkSnapshot) -> dict[str, float]:
    """Return each host's median round trip, in seconds; NaN where none was taken.

    From the pairs themselves: a matrix of a thousand hosts is large.
    """
    trips = probe.rtt
    ends = np.concatenate([trips.src, trips.dst])
    seconds = np.tile(trips.quantile(RTT_QUANTILE), 2)
    order = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[order], np.arange(1, len(probe.names)))
    parts = np.split(seconds[order], first)
    return dict(zip(probe.names, map(known_median, parts), strict=True))


def logarithm(ratio: float) -> float:
    """Return the logarithm of a ratio; NaN where it is not known."""
    return math.log(ratio) if 0.0 < ratio < math.inf else math.nan


def _rate(known: float, ratio: float, seen: float) -> float:
    """Return the capacity of a link of which `ratio` of the expected was seen."""
    if math.isnan(ratio):
        return known
    if math.isnan(known):
        return seen if ratio < FULL else known
    return known * ratio


def _over(seen: npt.ArrayLike, expected: npt.ArrayLike) -> Floats:
    """Return the ratio; NaN where nothing is expected, or no limit known."""
    known = np.isfinite(expected) & (np.asarray(expected) > 0.0)
    ratio: Floats = np.full(known.shape, math.nan)
    np.divide(seen, expected, out=ratio, where=known)
    return ratio


FIRST = 3
"""Values whose median is the usual one in the beginning."""
SLACK = 0.5
"""Spreads that a value may depart at no charge: half of the least change that
matters (Page)."""
CLIP = 4.0
"""Spreads beyond which a value counts no more."""
LEARNT = 2.0
"""Spreads beyond which a value teaches no more of what is usual: a change must
not hide behind the spread that it makes itself."""
LIMIT = 13.0
"""Sum, in spreads, that is a change. For values of normal distribution one in
1.4 million crosses it without any (D. Siegmund, Sequential Analysis, 1985), and
after a large change the fourth."""
TORN = math.log(2.0)
"""Between the first values, it is a change as well, if it is `CLIP` spreads, too: none
of them is the usual."""
MEMORY = 0.05
"""Weight of a new value in what is usual: the last twenty or so count."""
LEAST_SPREAD = 0.05
"""What a probe of a fraction of a second can tell at best, relative."""
FIRST_SPREAD = 0.10
"""Spread that is believed until values say otherwise, of a beat of `USUAL_TRIPS`."""
USUAL_TRIPS = 12
"""Round trips of a beat in the labs in which that was found: of racks of four."""


@dataclass(frozen=True)
class Watched:
    """A series of logarithms of ratios, such as a rate over what it was.

    Attributes
    ----------
    first : tuple of float
        The first values, until there are `FIRST` of them.
    usual, spread : float
        Mean, and standard deviation, while nothing changes.
    above, below : float
        The two sums.
    last : float
        How many spreads the last value departed, at most `CLIP`.
    """

    first: tuple[float, ...] = ()
    usual: float = math.nan
    spread: float = FIRST_SPREAD
    above: float = 0.0
    below: float = 0.0
    last: float = 0.0

    @property
    def changed(self) -> bool:
        """Whether the series is not what it was."""
        apart = max(self.first) - min(self.first) if self.first else 0.0
        torn = apart > max(TORN, CLIP * self.spread)
        return torn or max(self.above, self.below) > LIMIT

    @property
    def suspicious(self) -> bool:
        """Whether the last value departs so far that it is worth another look."""
        return abs(self.last) >= CLIP

    @classmethod
    def of(cls, beat: Beat) -> Watched:
        """Return a series of such beats before its first value.

        The median of n values has a spread that falls with their root.
        """
        return cls(spread=FIRST_SPREAD * math.sqrt(max(USUAL_TRIPS / beat.trips, 1.0)))

    def afresh(self) -> Watched:
        """Return the series of which the noise alone is known."""
        return Watched(spread=self.spread)

    def answered(self) -> Watched:
        """Return the series after what its sums stand for was looked into."""
        return replace(self, above=0.0, below=0.0)

    def after(self, value: float) -> Watched:
        """Return the series with one more value; NaN changes nothing."""
        if math.isnan(value):
            return self
        if len(self.first) < FIRST:
            first = (*self.first, value)
            return replace(self, first=first, usual=median(first))
        spread = max(self.spread, LEAST_SPREAD)
        departs = min(max((value - self.usual) / spread, -CLIP), CLIP)
        moved = min(max(departs, -LEARNT), LEARNT) * spread
        variance = (1 - MEMORY) * self.spread**2 + MEMORY * moved**2
        return replace(
            self,
            usual=self.usual + MEMORY * moved,
            spread=math.sqrt(variance),
            above=max(0.0, self.above + departs - SLACK),
            below=max(0.0, self.below - departs - SLACK),
            last=departs,
        )


TOLERANCE = 0.25
"""Share by which a round trip may be another than the fabric's."""


def still_stands(fabric: Fabric, snapshot: NetworkSnapshot) -> bool:
    """Return whether new round trips leave hosts and latencies where they were.

    Not if two hosts of different switches are nearer to each other than before, which
    no noise makes them, nor if more than half of a host's round trips are longer.
    """
    trips, column = snapshot.rtt, np.array([*map(fabric.position, snapshot.names)])
    ends = column[np.array([trips.src, trips.dst])]
    expected = fabric.links.trips(*ends)
    seconds = trips.quantile(RTT_QUANTILE)
    known = np.isfinite(seconds) & (expected > 0.0)
    ratio, ends = seconds[known] / expected[known], ends[:, known]
    a, b = _switches(fabric)[ends]
    if ((ratio < 1.0 - TOLERANCE) & (a != b)).any():
        return False
    longer = np.bincount(ends.ravel(), np.tile(ratio > 1.0 + TOLERANCE, 2))
    return bool((2 * longer <= np.bincount(ends.ravel())).all())


def _switches(fabric: Fabric) -> Ints:
    """Return the number of the switch of each host, by position."""
    groups = [node for level in fabric.groups() for node in level]
    switch = {
        child.name: number
        for number, node in enumerate(groups)
        for child in node.children
        if not child.children
    }
    return np.array([switch[name] for name in fabric.hosts])
