"""What labels spare a probe, and what they never spare."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.infer.prior import GROUP, label_groups
from cloudcoll.probe import ProbePlan, plan_probes
from cloudcoll.probe.labelled import cut_by_labels, spared
from cloudcoll.units import seconds


def racks(hosts: int, size: int) -> tuple[Host, ...]:
    """Return hosts dealt over racks of `size`, in turn, as a provider lists them."""
    count = -(-hosts // size)
    return tuple(
        Host(f"n{i}", labels={GROUP: f"rack-{i % count}"}) for i in range(hosts)
    )


@pytest.mark.parametrize("mode", ["standard", "full"])
def test_a_thousand_hosts_take_a_quarter_of_the_time(mode: str) -> None:
    """Tests rounds, seconds and bytes against the plan without labels."""
    hosts = racks(1000, 20)
    whole = plan_probes(hosts, mode=mode)
    cut = cut_by_labels(whole, hosts)
    assert cut.seconds < whole.seconds / 4
    assert cut.bytes < 0.8 * whole.bytes
    assert {rounds for kind, rounds, _ in cut.passes if kind == "rtt"} == {40}
    assert cut.parameters().keys() == whole.parameters().keys()
    line = spared(whole, cut)
    assert line.startswith("labels save ")
    assert f" under load: {seconds(whole.seconds - cut.seconds)}, at most" in line


@given(st.integers(4, 40), st.integers(2, 8), st.integers(0, 99))
def test_every_group_still_meets_every_other(hosts: int, size: int, seed: int) -> None:
    """Tests that the loaded rounds left have pairs in and between all groups."""
    some = racks(hosts, size)
    whole = plan_probes(some, mode="full", seed=seed)
    cut = cut_by_labels(whole, some)

    # A rack of one host is no group, and need not be met.
    groups = {name for name, _ in label_groups(some)}

    def met(plan: ProbePlan) -> set[frozenset[str]]:
        return {
            frozenset(some[host].labels[GROUP] for host in pair) & groups
            for round_ in plan.rounds()
            if round_.kind != "rtt"
            for pair in round_.pairs
        }

    assert met(cut) == met(whole)
    assert cut.count <= whole.count
    assert dataclasses.replace(cut, passes=whole.passes) == whole


def test_without_two_groups_nothing_is_spared() -> None:
    """Tests no labels, one group, and groups of one host."""
    none = tuple(Host(f"n{i}") for i in range(64))
    one = tuple(Host(f"n{i}", labels={GROUP: "all"}) for i in range(64))
    alone = tuple(Host(f"n{i}", labels={GROUP: f"g{i}"}) for i in range(64))
    for hosts in (none, one, alone):
        plan = plan_probes(hosts, mode="standard")
        assert cut_by_labels(plan, hosts) is plan
