from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.measured.synth import racks
from cloudcoll.network.fair import fair_rates
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.probe.plan import ProbePlan, Round, plan_probes
from cloudcoll.probe.uplink_rounds import (
    Escalation,
    Uplink,
    arrange,
    find_uplinks,
    next_load,
)

NIC = 50e6
NAN = math.nan

rack_sizes = st.lists(st.integers(1, 9), min_size=2, max_size=12)


def pods(pods: int, racks: int, hosts: int, ratio: float) -> Fabric:
    """Plant pods of racks, each level's links `ratio` times too narrow."""
    rack_rate = hosts * NIC / ratio
    pod_rate = racks * rack_rate / ratio

    def rack(name: str) -> Node:
        cards = (Node(f"{name}-{i}", (), NIC, NIC) for i in range(hosts))
        return Node(name, tuple(cards), rack_rate, rack_rate)

    return Fabric(
        Node(
            "core",
            tuple(
                Node(
                    f"p{p}",
                    tuple(rack(f"p{p}-r{r}") for r in range(racks)),
                    pod_rate,
                    pod_rate,
                )
                for p in range(pods)
            ),
        )
    )


def plan_of(fabric: Fabric) -> ProbePlan:
    hosts = tuple(Host(name) for name in sorted(fabric.hosts))
    return plan_probes(hosts, mode="standard")


def carry(fabric: Fabric, rounds: list[Round], dead: Collection[int]) -> LoadedFlows:
    """Return what a noiseless network of this fabric carries in some rounds."""
    names = sorted(fabric.hosts)
    columns = np.array([fabric.position(name) for name in names])
    links = fabric.links
    number, src, dst, rate = [], [], [], []
    for one in rounds:
        ends = np.array(one.pairs)
        rates = fair_rates(links, columns[ends[:, 0]], columns[ends[:, 1]])
        for (a, b), bytes_per_s in zip(one.pairs, rates, strict=True):
            if not {a, b} & set(dead):
                number.append(one.number)
                src.append(a)
                dst.append(b)
                rate.append(bytes_per_s)
    windows = 4
    return LoadedFlows(
        np.array(number),
        np.array(src),
        np.array(dst),
        windows * np.arange(1, len(rate) + 1),
        np.repeat(0.025 * np.array(rate), windows).astype(np.int64),
    )


def escalate(fabric: Fabric, plan: ProbePlan) -> tuple[Escalation, list[Round]]:
    """Run the second phase against a planted network."""
    escalation = Escalation(
        find_uplinks(fabric, sorted(fabric.hosts)), plan, plan.count
    )
    done: list[Round] = []
    while rounds := escalation.turn():
        done += rounds
        escalation.learn(carry(fabric, rounds, ()))
    return escalation, done


def truth(fabric: Fabric, uplink: Uplink) -> float:
    """Return what can cross a link: its capacity, or its hosts' cards."""
    names = sorted(fabric.hosts)
    members = {names[i] for i in uplink.members}
    nodes = (node for level in fabric.groups() for node in level)
    node = next(node for node in nodes if set(node.leaves()) == members)
    return min(node.uplink_bytes_per_s, NIC * uplink.most)


@pytest.mark.parametrize(
    ("most", "carried", "senders"),
    [
        (4, [], 1),
        (4, [50.0], 2),
        (4, [50.0, 100.0], 4),
        (4, [50.0, 100.0, 200.0], 0),
        (4, [50.0, 54.0], 0),
        (4, [50.0, 56.0], 4),
        (4, [50.0, 30.0], 0),
        (5, [50.0, 100.0, 150.0], 5),
        (5, [50.0, 100.0, 150.0, 180.0], 0),
        (1, [], 1),
        (1, [50.0], 0),
        (0, [], 0),
        (4, [NAN], 0),
        (4, [50.0, NAN], 0),
        (4, [0.0], 0),
        (32, [], 8),
        (32, [200.0], 16),
        (32, [200.0, 210.0], 0),
        (99, [1.0, 2.0], 96),
        (99, [1.0, 2.0, 3.0], 99),
    ],
)
def test_the_next_load(most: int, carried: list[float], senders: int) -> None:
    """Tests that senders double until little more gets through, or none is left."""
    assert next_load(most, carried) == senders


