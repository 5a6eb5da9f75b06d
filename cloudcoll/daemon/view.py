"""What a daemon knows at one moment, as a value: all that its answers are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloudcoll.rankmap import RankMap


@dataclass(frozen=True)
class HostView:
    """One host, as last seen.

    Attributes
    ----------
    name : str
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
    hosts : tuple of str
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
        Names what was asked: see `cloudcoll.daemon.question.Question.key`.
    rank_map : RankMap
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
    value : float
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
class View:
    """What the daemon knows.

    Attributes
    ----------
    version : str
        Of CloudColl.
    now : float
        When this was put together, in seconds since the epoch, as all times.
    started : float
    phase : str
        ``empty`` (nothing measured yet), ``calm`` or ``checking``.
    key : str
        Of the host set: see `cloudcoll.hosts.host_set_key`.
    hosts : tuple of HostView
    groups : tuple of GroupView
        The lowest of the fabric; none where it is flat.
    snapshot : Path or None
        The file of the snapshot in force; whoever probes as well may replace it.
    digest : str
        That snapshot's.
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
