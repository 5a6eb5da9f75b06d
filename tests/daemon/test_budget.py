from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.daemon import BURST_S, Budget, loaded_seconds, slowest_card
from cloudcoll.daemon.beats import shortened
from cloudcoll.hosts import Host
from cloudcoll.measured.synth import observe, racks
from cloudcoll.probe import plan_probes

SHARE = 0.001


@given(
    st.lists(
        st.tuples(st.floats(0, 500), st.floats(0, 3), st.sets(st.sampled_from("abc"))),
        max_size=200,
    )
)
def test_no_host_is_loaded_for_more_than_its_share(
    asked: list[tuple[float, float, set[str]]],
) -> None:
    """Tests, for any series of requests, the bound over all of their time."""
    budget, now, used = Budget(SHARE), 0.0, dict.fromkeys("abc", 0.0)
    for pause, seconds, hosts in asked:
        now += pause
        if budget.allows(hosts, now):
            budget = budget.charged(hosts, now, seconds)
            for host in hosts:
                used[host] += seconds
    for seconds in used.values():
        assert seconds <= SHARE * (now + BURST_S) + 3 + 1e-9


def test_a_reserve_is_left_for_what_matters_more() -> None:
    """Tests that half of the burst can be kept back."""
    budget = Budget(SHARE).charged(["a"], 0.0, 0.6 * SHARE * BURST_S)
    assert budget.allows(["a"], 0.0)
    assert not budget.allows(["a"], 0.0, reserve=0.5)
    assert budget.allows(["b"], 0.0, reserve=0.5)


def test_hosts_that_owe_nothing_are_forgotten() -> None:
    """Tests that names that come and go for weeks do not add up."""
    budget = Budget(SHARE)
    for day in range(30):
        budget = budget.charged([f"pod-{day}"], 86400.0 * day, 1.0)
    assert budget.clear == {"pod-29": pytest.approx(86400.0 * 29 + 1.0 / SHARE)}


def test_how_long_a_plan_loads_a_host() -> None:
    """Tests a beat with and without load, and a probe that repeats rounds."""
    plan = plan_probes(tuple(Host(f"h{i}") for i in range(8)))
    assert loaded_seconds(shortened(plan, 0)) == 0
    assert loaded_seconds(shortened(plan, 1000)) == plan.load_s
    # Each two hosts meet.
    whole = 7 * plan.load_s + plan.repeat_s + plan.sure_s
    assert loaded_seconds(plan) == pytest.approx(whole)
    assert loaded_seconds(replace(plan, uplink_s=2.0)) == pytest.approx(whole + 2.0)


def test_the_slowest_card_of_some_hosts() -> None:
    """Tests that the fastest flow of each counts, and who had none does not."""
    whole = observe(racks((4, 4), nic=50e6, uplink=200e6), rounds=4)
    assert slowest_card(whole, whole.names) == pytest.approx(50e6, rel=0.2)
    flows, slow = whole.flows, whole.names[3]
    mine = np.isin(np.repeat(flows.src, np.diff(flows.ends, prepend=0)), [3])
    mine |= np.isin(np.repeat(flows.dst, np.diff(flows.ends, prepend=0)), [3])
    fewer = np.where(mine, flows.window_bytes // 10, flows.window_bytes)
    limping = replace(whole, flows=replace(flows, window_bytes=fewer))
    assert slowest_card(limping, whole.names) == pytest.approx(5e6, rel=0.2)
    others = [name for name in whole.names if name != slow]
    assert slowest_card(limping, others) == pytest.approx(50e6, rel=0.2)
    dead = np.where(mine, 0, flows.window_bytes)
    without = replace(whole, flows=replace(flows, window_bytes=dead))
    assert slowest_card(without, whole.names) == pytest.approx(50e6, rel=0.2)
    mute = replace(whole, flows=replace(flows, window_bytes=0 * fewer))
    assert slowest_card(mute, others) == 0.0