@given(st.integers(0, 600), st.floats(1.0, 2.0))
def test_loads_grow_and_end(most: int, growth: float) -> None:
    """Tests that loads double, never exceed the hosts, and are few."""
    loads: list[int] = []
    carried: list[float] = []
    while senders := next_load(most, carried):
        loads.append(senders)
        carried.append(growth ** len(loads))
    assert all(0 < load <= most for load in loads)
    for before, after in pairwise(loads):
        assert after == min(2 * before, most) > before
    assert len(loads) <= 4
    if growth > 1.1 and most:
        assert loads[-1] == most


@given(rack_sizes, st.integers(0, 9))
def test_uplinks_know_their_hosts(sizes: list[int], seed: int) -> None:
    """Tests that each link has its group's hosts and those of all others."""
    fabric = racks(sizes, seed=seed)
    everyone = set(range(sum(sizes)))
    uplinks = find_uplinks(fabric, sorted(fabric.hosts))
    for uplink in uplinks:
        assert len(set(uplink.members)) == len(uplink.members)
        assert len(set(uplink.others)) == len(uplink.others)
        assert set(uplink.members) | set(uplink.others) == everyone
        assert not set(uplink.members) & set(uplink.others)
    crossable = [size for size in sizes if min(size, sum(sizes) - size) > 1]
    for outward in (True, False):
        found = [len(link.members) for link in uplinks if link.outward == outward]
        assert sorted(found) == sorted(crossable)


def test_ends_are_spread() -> None:
    """Tests that the other ends lie in other racks, and members in all parts."""
    fabric = pods(3, 4, 2, 1.0)
    names = sorted(fabric.hosts)
    uplinks = find_uplinks(fabric, names)
    assert [link.depth for link in uplinks] == [1] * 6 + [2] * 24
    pod = uplinks[0]
    assert {names[i].rpartition("-")[0] for i in pod.members[:4]} == {
        f"p0-r{r}" for r in range(4)
    }
    assert {names[i][:2] for i in pod.others[:2]} == {"p1", "p2"}
    rack = uplinks[6]
    # Three racks of its own pod and two other pods: five ways out.
    ways = [names[i][:2] for i in rack.others[:5]]
    assert sorted(ways) == ["p0", "p0", "p0", "p1", "p2"]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_flat_network_has_no_uplinks(count: int) -> None:
    """Tests that without groups nothing is loaded."""
    fabric = flat(tuple(f"vm-{i}" for i in range(count)))
    assert find_uplinks(fabric, fabric.hosts) == []


@given(rack_sizes, st.data())
def test_rounds_are_disjoint(sizes: list[int], data: st.DataObject) -> None:
    """Tests that a round loads links of one direction, with each host once."""
    fabric = racks(sizes)
    uplinks = find_uplinks(fabric, sorted(fabric.hosts))
    asked = [(link, data.draw(st.integers(1, link.most))) for link in uplinks]
    rounds = arrange(asked)
    assert sorted(len(p) for loads in rounds for _, p in loads) == sorted(
        count for _, count in asked
    )
    for loads in rounds:
        assert 1 <= len(loads) <= loads[0][0].at_once
        assert len({(link.depth, link.outward) for link, _ in loads}) == 1
        hosts = [host for _, pairs in loads for pair in pairs for host in pair]
        assert len(set(hosts)) == len(hosts)
        for link, pairs in loads:
            for src, dst in pairs:
                inside, outside = (src, dst) if link.outward else (dst, src)
                assert inside in link.members
                assert outside in link.others


def test_failed_hosts_take_no_part() -> None:
    """Tests that loads go round dead hosts, and are left out if too few live."""
    fabric = racks([3, 3, 3])
    uplinks = find_uplinks(fabric, sorted(fabric.hosts))
    first = uplinks[0]
    dead = {first.members[0], first.others[0]}
    (((_, pairs),),) = arrange([(first, 2)], dead)
    assert not dead & {host for pair in pairs for host in pair}
    assert arrange([(first, 3)], dead) == []


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0, 8.0])
@pytest.mark.parametrize(
    "sizes", [[5, 3, 6, 2], [4, 4, 4, 4], [8] * 8, [32] * 32], ids=str
)
def test_capacities_of_racks(sizes: list[int], ratio: float) -> None:
    """Tests that the last round of each link carries what the link can."""
    fabric = racks(sizes, nic=NIC, uplink=max(sizes) * NIC / ratio)
    escalation, _ = escalate(fabric, plan_of(fabric))
    assert escalation.complete
    for uplink, carried in escalation.carried.items():
        assert max(carried) == pytest.approx(truth(fabric, uplink), rel=0.01)


