"""What a daemon hears, and what it asks for: the values of `state.handle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cloudcoll.daemon.beats import Beat, HostGroup


@dataclass(frozen=True)
class Members:
    """These are the hosts from now on; a check loads each for `check_s` seconds."""

    now: float
    hosts: tuple[str, ...]
    check_s: float


@dataclass(frozen=True)
class Known:
    """A snapshot from before the start is still good; `age` in seconds."""

    now: float
    groups: tuple[HostGroup, ...]
    age: float


@dataclass(frozen=True)
class Busy:
    """These hosts run jobs."""

    hosts: frozenset[str]


@dataclass(frozen=True)
class Due:
    """Time has passed."""

    now: float


@dataclass(frozen=True)
class Beaten:
    """A beat was measured.

    Attributes
    ----------
    now : float
    beat : Beat
    values : mapping of str to float
        Logarithms of ratios by series; NaN for unknown.
    returned : bool
        Whether a host answers of which the snapshot in force knows nothing.
    """

    now: float
    beat: Beat
    values: Mapping[str, float]
    returned: bool = False


@dataclass(frozen=True)
class Checked:
    """A check was made.

    Attributes
    ----------
    now : float
    gain : float
        What the best order gains over the one in force, as a share of the time.
    groups : tuple of HostGroup
        As the check has them.
    conclusive : bool
        Whether it could tell who shares a link.
    error : float
        By how much the fabric misses what was measured: a smaller gain may be none.
    """

    now: float
    gain: float
    groups: tuple[HostGroup, ...]
    conclusive: bool = True
    error: float = 0.0


@dataclass(frozen=True)
class Failed:
    """An action came to nothing."""

    now: float


@dataclass(frozen=True)
class Unpublished:
    """What was to be published could not be put in force."""

    now: float


Event = Members | Known | Busy | Due | Beaten | Checked | Failed | Unpublished


@dataclass(frozen=True)
class Measure:
    """Probe the hosts of a beat; answer with `Beaten` or `Failed`.

    Attributes
    ----------
    beat : Beat
    load_s : float
        Each host may send what its card carries in so many seconds; 0.0:
        latency alone is measured.
    """

    beat: Beat
    load_s: float


@dataclass(frozen=True)
class Check:
    """Probe all hosts and look for the best order; answer `Checked` or `Failed`.

    Attributes
    ----------
    seed : int
    without : frozenset of str
        Hosts that run a job, to be left alone: what was known of them stays.
    again : bool
        Whether it follows one a moment ago, whose measurements count as well.
    """

    seed: int
    without: frozenset[str] = frozenset()
    again: bool = False


@dataclass(frozen=True)
class Confirm:
    """The snapshot in force is as good as new."""


@dataclass(frozen=True)
class Publish:
    """Put in force what was checked; answer with `Unpublished` if that fails.

    Attributes
    ----------
    keep : bool
        The order stays; if not, it is the best one by the last checks.
    gain : float
        Of the last check: see `Checked`.
    reason : str
        Why it was checked, in a few words.
    """

    keep: bool
    gain: float = 0.0
    reason: str = ""


Action = Measure | Check | Confirm | Publish
