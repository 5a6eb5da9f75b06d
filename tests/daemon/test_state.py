from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from cloudcoll.daemon import BURST_S, Settings
from cloudcoll.daemon.beats import HostGroup
from cloudcoll.daemon.changes import Watched
from cloudcoll.daemon.state import (
    RETRY_S,
    RETURNS_S,
    Action,
    Beaten,
    Busy,
    Check,
    Checked,
    Confirm,
    Due,
    Failed,
    Known,
    Measure,
    Members,
    Publish,
    State,
    Unpublished,
    handle,
    start,
)

HOSTS = tuple(f"vm-{i}" for i in range(8))
GROUPS = (HostGroup("1", HOSTS[:4]), HostGroup("2", HOSTS[4:]))
NOW = 1e6
CHECK_S = 1.5
OLD = "figures are old"


def calm(every: float | None = 600.0) -> State:
    """Return a state just after the first check."""
    state, _ = handle(start(Settings(every)), Members(NOW, HOSTS, CHECK_S))
    state, actions = handle(state, Due(NOW))
    assert actions == (Check(0),)
    state, actions = handle(state, Checked(NOW, 0.0, GROUPS))
    assert actions == (Publish(keep=False, reason="hosts are new"),)
    return state


def next_beat(state: State) -> tuple[State, Measure]:
    """Return the state and the action when the next beat is due."""
    for _ in range(4):
        state, actions = handle(state, Due(state.wake))
        if actions:
            assert isinstance(actions[0], Measure)
            return state, actions[0]
    raise AssertionError("no beat is ever due")


def told(action: Measure, ratio: float) -> Beaten:
    """Return what a beat says if its group's uplink is at this share."""
    group = action.beat.group
    values = {f"up {group}": math.log(ratio), "map m": -math.log(ratio)}
    return Beaten(action.beat.due, action.beat, values)


def run(
    state: State, until: float, ratio: Callable[[Measure], float], gain: float = 0.0
) -> tuple[State, list[tuple[float, Action]]]:
    """Carry out all actions until a time; return what was done when."""
    done: list[tuple[float, Action]] = []
    while (now := state.wake) < until:
        state, actions = handle(state, Due(now))
        for action in actions:
            done.append((now, action))
            if isinstance(action, Measure):
                beaten = replace(told(action, ratio(action)), now=now)
                state, more = handle(state, beaten)
            else:
                state, more = handle(state, Checked(now, gain, GROUPS))
            done += [(now, one) for one in more]
    return state, done


def kinds(done: list[tuple[float, Action]]) -> list[str]:
    return [type(action).__name__ for _, action in done]


def test_nothing_without_hosts() -> None:
    """Tests that no host, and a single one, give nothing to do."""
    for hosts in ((), ("alone",)):
        state, _ = handle(start(Settings()), Members(NOW, hosts, CHECK_S))
        assert handle(state, Due(NOW + 1e6)) == (state, ())
        assert state.wake == math.inf


def test_hosts_without_a_group_are_named_in_a_reason() -> None:
    """Tests that a change of hosts on the core is not of a group without a name."""
    core = (*GROUPS[:1], *(HostGroup("", (host,)) for host in HOSTS[4:]))
    state, _ = handle(start(Settings(600.0)), Members(NOW, HOSTS, CHECK_S))
    state, _ = handle(state, Due(NOW))
    state, _ = handle(state, Checked(NOW, 0.0, core))
    state, _ = run(state, NOW + 7200.0, lambda _: 1.0)
    _, done = run(state, NOW + 9000.0, lambda m: 1.0 if m.beat.group else 0.25, 1)
    reasons = {action.reason for _, action in done if isinstance(action, Publish)}
    assert any(reason.startswith("up of hosts on the core") for reason in reasons)


def test_not_before_time() -> None:
    """Tests that an early look does nothing, and the same one twice the same."""
    state = calm()
    state, _ = handle(state, Due(state.wake))
    assert handle(state, Due(state.wake - 1e-3)) == (state, ())
    assert handle(state, Due(state.wake)) == handle(state, Due(state.wake))


def test_a_quiet_day_confirms_and_publishes_nothing() -> None:
    """Tests that beats alone happen, each twice in a cycle of two groups."""
    _, done = run(calm(), NOW + 86000.0, lambda _: 1.0)
    assert set(kinds(done)) == {"Measure", "Confirm"}
    assert kinds(done).count("Measure") == 2 * 86000 // 600 + 1


