"""What the daemon does next: events in, actions out.

No clock, no socket, no measurement: every event brings the time, and whoever
carries an action out answers with an event. Whatever happens twice gives the
same actions twice.

    empty --Check--> calm --a series changed--> checking
                       ^                           |
                       +--- no gain, or 3 looks ---+

A check that finds a gain, or can't tell, is followed by others: all that were made in
a row are judged together.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cloudcoll.daemon import RESERVE, Budget, Pace, Settings
from cloudcoll.daemon.beats import Beat, HostGroup, cycle
from cloudcoll.daemon.changes import Watched


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
    values : mapping of str to float
        Logarithms of ratios by series; NaN for unknown.
    returned : bool
        Whether a host answers of which the snapshot in force knows nothing.
    more_s : float
        Seconds for which it loaded each host beyond those of `Measure`.
    """

    now: float
    beat: Beat
    values: Mapping[str, float]
    returned: bool = False
    more_s: float = 0.0


@dataclass(frozen=True)
class Checked:
    """A check was made.

    Attributes
    ----------
    gain : float
        What the best order gains over the one in force, as a share of the time.
    groups : tuple of HostGroup
        As the check has them.
    conclusive : bool
        Whether it could tell who shares a link, and how much those carry.
    least : float
        The gain that there has to be: see `cloudcoll.solve.constraints.least_gain`.
    loaded_s : float
        Seconds for which it loaded each host; NaN if not known.
    taken : bool
        Whether the network is taken to be another than before.
    """

    now: float
    gain: float
    groups: tuple[HostGroup, ...]
    conclusive: bool = True
    least: float = 0.0
    loaded_s: float = math.nan
    taken: bool = False


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
    load_s : float
        Each host may send what its card carries in so many seconds, or the least
        that tells anything; 0.0: latency alone is measured.
    """

    beat: Beat
    load_s: float


@dataclass(frozen=True)
class Check:
    """Probe all hosts and look for the best order; answer `Checked` or `Failed`.

    Attributes
    ----------
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


RETRY_S = 60.0
"""After a check that could not be made, the next one is tried."""
RETURNS_S = 3600.0
"""Between checks for hosts that are back: of many, some always come and go."""


@dataclass(frozen=True)
class State:
    """All that decides what comes next.

    Attributes
    ----------
    phase : str
        ``empty``, ``calm`` or ``checking``.
    check_s : float
        Seconds for which a check loads a host, at most.
    groups : tuple of HostGroup
        Of the snapshot in force.
    busy : frozenset of str
        Hosts that run a job: they are left alone.
    beats : tuple of Beat
        Those of the cycle that are still to come.
    watched : mapping of str to Watched
        By series.
    reason : str
        Why the next check is made, in a few words.
    looks : int
        Checks in a row.
    returned : bool
        Whether a host answers of which the snapshot in force knows nothing.
    returns_due : float
        When the next check may be made for such hosts.
    seed : int
        Grows with every probe.
    """

    settings: Settings
    budget: Budget
    phase: str = "empty"
    hosts: tuple[str, ...] = ()
    check_s: float = 0.0
    groups: tuple[HostGroup, ...] = ()
    busy: frozenset[str] = frozenset()
    beats: tuple[Beat, ...] = ()
    cycle_end: float = 0.0
    watched: Mapping[str, Watched] = field(default_factory=dict)
    check_due: float = 0.0
    refresh_due: float = 0.0
    reason: str = "hosts are new"
    looks: int = 0
    returned: bool = False
    returns_due: float = 0.0
    seed: int = 0

    @property
    def pace(self) -> Pace:
        """How often what is looked at."""
        return self.settings.pace(len(self.hosts))

    @property
    def wake(self) -> float:
        """When `Due` has something to do; never where there are no two hosts."""
        if len(self.hosts) < 2:
            return math.inf
        if self.phase != "calm":
            return self.check_due
        first = self.beats[0].due if self.beats else self.cycle_end
        return min(first, self.refresh_due)


Step = tuple[State, tuple[Action, ...]]


def start(settings: Settings, seed: int = 0) -> State:
    """Return the state of a daemon that knows no host yet."""
    return State(settings, Budget(settings.share), seed=seed)


def handle(state: State, event: Event) -> Step:
    """Return the state after an event, and what is to be done."""
    match event:
        case Members(now, hosts, check_s):
            return _empty(state, now, hosts, check_s), ()
        case Known(now, groups, age):
            return _calm(state, now, groups, now - age), (Confirm(),)
        case Busy(hosts):
            return replace(state, busy=hosts), ()
        case Due(now):
            return _due(state, now)
        case Beaten():
            return _beaten(state, event)
        case Checked():
            return _checked(state, event)
        case Failed(now):
            return replace(state, check_due=now + RETRY_S), ()
        case Unpublished(now):
            due = now + RETRY_S
            return replace(state, phase="checking", check_due=due), ()


def _empty(state: State, now: float, hosts: tuple[str, ...], check_s: float) -> State:
    """Return the state in which nothing is known of these hosts."""
    return State(
        state.settings,
        state.budget,
        hosts=hosts,
        check_s=check_s,
        busy=state.busy,
        check_due=now,
        seed=state.seed,
    )


