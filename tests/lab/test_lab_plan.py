from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.lab.link import (
    Backend,
    Link,
    qdisc_lines,
    shaping_lines,
    wire_argv,
    wire_settings,
)
from cloudcoll.lab.plan import HEAD, Plan, plan_lab
from cloudcoll.lab.spec import CrossTraffic, LabSpec, Queue, Shape, quick, reshaped
from cloudcoll.lab.text import parse_queue, read_spec, show_plan

PODS = Path(__file__).parents[1] / "data" / "lab-pods.toml"


def way_up(plan: Plan, host: str) -> list[Link]:
    """Return the links from a host to the root."""
    by_name = {link.name: link for link in plan.links}
    below = {link.below: link for link in plan.links if link.below}
    way = [by_name[host]]
    while way[-1].bridge in below:
        way.append(below[way[-1].bridge])
    return way


def round_trip(plan: Plan, first: str, second: str) -> float:
    """Return the delay that a packet and its answer collect, seconds."""
    one, other = way_up(plan, first), way_up(plan, second)
    apart = [link for link in one if link not in other]
    apart += [link for link in other if link not in one]
    return 2 * sum(link.delay for link in apart)


@pytest.mark.parametrize(
    ("backend", "delay", "loss", "rate", "expected"),
    [
        ("wire", 1e-4, 0.1, math.inf, ()),
        (
            *("wire", 1e-4, 0.0, 50e6),
            (
                "qdisc add dev eth0 root handle 10: tbf rate 400000000bit "
                "burst 131072 limit 250000",
            ),
        ),
        ("netem", 0.0, 0.0, math.inf, ()),
        (
            *("netem", 1.25e-4, 0.0, math.inf),
            (
                "qdisc add dev eth0 root handle 1: netem limit 100000 "
                "delay 125.0us loss 0.0000%",
            ),
        ),
        (
            *("netem", 1e-3, 0.05, 50e6),
            (
                "qdisc add dev eth0 root handle 1: netem limit 100000 "
                "delay 1000.0us loss 5.0000%",
                "qdisc add dev eth0 parent 1:1 handle 10: tbf rate 400000000bit "
                "burst 131072 limit 250000",
            ),
        ),
    ],
)
def test_qdiscs_are_typed_as_tc_wants_them(
    backend: Backend, delay: float, loss: float, rate: float, expected: tuple[str, ...]
) -> None:
    """Tests that tc gets the delay only where netem does it, and the rate always."""
    assert qdisc_lines("eth0", rate, backend, delay, loss, limit=250e3) == expected


def test_every_pair_has_the_round_trip_of_its_lowest_common_switch() -> None:
    """Tests that delays of links add up to the RTT asked at each level."""
    plan = plan_lab(read_spec(PODS), "wire")
    first, second, third = plan.groups
    assert round_trip(plan, first[0], first[1]) == pytest.approx(60e-6)
    assert round_trip(plan, second[0], second[1]) == 0
    assert round_trip(plan, first[0], second[0]) == pytest.approx(200e-6)
    assert round_trip(plan, first[0], third[0]) == pytest.approx(500e-6)
    assert round_trip(plan, second[0], third[1]) == pytest.approx(500e-6)


def test_rates_of_both_directions_are_kept_apart() -> None:
    """Tests that a lopsided uplink and card keep their two rates."""
    plan = plan_lab(read_spec(PODS), "wire")
    host, rack = way_up(plan, plan.groups[2][0])
    assert (host.up, host.down) == (50e6, 25e6)
    assert (rack.up, rack.down) == (12.5e6, 50e6)
    assert way_up(plan, HEAD)[0].up == math.inf


def test_slots_follow_their_hosts() -> None:
    """Tests that the hosts with two slots are those of the rack that has them."""
    plan = plan_lab(read_spec(PODS), "wire")
    two = {h for h, s in zip(plan.hosts[:-1], plan.slots, strict=True) if s == 2}
    assert two == set(plan.groups[2])


def test_netem_needs_no_wires() -> None:
    """Tests that with netem no wire and no wire's interface is planned."""
    spec = quick((2, 2), 50e6, 50e6, rtt=500e-6, rack_rtt=100e-6)
    assert plan_lab(spec, "netem").wired == ()
    assert "name x1" not in show_plan(plan_lab(spec, "netem"))
    # Four hosts and two racks have a delay each; head has none.
    assert len(plan_lab(spec, "wire").wired) == 6