@pytest.mark.parametrize("ratio", [1.5, 2.0, 4.0])
def test_capacities_of_pods(ratio: float) -> None:
    """Tests that a thousand hosts on two levels fit the time, and are right."""
    fabric = pods(4, 8, 32, ratio)
    plan = plan_of(fabric)
    escalation, rounds = escalate(fabric, plan)
    assert len(rounds) * (plan.load_s + plan.load_gap_s) <= plan.uplink_s + 1e-9
    for uplink, carried in escalation.carried.items():
        assert max(carried) == pytest.approx(truth(fabric, uplink), rel=0.15)


@given(rack_sizes, st.floats(0.0, 10.0), st.integers(0, 200))
def test_the_budget_is_kept(sizes: list[int], seconds: float, flows: int) -> None:
    """Tests that rounds and flows never exceed what the plan allows."""
    fabric = racks(sizes)
    plan = replace(plan_of(fabric), uplink_s=seconds, uplink_flows=flows)
    escalation, rounds = escalate(fabric, plan)
    assert len(rounds) * (plan.load_s + plan.load_gap_s) <= seconds + 1e-6
    assert sum(len(one.pairs) for one in rounds) <= flows
    numbers = [one.number for one in rounds]
    assert numbers == list(range(plan.count, plan.count + len(rounds)))
    assert escalation.rounds == len(rounds)


@given(rack_sizes)
def test_the_usual_budget_of_flows_is_enough(sizes: list[int]) -> None:
    """Tests that the flows a plan allows never end what time would allow."""
    fabric = racks(sizes, nic=NIC, uplink=10 * NIC)
    plan = replace(plan_of(fabric), uplink_s=60.0)
    plan = replace(plan, uplink_flows=12 * plan.hosts)
    assert escalate(fabric, plan)[0].complete


def test_turns_start_with_their_own_clock() -> None:
    """Tests that the rounds of a turn follow each other from zero on."""
    fabric = racks([4, 4, 4, 4])
    plan = plan_of(fabric)
    turn = Escalation(
        find_uplinks(fabric, sorted(fabric.hosts)), plan, plan.count
    ).turn()
    step = plan.load_s + plan.load_gap_s
    assert [one.start for one in turn] == pytest.approx(
        [i * step for i in range(len(turn))]
    )


def test_a_host_that_dies_ends_the_links_it_was_to_fill() -> None:
    """Tests that a figure without one of its flows is not taken for a plateau."""
    fabric = racks([4, 4, 4, 4], nic=NIC, uplink=4 * NIC)
    links = find_uplinks(fabric, sorted(fabric.hosts))
    escalation = Escalation(links, plan_of(fabric), 0)
    first = escalation.turn()
    dead = {first[0].pairs[0][0]}
    escalation.learn(carry(fabric, first, dead))
    assert math.isnan(escalation.carried[links[0]][0])
    second = escalation.turn(dead)
    assert second
    assert not dead & {host for one in second for pair in one.pairs for host in pair}
    assert len(escalation.carried[links[0]]) == 1


def test_a_starved_load_is_asked_for_again_and_not_for_ever() -> None:
    """Tests that a round without CPU teaches nothing, twice at most."""
    fabric = racks([4, 4], nic=NIC, uplink=4 * NIC)
    links = find_uplinks(fabric, sorted(fabric.hosts))
    escalation = Escalation(links, plan_of(fabric), 0)
    asked = []
    for learnt in (0, 0, 1):
        turn = escalation.turn()
        asked.append([one.pairs for one in turn])
        escalation.learn(carry(fabric, turn, ()), [one.number for one in turn])
        assert all(len(c) == learnt for c in escalation.carried.values())
    assert asked[0] == asked[1] == asked[2]
