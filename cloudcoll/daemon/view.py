"""What a daemon knows at one moment, as a value: all that its answers are made of."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloudcoll.rankmap import RankMap


@dataclass(frozen=True)
class HostView:
    """One host, as last seen.

    Attributes
    ----------
    rtt_s : float
        Median round trip to the hosts it met last; NaN where not measured.
    failed : str
        Why nothing could be measured with it; empty if it answers.
    """

    name: str
    rtt_s: float = math.nan
    failed: str = ""


@dataclass(frozen=True)
class GroupView:
    """Hosts that share an uplink, as last seen against the snapshot in force.

    Attributes
    ----------
    name : str
        As in the snapshot's fabric.
    rtt, up, down : float
        Round trips that leave the group, and the rates out of it and into it:
        what was measured over what the snapshot says; NaN where not measured.
    """

    name: str
    hosts: tuple[str, ...]
    rtt: float = math.nan
    up: float = math.nan
    down: float = math.nan


@dataclass(frozen=True)
class MapView:
    """A map that the daemon keeps.

    Attributes
    ----------
    question : str
        Names what was asked: see `cloudcoll.daemon.verdict.OrderQuestion.key`.
    drift : float
        Its predicted seconds by what was measured last, over those by the
        snapshot in force; NaN where not known.
    """

    question: str
    rank_map: RankMap
    drift: float = math.nan


@dataclass(frozen=True)
class Point:
    """One figure of the history, for a curve.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    series : str
        Such as ``map KEY`` or ``up GROUP``.
    """

    time: float
    series: str
    value: float


@dataclass(frozen=True)
class Publication:
    """A snapshot that was put in force.

    Attributes
    ----------
    time : float
        Seconds since the epoch.
    kept : bool
        Whether the order stayed, with new figures.
    gain : float
        What the best order gained over the one before, as a share of its time.
    reason : str
        Why the network was measured: which series changed, for one.
    """

    time: float
    kept: bool
    gain: float
    reason: str


@dataclass(frozen=True)
class Trust:
    """What the answers rest on, and what was not taken into account.

    Attributes
    ----------
    measured : float
        When the snapshot in force was measured, in seconds since the epoch.
    confidence : float
        How sure its groups are: see `cloudcoll.network.tree.Fabric`.
    groups : int
        Groups of two hosts or more.
    probed : float
        When all hosts were probed last; NaN if not since.
    refused : str
        Why that probe was not taken; empty if it was, or shows the same.
    """

    measured: float
    confidence: float = math.nan
    groups: int = 0
    probed: float = math.nan
    refused: str = ""

    @property
    def words(self) -> str:
        """The same in a line."""
        racks = f"{self.groups or 'no'} rack{'' if self.groups == 1 else 's'}"
        sure = f", {self.confidence:.0%} sure"
        if math.isnan(self.confidence):
            racks, sure = racks if self.groups else "racks not known", ""
        line = f"snapshot of {clock(self.measured)} ({racks}{sure})"
        if math.isnan(self.probed):
            return line
        found = f"was not taken: {self.refused}" if self.refused else "agrees"
        return f"{line}; the probe of {clock(self.probed)} {found}"


def clock(when: float) -> str:
    """Return a moment as an operator in any zone reads it."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(when))


@dataclass(frozen=True)
class View:
    """What the daemon knows.

    Attributes
    ----------
    version : str
        Of CloudColl.
    now : float
        When this was put together, in seconds since the epoch, as all times.
    phase : str
        ``empty`` (nothing measured yet), ``calm`` or ``checking``.
    key : str
        Of the host set: see `cloudcoll.hosts.host_set_key`.
    groups : tuple of GroupView
        The lowest of the fabric; none where it is flat.
    snapshot : Path or None
        The file of the snapshot in force; whoever probes as well may replace it.
    digest : str
        That snapshot's.
    trust : Trust or None
        None while nothing is in force.
    confirmed : float
        When a probe last agreed with it; NaN for never.
    stale_after : float
        Seconds after which what is not confirmed is not to be trusted.
    maps : tuple of MapView
        The first is that of the daemon's own question.
    counts : mapping of str to int
        Totals since the start: ``probes``, ``failures``, ``maps``, and ``bytes``
        that hosts said they sent.
    history : tuple of Point
        In order of time.
    published : tuple of Publication
        The last ones, in order of time.
    trouble : str
        What went wrong last and still does, in one line; empty for nothing.
    """

    version: str
    now: float
    started: float
    phase: str = "empty"
    key: str = ""
    hosts: tuple[HostView, ...] = ()
    groups: tuple[GroupView, ...] = ()
    snapshot: Path | None = None
    digest: str = ""
    trust: Trust | None = None
    confirmed: float = math.nan
    stale_after: float = math.inf
    maps: tuple[MapView, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    history: tuple[Point, ...] = ()
    published: tuple[Publication, ...] = ()
    trouble: str = ""

    @property
    def fresh(self) -> bool:
        """Whether a probe agreed with the snapshot not long ago."""
        # A clock that went back confirms nothing; nor does NaN.
        return abs(self.now - self.confirmed) <= self.stale_after
