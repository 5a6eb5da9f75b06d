"""Compare what a beat measured with the snapshot in force."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats
from cloudcoll.daemon.beats import Beat, HostGroup
from cloudcoll.infer.holdout import measured
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
    rtt, up, down : float
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
            _middle(np.array([getattr(one, way) for one in first]))
            for way in ("up", "down")
        )
        return replace(self, up=self.up / up, down=self.down / down)

    def series(self, group: str) -> Iterator[tuple[str, float]]:
        """Yield the name and the logarithm of each ratio."""
        for name in ("rtt", "up", "down"):
            yield f"{name} {group}", logarithm(getattr(self, name))


def groups_of(fabric: Fabric) -> tuple[HostGroup, ...]:
    """Return the lowest groups, and each host on the core by itself."""
    below = {
        host: node.name
        for node in fabric.groups()[0]
        if node is not fabric.root
        for host in node.leaves()
    }
    named: dict[str, list[str]] = {}
    for host, name in below.items():
        named.setdefault(name, []).append(host)
    loose = (host for host in fabric.hosts if host not in below)
    racks = (HostGroup(name, tuple(hosts)) for name, hosts in named.items())
    return (*racks, *(HostGroup("", (host,)) for host in loose))


def ratios(fabric: Fabric, beat: Beat, seen: NetworkSnapshot) -> Ratios:
    """Return what a beat measured between members and partners, over the expected.

    Parameters
    ----------
    fabric : Fabric
        In force.
    beat : Beat
    seen : NetworkSnapshot
        A probe of hosts of the beat.
    """
    part = fabric.restrict(seen.names)
    links = part.links()
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
        rtt=_middle(_over(found.rtt[a, b], expected)),
        up=float(_over(*out)),
        down=float(_over(*into)),
        trip=_middle(expected),
        rates=(out[0], into[0]),
    )


def drifted(fabric: Fabric, seen: Mapping[str, Ratios]) -> Fabric:
    """Return the fabric with the uplinks of groups as they were seen last.

    Parameters
    ----------
    fabric : Fabric
        In force.
    seen : mapping of str to Ratios
        By the name of the group.
    """

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
    return dict(zip(probe.names, map(_middle, parts), strict=True))


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


def _middle(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan
