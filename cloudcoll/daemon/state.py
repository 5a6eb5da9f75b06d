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
"""Of the burst, kept by what is regular for checks."""


@dataclass(frozen=True)
class Settings:
    """How a daemon behaves.

    Attributes
    ----------
    every : float
        Seconds of a cycle, in which each group is looked at once.
    share : float
        Of each host's rate that may be used, on the average.
    gain : float
        Share of the time that another order must gain to be put in force,
    confirm : int
        in so many checks in a row.
    refresh : float
        Seconds after which the snapshot in force is measured anew.
    load_s : float
        Seconds for which a beat loads a host.

    Raises
    ------
    UsageError
        A cycle of less than a second, or no share at all.
    """

    every: float = 600.0
    share: float = 0.001
    gain: float = 0.05
    confirm: int = 3
    refresh: float = 86400.0
    load_s: float = 0.25

    def __post_init__(self) -> None:
        if self.every < 1.0 or not 0.0 < self.share < 1.0:
            raise UsageError(
                f"no daemon with a cycle of {self.every:g} s and {self.share:.3%} of "
                "the rate: give it a second and 0.001% at least"
            )

    @property
    def pause(self) -> float:
        """Seconds between looks at what seems to have changed."""
        return min(self.every / 6, PAUSE_S)


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
    returned : bool
        Whether a host answers of which the snapshot in force knows nothing.
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
    returned: bool = False
    seed: int = 0

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
    state: State, now: float, groups: tuple[Group, ...], measured: float
) -> State:
    """Return the state after a snapshot with these groups was put in force."""
    return replace(
        state,
        phase="calm",
        groups=groups,
        beats=(),
        cycle_end=now,
        watched={},
        streak=0,
        returned=False,
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
    loaded = state.budget.allows(beat.hosts, now, reserve=RESERVE)
    if loaded:
        state = _charged(state, beat.hosts, now, state.settings.load_s)
    return state, (Measure(beat, loaded),)


def _next_cycle(state: State, now: float) -> State:
    every = state.settings.every
    beats = tuple(cycle(state.groups, now, every, state.seed))
    seed = state.seed + len(beats)
    return replace(state, beats=beats, cycle_end=now + every, seed=seed)


def _check(state: State, now: float) -> Step:
    """Look at all hosts, unless one runs a job or was looked at too often.

    Where hosts are not known yet, those that are free are looked at without the others.
    """
    later, busy = now + RETRY_S, state.busy.intersection(state.hosts)
    if busy and state.phase != "empty" and not state.returned:
        # Beats of the others go on; what changed for good will alarm again.
        due = max(state.refresh_due, later)
        calm = replace(state, phase="calm", watched={}, streak=0, refresh_due=due)
        return calm, ()
    hosts = tuple(host for host in state.hosts if host not in busy)
    if len(hosts) < 2:
        return replace(state, check_due=later), ()
    # Where nothing is known yet there is nothing to spare either.
    if state.phase != "empty" and not state.budget.allows(hosts, now):
        if state.phase == "calm":
            return replace(state, refresh_due=later), ()
        return replace(state, check_due=later), ()
    state = _charged(state, hosts, now, state.check_s)
    return replace(state, seed=state.seed + 1), (Check(state.seed, busy),)


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
        checking = replace(state, phase="checking", check_due=event.now)
        return replace(checking, returned=event.returned), ()
    if any(one.suspicious for one in seen.values()):
        return _look_again(state, event.now, event.beat), ()
    return state, (Confirm(),)


def _look_again(state: State, now: float, beat: Beat) -> State:
    """Return the state in which a beat comes once more, soon."""
    again = replace(beat, due=now + state.settings.pause)
    beats = list(state.beats)
    bisect.insort(beats, again, key=lambda one: one.due)
    return replace(state, beats=tuple(beats))


def _checked(state: State, now: float, gain: float, groups: tuple[Group, ...]) -> Step:
    settings = state.settings
    if state.phase == "empty":
        return _calm(state, now, groups, now), (Publish(keep=False),)
    if gain <= settings.gain:
        return _calm(state, now, groups, now), (Publish(keep=True),)
    if state.streak + 1 < settings.confirm:
        streak, due = state.streak + 1, now + settings.pause
        return replace(state, phase="checking", streak=streak, check_due=due), ()
    better = Publish(keep=False, checks=settings.confirm)
    return _calm(state, now, groups, now), (better,)
