from __future__ import annotations

from collections import Counter

import pytest
from driven import prepare_frame
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.daemon.beats import (
    PAIRS,
    ROUNDS,
    Beat,
    HostGroup,
    cycle,
    latencies,
    seated,
    shortened,
)
from cloudcoll.hosts import Host
from cloudcoll.probe import plan_probes
from probes import agent


def groups(sizes: list[int], loose: int = 0) -> list[HostGroup]:
    """Return groups of these sizes, and hosts on the core."""
    racks = [
        HostGroup(str(i), tuple(f"vm-{i}-{k}" for k in range(size)))
        for i, size in enumerate(sizes)
    ]
    return racks + [HostGroup("", (f"loose-{i}",)) for i in range(loose)]


networks = st.builds(
    groups, st.lists(st.integers(2, 40), max_size=6), st.integers(0, 70)
).filter(lambda made: sum(len(group.hosts) for group in made) > 1)


@given(networks, st.integers(0, 1 << 40))
def test_a_beat_joins_each_host_once(network: list[HostGroup], seed: int) -> None:
    """Tests that pairs of a beat are disjoint, few, and begin in its group."""
    of = {host: group.name for group in network for host in group.hosts}
    beats = cycle(network, 100.0, 60.0, seed)
    assert beats == cycle(network, 100.0, 60.0, seed)
    for beat in beats:
        assert 1 <= len(beat.pairs) <= PAIRS
        assert len(beat.hosts) == 2 * len(beat.pairs)
        assert {of[member] for member, _ in beat.pairs} == {beat.group}


@given(networks, st.integers(0, 1 << 40))
def test_a_cycle_loads_no_host_more_than_twice(
    network: list[HostGroup], seed: int
) -> None:
    """Tests that a host is a member once, and a partner once, at most."""
    pairs = [pair for beat in cycle(network, 0.0, 60.0, seed) for pair in beat.pairs]
    for side in zip(*pairs, strict=True):
        assert max(Counter(side).values()) == 1


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [5, 3, 6, 2], [16] * 60, [8, 4, 4]])
def test_all_members_meet_hosts_elsewhere(sizes: list[int]) -> None:
    """Tests that racks of at most half of all hosts are filled whole."""
    network = groups(sizes)
    of = {host: group.name for group in network for host in group.hosts}
    for seed in range(20):
        beats = cycle(network, 0.0, 60.0, seed)
        pairs = [pair for beat in beats for pair in beat.pairs]
        assert len(pairs) == sum(sizes)
        assert all(of[member] != of[partner] for member, partner in pairs)


def test_cycles_join_all_pairs_in_time() -> None:
    """Tests that over cycles every host meets every other group."""
    network = groups([4, 4, 4])
    met = {
        frozenset(pair)
        for seed in range(400)
        for beat in cycle(network, 0.0, 60.0, seed)
        for pair in beat.pairs
    }
    assert len(met) == 3 * 16


@pytest.mark.parametrize(
    ("sizes", "loose"),
    [([20] * 50, 0), ([], 1000), ([40, 24, 16, 20] * 10, 0), ([12, 3] * 60, 100)],
)
def test_beats_are_spread_over_the_cycle(sizes: list[int], loose: int) -> None:
    """Tests that no 15 seconds have more than twice the mean of 1000 hosts."""
    network = groups(sizes, loose)
    hosts = Counter[int]()
    cycles = 20
    for number in range(cycles):
        for beat in cycle(network, 600.0 * number, 600.0, 1000 * number):
            assert 600.0 * number <= beat.due <= 600.0 * (number + 1)
            hosts[int(beat.due // 15)] += len(beat.hosts)
    mean = sum(hosts.values()) / (40 * cycles)
    assert max(hosts.values()) <= 2 * mean


@given(networks, st.integers(0, 1 << 30))
def test_the_round_under_load_is_the_beats_pairs(
    network: list[HostGroup], seed: int
) -> None:
    """Tests who sends to whom, as the agents work it out from the plan."""
    beat = cycle(network, 0.0, 60.0, seed)[0]
    names = seated(beat)
    plan = plan_probes(tuple(map(Host, names)), seed=beat.seed, concurrency=1)
    rounds = list(shortened(plan, 1000).rounds())
    loads = [one for one in rounds if one.kind == "duplex"]
    assert len(loads) == 1
    met = {frozenset((names[a], names[b])) for a, b in loads[0].pairs}
    assert met == {frozenset(pair) for pair in beat.pairs}
    trips = [pair for one in rounds if one.kind == "rtt" for pair in one.pairs]
    each = Counter(host for pair in trips for host in pair)
    assert set(each.values()) == {min(ROUNDS, len(names) - 1)}
    quiet = shortened(plan, 0)
    assert {one.kind for one in quiet.rounds()} == {"rtt"}


@pytest.mark.parametrize("burst", [0, 1, 1 << 40])
def test_agents_take_a_beats_plan(burst: int) -> None:
    """Tests that no limit of an agent's is passed, whatever a beat may send."""
    plan = shortened(plan_probes(tuple(map(Host, "abcd"))), burst)
    task = agent.read_task(prepare_frame(**plan.parameters()))
    assert task.passes == list(plan.passes)


def test_a_beat_without_some_hosts() -> None:
    """Tests that a pair goes if either host is left out."""
    beat = Beat(0.0, "1", (("a", "b"), ("c", "d"), ("e", "f")), 0)
    assert beat.without(frozenset("af")).pairs == (("c", "d"),)


@pytest.mark.parametrize(
    ("hosts", "count", "rounds"),
    [(2, 0, 0), (16, 0, 0), (40, 0, 0), (64, 1, 32), (500, 1, 250), (1000, 5, 128)],
)
def test_latencies_that_tell_racks(hosts: int, count: int, rounds: int) -> None:
    """Tests that half of all pairs meet, without load, where a quick probe has less."""
    quick = plan_probes(tuple(Host(f"vm-{i}") for i in range(hosts)), seed=3)
    more = latencies(quick)
    assert len(more) == count
    assert {plan.passes for plan in more} <= {(("rtt", rounds, False),)}
    assert not any(plan.repeat_s + plan.uplink_s for plan in more)
    assert len({quick.seed, *(plan.seed for plan in more)}) == count + 1
    met = {frozenset(p) for plan in more for one in plan.rounds() for p in one.pairs}
    assert not more or 0.48 < len(met) / (hosts * (hosts - 1) / 2) < 0.6
