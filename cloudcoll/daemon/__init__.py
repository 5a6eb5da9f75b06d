"""Keep snapshot and maps of a set of hosts fresh, in the background.

How often a daemon looks at how many hosts, and how much it may take, is here. Of each
host's card it has a share, counted by a leaky bucket each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cloudcoll import units
from cloudcoll.errors import UsageError
from cloudcoll.measured.snapshot import NetworkSnapshot

if TYPE_CHECKING:
    from cloudcoll.probe import ProbePlan

CYCLE_S = 20.0
"""Of a cycle, at least: a change is to be answered in a minute, most of which
goes by in looks and checks."""
HOST_S = 0.6
"""Of a cycle, for each host: so that many of them take no more of the daemon's
time, nor their log-ins of anybody's notice."""
PAUSE_S = 10.0
"""Between looks at what seems to have changed, at most."""
RESERVE = 0.5
"""Of share and burst, kept by what is regular for checks."""
LEAST_LOAD_S, MOST_LOAD_S = 0.005, 0.25
"""For which a beat loads a host: a shorter one tells nothing, a longer one no more."""


@dataclass(frozen=True)
class Pace:
    """How often hosts are looked at.

    Attributes
    ----------
    every : float
        Seconds of a cycle.
    pause : float
        Seconds between looks at what seems to have changed.
    load_s : float
        Seconds of its card's rate that a beat may take of a host.
    """

    every: float
    pause: float
    load_s: float


@dataclass(frozen=True)
class Settings:
    """How a daemon behaves.

    Attributes
    ----------
    every : float, optional
        Seconds of a cycle, in which each group is looked at once; by the number
        of hosts (`CYCLE_S`, `HOST_S`) if not given.
    share : float
        Of each host's rate that may be used, on the average.
    gain : float
        Share of the time that another order must gain to be put in force,
    confirm : int
        by so many checks in a row, judged together.
    refresh : float
        Seconds after which the snapshot in force is measured anew.

    Raises
    ------
    UsageError
        A cycle of less than a second, or no share at all.
    """

    every: float | None = None
    share: float = 0.001
    gain: float = 0.05
    confirm: int = 3
    refresh: float = 86400.0

    def __post_init__(self) -> None:
        every = CYCLE_S if self.every is None else self.every
        if every < 1.0 or not 0.0 < self.share < 1.0:
            raise UsageError(
                f"no daemon with a cycle of {units.seconds(every)} and "
                f"{self.share:.3%} of the rate: give it a second and 0.001% at least"
            )

    def pace(self, hosts: int) -> Pace:
        """Return how often so many hosts are looked at."""
        every = max(CYCLE_S, HOST_S * hosts) if self.every is None else self.every
        # A cycle loads each host twice.
        fair = (1.0 - RESERVE) * self.share * every / 2
        load_s = min(max(fair, LEAST_LOAD_S), MOST_LOAD_S)
        return Pace(every, min(every / 10, PAUSE_S), load_s)


BURST_S = 7200.0
"""What a host has not used for so many seconds can be used at once."""


@dataclass(frozen=True)
class Budget:
    """Seconds for which hosts may still be loaded, in the long run `share` of all.

    Over any time of T seconds a host is loaded for less than
    ``share * (T + BURST_S)`` and two probes: the very first, which is free, and one
    that begins just before the limit.

    Attributes
    ----------
    share : float
        Of a host's rate, on the average.
    clear : mapping of str to float
        When a host will have made up for what it was used.
    """

    share: float
    clear: Mapping[str, float] = field(default_factory=dict)

    def allows(self, hosts: Iterable[str], now: float, *, reserve: float = 0.0) -> bool:
        """Return whether none of `hosts` owes too much to be loaded now.

        The share `reserve` of the burst is left for what matters more.
        """
        latest = now + (1.0 - reserve) * BURST_S
        return all(self.clear.get(host, now) <= latest for host in hosts)

    def charged(self, hosts: Iterable[str], now: float, seconds: float) -> Budget:
        """Return the budget after `hosts` were loaded for `seconds` from `now`."""
        owed = seconds / self.share
        used = {host: max(self.clear.get(host, now), now) + owed for host in hosts}
        # Names come and go for weeks: who owes nothing is forgotten.
        owing = {host: clear for host, clear in self.clear.items() if clear > now}
        return replace(self, clear=owing | used)


def loaded_seconds(plan: ProbePlan) -> float:
    """Return for how long a probe loads a host, at most."""
    rounds = sum(count for kind, count, _ in plan.passes if kind != "rtt")
    return rounds * plan.load_s + plan.sure_s + plan.uplink_s + plan.repeat_s


def slowest_card(snapshot: NetworkSnapshot, names: Iterable[str]) -> float:
    """Return the known rate of the slowest of some hosts' cards, in bytes/s.

    That is the fastest flow of each; hosts that had none don't count, and 0.0 is
    returned where no host had any.
    """
    fastest = snapshot.flows.fastest(len(snapshot.names))
    known = fastest[np.isin(snapshot.names, list(names)) & (fastest > 0.0)]
    return float(known.min()) if len(known) else 0.0
