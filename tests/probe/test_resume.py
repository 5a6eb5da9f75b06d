from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.spool import AT_ONCE, rounds_left


def plan_of(hosts: int, mode: str = "standard", at_once: int = 2) -> ProbePlan:
    names = tuple(Host(f"vm-{i}") for i in range(hosts))
    return plan_probes(names, mode=mode, concurrency=at_once)


@given(st.integers(2, 12), st.sampled_from(["quick", "full"]), st.data())
def test_all_that_is_missing_comes_once(
    hosts: int, mode: str, data: st.DataObject
) -> None:
    """Tests that what is left are the missing meetings, in runs without a gap."""
    plan = plan_of(hosts, mode)
    reports = [
        (slot.number, pair[slot.kind != "rtt"])
        for slot in plan.rounds()
        for pair in slot.pairs
    ]
    chosen = data.draw(st.sets(st.sampled_from(reports)))
    missing: dict[int, list[int]] = {}
    for number, host in chosen:
        missing.setdefault(number, []).append(host)
    runs = rounds_left(plan, missing)
    planned = {slot.number: slot for slot in plan.rounds()}
    found = [
        (slot.number, pair[slot.kind != "rtt"])
        for run in runs
        for slot in run
        for pair in slot.pairs
    ]
    assert sorted(found) == sorted(chosen)
    for run in runs:
        assert {slot.kind for slot in run} == {planned[run[0].number].kind}
        for turn, slot in enumerate(run):
            assert slot.number == run[0].number + turn
            assert slot.start == turn * plan.length(slot.kind)
            assert set(slot.pairs) <= set(planned[slot.number].pairs)


def test_an_agent_takes_each_list() -> None:
    """Tests that many rounds of few pairs come in pieces that fit a frame."""
    plan = replace(plan_of(130, at_once=1), passes=(("rtt", 129, False),))
    missing = {slot.number: [slot.pairs[0][0]] for slot in plan.rounds()}
    runs = rounds_left(plan, missing)
    assert [len(run) for run in runs] == [AT_ONCE, AT_ONCE, 129 * 65 - 2 * AT_ONCE]


def test_a_plan_without_rounds_takes_as_long() -> None:
    """Tests that agents told of no round live as long as with all of them."""
    plan = plan_of(5)
    rest = plan.led()
    assert list(rest.rounds()) == []
    assert rest.most_seconds == pytest.approx(plan.most_seconds)