def test_no_latency_no_wires() -> None:
    """Tests that links without latency are plain pairs of interfaces."""
    assert plan_lab(quick((2, 2), 50e6, 50e6), "wire").wired == ()


@given(
    racks=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
    backend=st.sampled_from(["netem", "wire"]),
)
def test_plans_are_whole(racks: list[int], seed: int, backend: Backend) -> None:
    """Tests that every host is in one group, named in /etc/hosts and typed once."""
    plan = plan_lab(quick(tuple(racks), 50e6, 50e6, rtt=1e-4, seed=seed), backend)
    names = [name for group in plan.groups for name in group]
    assert [len(group) for group in plan.groups] == racks
    assert sorted([*names, HEAD]) == sorted(plan.hosts)
    entries = [line.split() for line in plan.hosts_file.splitlines()[1:]]
    assert [name for _, name in entries] == list(plan.hosts)
    assert len({address for address, _ in entries}) == len(plan.hosts)
    typed = [b.namespace for b in plan.batches if b.tool == "ip" and b.namespace]
    assert sorted(typed) == sorted(plan.hosts)
    interfaces = [
        word
        for batch in plan.batches
        for line in batch.lines
        if line.startswith("link add")
        for word in (line.split()[2], *line.split("peer name ")[1:])
        if not word.startswith("eth0")
    ]
    assert len(set(interfaces)) == len(interfaces)


def typed(plan: Plan) -> list[str]:
    return [line for batch in plan.batches for line in batch.lines]


def test_cards_without_backpressure_are_shaped_outside_their_hosts() -> None:
    """Tests that the tbf of a card is behind a bridge, unless the host is to see it."""
    plan = plan_lab(quick((2,), 50e6, preset="cloud"), "wire")
    shaped = [line for line in typed(plan) if line.startswith("qdisc")]
    assert {line.split()[3] for line in shaped} == {"u2", "p2", "u3", "p3"}
    assert all("limit 2500000" in line for line in shaped)
    assert "link set g2 master v2 up" in typed(plan)
    seen = plan_lab(quick((2,), 50e6, preset="tuned"), "wire")
    assert "eth0" in {line.split()[3] for line in typed(seen) if "tbf" in line}
    assert not any("type bridge" in line and " v" in line for line in typed(seen))


@pytest.mark.parametrize("backend", ["netem", "wire"])
def test_what_tc_cannot_do_is_the_wires(backend: Backend) -> None:
    """Tests that labs of such links are the same with every kernel."""
    plan = plan_lab(quick((2, 1), 50e6, 25e6, rtt=4e-4, preset="policed"), backend)
    assert sorted(link.name for link in plan.wired) == [
        *("rack-1", "rack-2", "vm-01", "vm-02", "vm-03")
    ]
    assert not any(line.startswith("qdisc") for line in typed(plan))
    settings = {link.name: wire_settings(link) for link in plan.wired}
    assert settings["vm-01"][0] == "up 30000 0.0 0 50000000 policer 262144"
    assert settings["rack-2"][1] == "down 130000 0.0 0 25000000 policer 262144"
    card = next(link for link in plan.wired if link.host)
    slowed = wire_settings(card, up_loss=0.5, rate=1e6)
    assert slowed[0] == "up 30000 0.5 0 1000000 policer 262144"
    late = wire_settings(card, late=50e-6)
    assert [setting.split()[1] for setting in late] == ["80000", "80000"]


def test_a_late_host_is_delayed_by_the_kernel_where_that_can() -> None:
    """Tests that what is late adds to a link's own delay, each way."""
    plan = plan_lab(quick((2, 1), rtt=4e-4, preset="tuned"), "netem")
    card = next(link for link in plan.links if link.host)
    for lines in shaping_lines(card, "netem", 65536, late=50e-6):
        assert f"delay {card.delay * 1e6 + 50:.1f}us" in lines[0]