def _calm(
    state: State,
    now: float,
    groups: tuple[HostGroup, ...],
    measured: float,
    watched: Mapping[str, Watched] | None = None,
) -> State:
    """Return the state after a snapshot with these groups was put in force."""
    return replace(
        state,
        phase="calm",
        groups=groups,
        beats=(),
        cycle_end=now,
        watched=watched or {},
        reason="figures are old",
        looks=0,
        returned=False,
        refresh_due=measured + state.settings.refresh,
    )


def _due(state: State, now: float) -> Step:
    if now < state.wake:
        return state, ()
    if state.phase != "calm" or now >= state.refresh_due:
        return _check(state, now)
    if not state.beats:
        return _next_cycle(state, now), ()
    beat = state.beats[0].without(state.busy)
    state = replace(state, beats=state.beats[1:])
    if not beat.pairs:
        return state, ()
    if not state.budget.allows(beat.hosts, now, reserve=RESERVE):
        return state, (Measure(beat, 0.0),)
    return _charged(state, beat.hosts, now, state.pace.load_s), (
        Measure(beat, state.pace.load_s),
    )


def _next_cycle(state: State, now: float) -> State:
    beats = tuple(cycle(state.groups, now, state.pace.every, state.seed))
    seed = state.seed + len(beats)
    return replace(state, beats=beats, cycle_end=now + state.pace.every, seed=seed)


def _check(state: State, now: float) -> Step:
    """Look at all hosts, unless one runs a job or was looked at too often.

    Where hosts are not known yet, those that are free are looked at without the others.
    """
    later, busy = now + RETRY_S, state.busy.intersection(state.hosts)
    if busy and state.phase != "empty" and not state.returned:
        # Beats of the others go on; what changed for good will alarm again.
        due = max(state.refresh_due, later)
        calm = replace(state, phase="calm", watched={}, refresh_due=due)
        return replace(calm, looks=0), ()
    hosts = tuple(host for host in state.hosts if host not in busy)
    if len(hosts) < 2:
        return replace(state, check_due=later), ()
    # Where nothing is known yet there is nothing to spare either.
    if state.phase != "empty" and not state.budget.allows(hosts, now):
        if state.looks:
            return replace(state, check_due=later), ()
        # Beats go on meanwhile, and what is so for good shows in them again.
        due = max(state.refresh_due, later)
        return replace(state, phase="calm", returned=False, refresh_due=due), ()
    if state.returned:
        state = replace(state, returns_due=now + RETURNS_S)
    if state.phase != "empty" or state.budget.clear:
        state = _charged(state, hosts, now, state.check_s)
    return replace(state, seed=state.seed + 1), (
        Check(state.seed, busy, again=state.looks > 0),
    )


def _charged(state: State, hosts: tuple[str, ...], now: float, seconds: float) -> State:
    return replace(state, budget=state.budget.charged(hosts, now, seconds))


def _beaten(state: State, event: Beaten) -> Step:
    if event.more_s:
        state = _charged(state, event.beat.hosts, event.now, event.more_s)
    if state.phase != "calm":
        return state, ()
    new = Watched.of(event.beat)
    seen = {
        name: state.watched.get(name, new).after(value)
        for name, value in event.values.items()
    }
    state = replace(state, watched={**state.watched, **seen})
    changed = [name for name, one in seen.items() if one.changed]
    returned = event.returned and event.now >= state.returns_due
    if returned or changed:
        reason = ", ".join(map(_named, changed)) or "a host is back"
        state = replace(state, phase="checking", reason=reason)
        return replace(state, check_due=event.now, returned=returned), ()
    # What was not measured is as it was before: another look would not end that.
    if any(seen[n].suspicious and not math.isnan(v) for n, v in event.values.items()):
        return _look_again(state, event.now, event.beat), ()
    return state, (Confirm(),)


def _named(series: str) -> str:
    """Return what a series is called in a sentence: hosts on the core have no group."""
    return f"{series}of hosts on the core" if series.endswith(" ") else series


def _look_again(state: State, now: float, beat: Beat) -> State:
    """Return the state in which a beat comes once more, soon."""
    again = replace(beat, due=now + state.pace.pause)
    beats = list(state.beats)
    bisect.insort(beats, again, key=lambda one: one.due)
    return replace(state, beats=tuple(beats))


def _checked(state: State, event: Checked) -> Step:
    settings, now, groups, gain = state.settings, event.now, event.groups, event.gain
    found = Publish(keep=True, gain=gain, reason=state.reason)
    if state.phase == "empty":
        return _calm(state, now, groups, now), (replace(found, keep=False),)
    if event.loaded_s < state.check_s:
        # What it was charged for is the most that it could take.
        free = tuple(host for host in state.hosts if host not in state.busy)
        state = _charged(state, free, now, event.loaded_s - state.check_s)
    better = gain > max(settings.gain, event.least)
    looks = state.looks + 1
    # All of them are judged together: what so many don't show, more don't show either.
    if (better or not event.conclusive) and looks < settings.confirm:
        return replace(state, phase="checking", looks=looks, check_due=now), ()
    if better:
        return _calm(state, now, groups, now), (replace(found, keep=False),)
    if gain > settings.gain:
        why = f"a gain of {gain:.0%} is less than the model misses, {event.least:.0%}"
        found = replace(found, reason=f"{state.reason}; {why}")
    # Nothing has changed that matters: the noise is wider than was believed. What did
    # not alarm is as it was, lest a change in this very moment be taken for the usual.
    watched = {
        name: one.afresh() if event.taken or one.changed else one.answered()
        for name, one in state.watched.items()
    }
    return _calm(state, now, groups, now, watched), (found,)