@pytest.mark.parametrize(("every", "within"), [(None, 45.0), (600.0, 600.0 + 60.0)])
def test_an_uplink_four_times_slower_is_checked_and_published(
    every: float | None, within: float
) -> None:
    """Tests the way from the first slow beat to a new order: soon, and once.

    What measuring takes comes on top, some 15 s in a lab.
    """
    state, _ = run(calm(every), NOW + 7200.0, lambda _: 1.0)
    slow = NOW + 7200.0
    done: list[tuple[float, Action]] = []
    while "Publish" not in kinds(done):
        until = state.wake + 1e-6
        state, more = run(state, until, lambda m: 0.25 if m.beat.group == "1" else 1, 1)
        done += more
    first = next(
        now for now, a in done if isinstance(a, Measure) and a.beat.group == "1"
    )
    published = done[-1][0]
    assert done[-1][1] == Publish(keep=False, gain=1, reason="up 1, map m")
    assert kinds(done).count("Check") == 3
    assert published - first <= 60.0
    assert published - slow <= within
    assert state.phase == "calm"
    assert not state.watched


def test_no_gain_keeps_the_order() -> None:
    """Tests that a real change that no order makes better renews figures alone."""
    state, done = run(calm(), NOW + 3600.0, lambda _: 1.0)
    state, done = run(state, NOW + 7200.0, lambda _: 0.25, gain=0.04)
    published = [action for _, action in done if isinstance(action, Publish)]
    assert published
    assert all(action.keep and action.gain == 0.04 for action in published)


@pytest.mark.parametrize("taken", [False, True])
def test_a_fall_in_the_moment_of_a_false_alarm(taken: bool) -> None:
    """Tests that it is not taken for the usual, but where the network is another."""
    state, _ = run(calm(), NOW + 7200.0, lambda _: 1.0)
    wide = Watched(first=(0.0,) * 3, usual=0.0, above=20.0)
    state = replace(state, phase="checking", check_due=state.wake)
    state = replace(state, watched={**state.watched, "rtt ": wide})
    begun = state.wake
    state, _ = handle(state, Due(begun))
    state, _ = handle(state, Checked(begun, 0.0, GROUPS, taken=taken))
    assert not state.watched["rtt "].changed
    assert state.watched["rtt "].first == ()
    _, done = run(state, begun + 3600.0, lambda _: 0.25, gain=0.3)
    assert ("Check" in kinds(done)) is not taken


def test_a_gain_must_last() -> None:
    """Tests that two checks with a gain and a third without change no order."""
    state = replace(calm(), phase="checking", check_due=NOW)
    for gain in (0.2, 0.2, 0.0):
        now = state.wake
        state, actions = handle(state, Due(now))
        assert isinstance(actions[0], Check)
        state, actions = handle(state, Checked(now, gain, GROUPS))
    assert actions == (Publish(keep=True, reason=OLD),)


def test_what_three_checks_show_together_counts() -> None:
    """Tests that others follow checks which can't tell, and that the last decides."""
    state = replace(calm(), phase="checking", check_due=NOW)
    for gain, sure in ((0.0, False), (0.0, False), (0.2, True)):
        now = state.wake
        state, actions = handle(state, Due(now))
        assert isinstance(actions[0], Check)
        state, actions = handle(state, Checked(now, gain, GROUPS, conclusive=sure))
    assert actions == (Publish(keep=False, gain=0.2, reason=OLD),)


def test_a_gain_below_what_the_model_misses() -> None:
    """Tests that such an order is not taken, and that the reason says why."""
    state = replace(calm(), phase="checking", check_due=NOW, looks=2)
    state, _ = handle(state, Due(NOW))
    _, (published,) = handle(state, Checked(NOW, 0.2, GROUPS, least=0.3))
    assert isinstance(published, Publish)
    assert published.keep
    assert "a gain of 20% is less than the model misses, 30%" in published.reason


def test_a_check_is_paid_for_by_what_it_took() -> None:
    """Tests that the first one is free, and another not charged for what it spared."""
    state = calm()
    assert not state.budget.clear
    for took, owed in ((0.5, 0.5), (math.nan, 0.5 + CHECK_S), (9.0, 0.5 + 2 * CHECK_S)):
        checking = replace(state, phase="checking", check_due=NOW)
        checking, _ = handle(checking, Due(NOW))
        state, _ = handle(checking, Checked(NOW, 0.0, GROUPS, loaded_s=took))
        for host in HOSTS:
            debt = (state.budget.clear[host] - NOW) * state.settings.share
            assert debt == pytest.approx(owed)
    anew, _ = handle(state, Members(NOW, HOSTS, CHECK_S))
    anew, _ = handle(anew, Due(NOW))
    assert anew.budget.clear[HOSTS[0]] > state.budget.clear[HOSTS[0]]


