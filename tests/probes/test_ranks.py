from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.results import Results
from probes import agent, ranks


def task_of(plan: ProbePlan, position: int) -> agent.Task:
    frame: dict[str, Any] = {
        **plan.parameters(),
        "passes": [list(part) for part in plan.passes],
        "position": position,
        "key": "00" * 16,
        "address": "",
        "life_s": 1.0,
        "force": False,
    }
    return agent.read_task(frame)


def meetings(
    plan: ProbePlan, present: Collection[int], missing: dict[int, list[int]]
) -> set[tuple[int, int, int]]:
    """Return round, host that asks or sends, and the other, of all ranks."""
    texts = {str(number): hosts for number, hosts in missing.items()}
    found = set()
    for me in present:
        task = task_of(plan, me)
        for number, slot in ranks.wanted_slots(task, present, texts).items():
            assert slot.number == number
            pair = (me, slot.peer) if slot.asks else (slot.peer, me)
            found.add((number, *pair))
    return found


@given(st.integers(2, 20), st.integers(0, 1 << 62), st.integers(1, 12), st.data())
def test_ranks_keep_the_drivers_schedule(
    count: int, seed: int, concurrency: int, data: st.DataObject
) -> None:
    """Tests that ranks meet as planned, both of a pair, where both are there."""
    hosts = tuple(Host(f"vm-{i}") for i in range(count))
    plan = plan_probes(hosts, seed=seed, concurrency=concurrency, duplex=False)
    present = data.draw(st.sets(st.integers(0, count - 1), min_size=2))
    planned = {
        (round_.number, src, dst)
        for round_ in plan.rounds()
        for src, dst in round_.pairs
        if {src, dst} <= present
    }
    assert meetings(plan, present, Results(plan).missing) == planned


def test_only_what_is_missing_is_measured() -> None:
    """Tests that a meeting is kept only if its reporter was not heard."""
    hosts = tuple(Host(f"vm-{i}") for i in range(6))
    plan = plan_probes(hosts, duplex=False)
    for round_ in plan.rounds():
        src, dst = round_.pairs[0]
        reporter = src if round_.kind == "rtt" else dst
        missing = {round_.number: [reporter]}
        assert meetings(plan, range(6), missing) == {(round_.number, src, dst)}


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("vm-2", 1),
        ("vm-2.cluster.local", 1),
        ("gpu.a", 2),
        ("gpu.b", 3),
        ("gpu.c", -1),
        ("vm-20", -1),
        ("10", -1),
    ],
)
def test_a_host_finds_itself(name: str, position: int) -> None:
    """Tests full names, short names, and short names that two hosts share."""
    names = ["vm-1", "vm-2", "gpu.a", "gpu.b", "192.0.2.9"]
    assert ranks.find_host([[host, host] for host in names], name) == position


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "192.0.2.1", "vm-1", ""])
def test_addresses_that_are_not_ones_own(address: str) -> None:
    """Tests that neither loopback nor a foreign address is this machine's."""
    assert not ranks.is_own(address)


@pytest.mark.parametrize(
    ("address", "ours"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("192.0.2.1", False)],
)
def test_addresses_that_a_socket_can_have(address: str, ours: bool) -> None:
    """Tests that every loopback address is this machine's, a foreign one not."""
    assert ranks.can_bind(address) == ours
