"""How a daemon behaves, and how often it looks at how many hosts."""

from __future__ import annotations

from dataclasses import dataclass

from cloudcoll.errors import UsageError

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
        in so many checks in a row.
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
                f"no daemon with a cycle of {every:g} s and {self.share:.3%} of "
                "the rate: give it a second and 0.001% at least"
            )

    def pace(self, hosts: int) -> Pace:
        """Return how often so many hosts are looked at."""
        every = max(CYCLE_S, HOST_S * hosts) if self.every is None else self.every
        # A cycle loads each host twice.
        fair = (1.0 - RESERVE) * self.share * every / 2
        load_s = min(max(fair, LEAST_LOAD_S), MOST_LOAD_S)
        return Pace(every, min(every / 10, PAUSE_S), load_s)