def test_a_beat_that_took_more_is_paid_for() -> None:
    """Tests that a burst larger than what was allowed counts in the budget."""
    state, action = next_beat(calm())
    owed = state.budget.clear[action.beat.hosts[0]]
    state, _ = handle(state, replace(told(action, 1.0), more_s=0.02))
    later = owed + 0.02 / state.settings.share
    assert state.budget.clear[action.beat.hosts[0]] == pytest.approx(later)


def test_hosts_that_run_a_job_are_left_alone() -> None:
    """Tests that neither beat nor check touches a busy host, until it is free."""
    state, _ = handle(calm(), Busy(frozenset({"vm-0", "vm-5"})))
    for _ in range(20):
        state, action = next_beat(state)
        assert not {"vm-0", "vm-5"} & {*action.beat.hosts}
        state, _ = handle(state, told(action, 1.0))


def test_a_check_that_a_job_forbids() -> None:
    """Tests that beats of other hosts go on, and an alarm comes again."""
    state, _ = handle(calm(), Busy(frozenset({"vm-0"})))
    checking = replace(state, phase="checking", check_due=NOW, looks=1)
    state, actions = handle(checking, Due(NOW))
    assert actions == ()
    assert (state.phase, state.looks) == ("calm", 0)
    _, done = run(state, NOW + 3600.0, lambda _: 1.0)
    assert set(kinds(done)) == {"Measure", "Confirm"}


@pytest.mark.parametrize("busy", [1, 6, 7, 8])
def test_the_first_check_takes_the_hosts_that_are_free(busy: int) -> None:
    """Tests that a job keeps nobody else's host from being measured, but one alone."""
    at_work = frozenset(HOSTS[:busy])
    state, _ = handle(start(Settings()), Members(NOW, HOSTS, CHECK_S))
    state, _ = handle(state, Busy(at_work))
    state, actions = handle(state, Due(NOW))
    if busy > 6:
        assert (actions, state.wake) == ((), NOW + RETRY_S)
        return
    assert actions == (Check(0, at_work),)
    assert not at_work & {*state.budget.clear}


def test_a_host_that_is_free_at_last_waits_for_no_other() -> None:
    """Tests a check without the busy ones once a beat meets one never measured."""
    state, action = next_beat(calm())
    state, _ = handle(state, Busy(frozenset({"vm-7"})))
    state, _ = handle(state, replace(told(action, 1.0), returned=True))
    state, actions = handle(state, Due(state.wake))
    assert [action.without for action in actions if isinstance(action, Check)] == [
        {"vm-7"}
    ]
    state, _ = handle(state, Checked(state.wake, 0.0, GROUPS))
    assert not state.returned


def test_all_hosts_busy_for_a_day() -> None:
    """Tests that time passes, and nothing is probed, while every host works."""
    state, _ = handle(calm(), Busy(frozenset(HOSTS)))
    state, done = run(state, NOW + 2 * 86400.0, lambda _: 1.0)
    assert done == []
    assert state.wake >= NOW + 2 * 86400.0


def test_a_failed_check_is_tried_again() -> None:
    """Tests that a failure costs a minute, and no look."""
    state = replace(calm(), phase="checking", check_due=NOW, looks=2)
    state, _ = handle(state, Due(NOW))
    state, _ = handle(state, Failed(NOW + 5))
    assert state.wake == NOW + 5 + RETRY_S
    state, actions = handle(state, Due(state.wake))
    assert isinstance(actions[0], Check)
    _, actions = handle(state, Checked(state.wake, 0.2, GROUPS))
    assert actions == (Publish(keep=False, gain=0.2, reason=OLD),)


def test_other_hosts_start_afresh() -> None:
    """Tests that a host more means another network, measured at once."""
    state, _ = handle(calm(), Members(NOW + 50, (*HOSTS, "new"), CHECK_S))
    assert state.phase == "empty"
    _, actions = handle(state, Due(NOW + 50))
    assert isinstance(actions[0], Check)


@pytest.mark.parametrize(("age", "soon"), [(0.0, 86400.0), (86300.0, 100.0)])
def test_a_snapshot_from_before_is_taken_up(age: float, soon: float) -> None:
    """Tests that a restart probes only what has become old."""
    state, _ = handle(start(Settings()), Members(NOW, HOSTS, CHECK_S))
    state, actions = handle(state, Known(NOW, GROUPS, age))
    assert actions == (Confirm(),)
    assert state.phase == "calm"
    assert state.refresh_due == NOW + soon


def test_every_day_the_figures_are_renewed() -> None:
    """Tests that a calm network is measured as a whole once a day."""
    _, done = run(calm(), NOW + 3.5 * 86400.0, lambda _: 1.0)
    assert kinds(done).count("Check") == 3
    published = [action for _, action in done if isinstance(action, Publish)]
    assert published == 3 * [Publish(keep=True, reason=OLD)]


