"""What the daemon does next: events in, actions out.

No clock, no socket, no measurement: every event brings the time, and whoever
carries an action out answers with an event. Whatever happens twice gives the
same actions twice.

    empty --Check--> calm --a series changed--> checking
                       ^                           |
                       +-- no gain, or 3 in a row -+
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cloudcoll.daemon.beats import Beat, Group, cycle
from cloudcoll.daemon.budget import Budget
from cloudcoll.daemon.changes import Watched
from cloudcoll.daemon.events import (
    Action,
    Beaten,
    Busy,
    Check,
    Checked,
    Confirm,
    Due,
    Event,
    Failed,
    Known,
    Measure,
    Members,
    Publish,
)
from cloudcoll.errors import UsageError

RETRY_S = 60.0
"""After a check that could not be made, the next one is tried."""
PAUSE_S = 10.0
"""Between looks at what seems to have changed, at most."""
RESERVE = 0.5
"""Of share and burst, kept by what is regular for checks."""
CYCLE_S = 20.0
"""Of a cycle, at least: a change is to be answered in a minute, most of which
goes by in looks and checks."""
HOST_S = 0.6
"""Of a cycle, for each host: so that many of them take no more of the daemon's
time, nor their log-ins of anybody's notice."""
LEAST_LOAD_S, MOST_LOAD_S = 0.005, 0.25
"""For which a beat loads a host: a shorter one tells nothing, a longer one no more."""


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


@dataclass(frozen=True)
class State:
    """All that decides what comes next.

    Attributes
    ----------
    settings : Settings
    budget : Budget
    phase : str
        ``empty``, ``calm`` or ``checking``.
    hosts : tuple of str
    check_s : float
        Seconds for which a check loads a host.
    groups : tuple of Group
        Of the snapshot in force.
    busy : frozenset of str
        Hosts that run a job: they are left alone.
    beats : tuple of Beat
        Those of the cycle that are still to come.
    cycle_end : float
    watched : mapping of str to Watched
        By series.
    check_due, refresh_due : float
    streak : int
        Checks in a row that found a better order.
    seed : int
        Grows with every probe.
    """

    settings: Settings
    budget: Budget
    phase: str = "empty"
    hosts: tuple[str, ...] = ()
    check_s: float = 0.0
    groups: tuple[Group, ...] = ()
    busy: frozenset[str] = frozenset()
    beats: tuple[Beat, ...] = ()
    cycle_end: float = 0.0
    watched: Mapping[str, Watched] = field(default_factory=dict)
    check_due: float = 0.0
    refresh_due: float = 0.0
    streak: int = 0
    seed: int = 0

    @property
    def every(self) -> float:
        """Seconds of a cycle."""
        if self.settings.every is not None:
            return self.settings.every
        return max(CYCLE_S, HOST_S * len(self.hosts))

    @property
    def pause(self) -> float:
        """Seconds between looks at what seems to have changed."""
        return min(self.every / 10, PAUSE_S)

    @property
    def load_s(self) -> float:
        """Seconds of its card's rate that a beat may take of a host.

        A cycle loads each twice.
        """
        fair = (1.0 - RESERVE) * self.settings.share * self.every / 2
        return min(max(fair, LEAST_LOAD_S), MOST_LOAD_S)

    @property
    def wake(self) -> float:
        """When `Due` has something to do."""
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
        case Checked(now, gain, groups):
            return _checked(state, now, gain, groups)
        case Failed(now):
            return replace(state, check_due=now + RETRY_S), ()


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
    groups: tuple[Group, ...],
    measured: float,
    *,
    keep: bool = False,
) -> State:
    """Return the state after a snapshot with these groups was put in force.

    Where orders are kept nothing has changed that matters: the noise is wider
    than was believed.
    """
    known = state.watched.items() if keep else ()
    return replace(
        state,
        phase="calm",
        groups=groups,
        beats=(),
        cycle_end=now,
        watched={name: one.afresh() for name, one in known},
        streak=0,
        refresh_due=measured + state.settings.refresh,
    )


def _due(state: State, now: float) -> Step:
    if len(state.hosts) < 2 or now < state.wake:
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
    return _charged(state, beat.hosts, now, state.load_s), (
        Measure(beat, state.load_s),
    )


def _next_cycle(state: State, now: float) -> State:
    beats = tuple(cycle(state.groups, now, state.every, state.seed))
    seed = state.seed + len(beats)
    return replace(state, beats=beats, cycle_end=now + state.every, seed=seed)


def _check(state: State, now: float) -> Step:
    """Look at all hosts, unless one runs a job or was looked at too often."""
    later = now + RETRY_S
    if state.busy.intersection(state.hosts):
        if state.phase == "empty":
            return replace(state, check_due=later), ()
        # Beats of the others go on; what changed for good will alarm again.
        due = max(state.refresh_due, later)
        calm = replace(state, phase="calm", watched={}, streak=0, refresh_due=due)
        return calm, ()
    # Where nothing is known yet there is nothing to spare either.
    if state.phase != "empty" and not state.budget.allows(state.hosts, now):
        if state.phase == "calm":
            return replace(state, refresh_due=later), ()
        return replace(state, check_due=later), ()
    state = _charged(state, state.hosts, now, state.check_s)
    return replace(state, seed=state.seed + 1), (Check(state.seed),)


def _charged(state: State, hosts: tuple[str, ...], now: float, seconds: float) -> State:
    return replace(state, budget=state.budget.charged(hosts, now, seconds))


def _beaten(state: State, event: Beaten) -> Step:
    if state.phase != "calm":
        return state, ()
    seen = {
        name: state.watched.get(name, Watched()).after(value)
        for name, value in event.values.items()
    }
    state = replace(state, watched={**state.watched, **seen})
    if event.returned or any(one.changed for one in seen.values()):
        return replace(state, phase="checking", check_due=event.now), ()
    if any(one.suspicious for one in seen.values()):
        return _look_again(state, event.now, event.beat), ()
    return state, (Confirm(),)


def _look_again(state: State, now: float, beat: Beat) -> State:
    """Return the state in which a beat comes once more, soon."""
    again = replace(beat, due=now + state.pause)
    beats = list(state.beats)
    bisect.insort(beats, again, key=lambda one: one.due)
    return replace(state, beats=tuple(beats))


def _checked(state: State, now: float, gain: float, groups: tuple[Group, ...]) -> Step:
    settings = state.settings
    if state.phase == "empty":
        return _calm(state, now, groups, now), (Publish(keep=False),)
    if gain <= settings.gain:
        return _calm(state, now, groups, now, keep=True), (Publish(keep=True),)
    if state.streak + 1 < settings.confirm:
        streak, due = state.streak + 1, now + state.pause
        return replace(state, phase="checking", streak=streak, check_due=due), ()
    better = Publish(keep=False, checks=settings.confirm)
    return _calm(state, now, groups, now), (better,)