def test_wires_between_racks_make_no_way_longer() -> None:
    """Tests that cards hold back what crosses fewer wires than others' packets."""
    spec = quick(((1, 2), (1,)), 50e6, 50e6, pod_uplink=50e6, preset="codel")
    plan = plan_lab(spec, "wire")
    cards = {link.name: link for link in plan.links if link.steps}
    rack = {host: group for group in plan.groups for host in group}
    pod = {host: rack[host] in plan.groups[:2] for host in cards}
    names = sorted(cards)
    for one in names:
        for digit, other in zip(cards[one].steps, names, strict=True):
            if rack[one] == rack[other]:
                crossed = 0
            else:
                crossed = 2 if pod[one] == pod[other] else 4
            assert int(digit) == 4 - crossed
    assert (
        wire_argv(cards["vm-01"], Path("x"), 0)[-1] == "30000:" + cards["vm-01"].steps
    )


def test_a_lab_of_cards_with_wires_needs_no_levelling() -> None:
    """Tests that nothing is held back where all ways cross as many wires."""
    spec = reshaped(quick((2, 1), 50e6), nic=Shape(Queue("codel", 1000)))
    assert not any(link.steps or link.floor for link in plan_lab(spec, "wire").links)


@pytest.mark.parametrize(
    ("queue", "size"), [("50ms", None), ("2ms", 25_000), ("64p", 24_224), ("1p", 3028)]
)
def test_segments_are_smaller_than_queues(queue: str, size: int | None) -> None:
    """Tests that a quarter of the smallest queue is what a host sends as one."""
    shape = Shape(parse_queue(queue))
    plan = plan_lab(reshaped(quick((2, 1), 50e6), nic=shape), "wire")
    told = {line for line in typed(plan) if "gso_max_size" in line}
    assert told == ({f"link set eth0 gso_max_size {size}"} if size else set())


def test_tenants_stand_in_their_groups() -> None:
    """Tests that the ends of cross traffic are no hosts of the lab's own."""
    spec = quick((2, 1), 50e6, 25e6)
    around = replace(spec.surroundings, traffic=(CrossTraffic("rack-2", "root", 1e6),))
    plan = plan_lab(replace(spec, surroundings=around), "wire")
    assert plan.hosts == ("vm-01", "vm-02", "vm-03", HEAD, "tenant-1", "tenant-2")
    assert [len(group) for group in plan.groups] == [2, 1]
    first, second = way_up(plan, "tenant-1"), way_up(plan, "tenant-2")
    assert [link.name for link in first] == ["tenant-1", "rack-2"]
    assert [link.name for link in second] == ["tenant-2"]
    assert first[0].up == math.inf
    assert "10.77.255.252 tenant-2" in plan.hosts_file


def test_hosts_recover_from_losses_soon() -> None:
    """Tests that each host's only route asks TCP for short timeouts, if wanted."""
    plan = plan_lab(quick((2, 1), preset="tuned"), backend="netem")
    routes = {
        batch.namespace: line
        for batch in plan.batches
        for line in batch.lines
        if line.startswith("route ")
    }
    assert set(routes) == {"vm-01", "vm-02", "vm-03", HEAD}
    told = " rto_min 5ms congctl cubic"
    assert all(line.endswith(told) for line in routes.values())


def test_the_kernels_own_timeout_is_kept() -> None:
    """Tests that no route asks for another one, if the lab favours nobody."""
    routes = [line for line in typed(plan_lab(quick((2,)), "wire")) if "route" in line]
    assert all(line.endswith(" congctl cubic") for line in routes)
    assert not any("rto_min" in line for line in routes)


def test_addresses_do_not_give_the_racks_away() -> None:
    """Tests that addresses follow names, whatever the seed puts where."""
    files = {plan_lab(quick((4, 4), seed=seed), "wire").hosts_file for seed in range(5)}
    assert len(files) == 1


def test_the_largest_lab_is_planned() -> None:
    """Tests that a thousand hosts still have distinct, short interface names."""
    plan = plan_lab(quick((100,) * 10, 50e6, 50e6, rtt=1e-3, rack_rtt=1e-4), "wire")
    names = [
        name
        for link in plan.links
        for name in (link.port, *link.wire_ends, *([link.lower] if link.below else []))
    ]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 15, "the kernel's limit"


def test_one_host_alone_is_a_lab() -> None:
    """Tests that the smallest spec is planned."""
    plan = plan_lab(LabSpec(quick((1,)).root.children[0]), "wire")  # type: ignore[arg-type]
    assert plan.hosts == ("vm-01", HEAD)