def test_a_storm_of_changes_keeps_to_the_budget() -> None:
    """Tests that a network that changes all the time is not probed to death."""
    days = 5
    state = calm()
    flip = iter(range(10**9))
    _, done = run(state, NOW + days * 86400.0, lambda _: 4.0 ** (next(flip) % 7 - 3))
    loaded = dict.fromkeys(HOSTS, CHECK_S)
    for _, action in done:
        if isinstance(action, Check):
            loaded = {host: s + CHECK_S for host, s in loaded.items()}
        elif isinstance(action, Measure):
            for host in action.beat.hosts:
                loaded[host] += action.load_s
    share = state.settings.share
    assert max(loaded.values()) <= share * (days * 86400 + BURST_S) + 2 * CHECK_S
    assert max(loaded.values()) > 0.5 * share * days * 86400


def test_a_host_that_is_back_is_measured() -> None:
    """Tests that the figures are renewed once it answers, as soon as is allowed."""
    state, action = next_beat(calm())
    back = replace(told(action, 1.0), returned=True)
    state, actions = handle(state, back)
    assert actions == ()
    state, actions = handle(state, Due(back.now))
    assert isinstance(actions[0], Check)


def test_hosts_that_come_and_go_bring_a_check_an_hour() -> None:
    """Tests that of many hosts, of which one is always back, checks are rare."""
    state = calm(600.0)
    checks = []
    while (now := state.wake) < NOW + 6 * RETURNS_S:
        state, actions = handle(state, Due(now))
        for action in actions:
            if isinstance(action, Check):
                checks.append(now)
                state, _ = handle(state, Checked(now, 0.0, GROUPS))
            elif isinstance(action, Measure):
                back = replace(told(action, 1.0), now=now, returned=True)
                state, _ = handle(state, back)
    assert len(checks) in {5, 6}
    assert min(later - now for now, later in pairwise(checks)) >= RETURNS_S


def test_beats_go_on_while_a_check_is_not_allowed() -> None:
    """Tests that hosts that come and go don't keep the others from being looked at."""
    state = calm(600.0)
    share = state.settings.share
    owed = 1.5 * BURST_S * share
    state = replace(state, budget=state.budget.charged(HOSTS, NOW, owed))
    done: list[tuple[float, Action]] = []
    while not any(isinstance(action, Check) for _, action in done):
        now = state.wake
        state, actions = handle(state, Due(now))
        done += [(now, action) for action in actions]
        for action in actions:
            if isinstance(action, Measure):
                back = replace(told(action, 1.0), now=now, returned=True)
                state, _ = handle(state, back)
    waited = done[-1][0] - NOW
    assert BURST_S / 2 < waited < BURST_S / 2 + CHECK_S / share + 600.0
    beats = sum(isinstance(action, Measure) for _, action in done)
    assert beats >= 2 * (waited // 600.0)


def test_what_is_not_measured_is_not_looked_at_again() -> None:
    """Tests that a suspicious rate brings one more beat, which need not tell it."""
    state, _ = run(calm(), NOW + 7200.0, lambda _: 1.0)
    state, first = next_beat(state)
    state, _ = handle(state, told(first, 0.25))
    state, again = next_beat(state)
    assert again.beat.pairs == first.beat.pairs
    state, actions = handle(state, told(again, math.nan))
    assert actions == (Confirm(),)
    assert next_beat(state)[1].beat.pairs != first.beat.pairs


def test_checks_in_a_row_know_of_each_other() -> None:
    """Tests that the second follows the first, and none follows one long ago."""
    state = replace(calm(), phase="checking", check_due=NOW)
    state, actions = handle(state, Due(NOW))
    assert actions == (Check(1),)
    state, _ = handle(state, Checked(NOW, 0.2, GROUPS))
    second, actions = handle(state, Due(state.wake))
    assert actions == (Check(2, again=True),)
    state, _ = handle(second, Busy(frozenset(HOSTS[:1])))
    state, actions = handle(replace(state, phase="checking"), Due(NOW + 60.0))
    assert (state.phase, actions) == ("calm", ())
    state = replace(state, phase="checking", busy=frozenset())
    assert handle(state, Due(NOW + 7200.0))[1] == (Check(3),)


def test_what_could_not_be_published_is_checked_again() -> None:
    """Tests that a better order that could not be put in force is not forgotten."""
    state, actions = handle(calm(), Unpublished(NOW))
    assert actions == ()
    assert state.wake == NOW + RETRY_S
    assert handle(state, Due(state.wake))[1] == (Check(1),)
