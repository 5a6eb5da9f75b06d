from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

from cloudcoll.arrays import Bools
from cloudcoll.infer import infer_fabric
from cloudcoll.measured import synth
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.report.findings import (
    honest_fabric,
    host_effects,
    oversubscription,
    uplinks,
    worst_hosts,
)
from cloudcoll.report.snapshot import snapshot_lines
from cloudcoll.report.totals import one_way_pairs

FABRIC = synth.racks((6, 5, 4), seed=2)


def planted(rounds: int = 8) -> NetworkSnapshot:
    return synth.observe(FABRIC, rounds=rounds, seed=3).with_fabric(FABRIC)


def delayed(snapshot: NetworkSnapshot, host: int, seconds: float) -> NetworkSnapshot:
    """Add a delay to every round trip of one host."""
    rtt = snapshot.rtt
    counts = np.diff(rtt.ends, prepend=0)
    extra = np.repeat((rtt.src == host) | (rtt.dst == host), counts) * seconds
    return dataclasses.replace(
        snapshot, rtt=dataclasses.replace(rtt, seconds=rtt.seconds + extra)
    )


def throttled(
    snapshot: NetworkSnapshot, which: Callable[[LoadedFlows], Bools], factor: float
) -> NetworkSnapshot:
    """Multiply what arrived in some transfers."""
    flows = snapshot.flows
    counts = np.diff(flows.ends, prepend=0)
    scale = np.repeat(np.where(which(flows), factor, 1.0), counts)
    windows = (flows.window_bytes * scale).astype(np.int64)
    return dataclasses.replace(
        snapshot, flows=dataclasses.replace(flows, window_bytes=windows)
    )


def without(snapshot: NetworkSnapshot, host: int) -> NetworkSnapshot:
    """Take every measurement with one host away, as a probe of a dead one does."""
    rtt, flows = snapshot.rtt, snapshot.flows
    keep = (rtt.src != host) & (rtt.dst != host)
    ran = (flows.src != host) & (flows.dst != host)
    samples = np.diff(rtt.ends, prepend=0)
    windows = np.diff(flows.ends, prepend=0)
    return dataclasses.replace(
        snapshot,
        rtt=RttSamples(
            rtt.src[keep],
            rtt.dst[keep],
            rtt.sent[keep],
            np.cumsum(samples[keep]),
            rtt.seconds[np.repeat(keep, samples)],
        ),
        flows=dataclasses.replace(
            flows,
            round=flows.round[ran],
            src=flows.src[ran],
            dst=flows.dst[ran],
            ends=np.cumsum(windows[ran]),
            window_bytes=flows.window_bytes[np.repeat(ran, windows)],
        ),
        failed={snapshot.names[host]: "ssh: connection refused"},
    )


def test_a_clean_network_has_no_findings() -> None:
    """Tests that noise and full uplinks are not taken for faults."""
    snapshot = planted()
    fabric = honest_fabric(snapshot)
    assert worst_hosts(snapshot, fabric) == []
    assert one_way_pairs(snapshot, fabric) == []
    assert not any(link.stands_out for link in uplinks(planted(), fabric))
    assert len(host_effects(snapshot, fabric)) == 15


def test_a_late_host_is_named_with_its_delay() -> None:
    """Tests the additive residual: the host, not those that talk to it."""
    snapshot = delayed(planted(), 4, 300e-6)
    for fabric in (FABRIC, infer_fabric(snapshot)):
        (worst,) = worst_hosts(snapshot, fabric)
        assert (worst.name, worst.is_late, worst.is_slow) == ("vm-05", True, False)
        assert worst.late_s == pytest.approx(300e-6, rel=0.1)


def beside(fabric: Fabric, name: str, seconds: float) -> Fabric:
    """Return the tree with a host taken out of its rack, so far from the switch."""
    racks = [
        dataclasses.replace(
            rack, children=tuple(host for host in rack.children if host.name != name)
        )
        for rack in fabric.root.children
    ]
    children = (*racks, Node(name, latency_s=seconds))
    return dataclasses.replace(
        fabric, root=dataclasses.replace(fabric.root, children=children)
    )


@pytest.mark.parametrize("late", [0.0, 300e-6])
def test_a_host_beside_all_racks_is_as_far_as_those_in_them(late: float) -> None:
    """Tests it of a host that is alone because it is late, and of a healthy one."""
    rack = next(r for r in FABRIC.root.children if "vm-05" in r.leaves())
    (host,) = (host for host in rack.children if host.name == "vm-05")
    own = rack.latency_s + host.latency_s
    snapshot = delayed(planted(), 4, late)
    found = worst_hosts(snapshot, beside(FABRIC, "vm-05", own + late / 2))
    assert [host.name for host in found if host.is_late] == ["vm-05"] * (late > 0)


def test_a_small_rack_does_not_hide_its_late_host() -> None:
    """Tests one that inference thinks wide, for half of its round trips are late."""
    *others, rack = FABRIC.root.children
    assert len(rack.children) == 4
    wider = tuple(
        dataclasses.replace(host, latency_s=host.latency_s + rack.latency_s)
        for host in rack.children
    )
    near = dataclasses.replace(rack, children=wider, latency_s=0.0)
    fabric = dataclasses.replace(
        FABRIC, root=dataclasses.replace(FABRIC.root, children=(*others, near))
    )
    late = rack.children[0].name
    snapshot = planted()
    seconds = 4 * rack.latency_s
    snapshot = delayed(snapshot, snapshot.names.index(late), seconds)
    (found,) = worst_hosts(snapshot, fabric)
    assert (found.name, found.is_late) == (late, True)


def test_a_late_host_is_told_of_once() -> None:
    """Tests that 'show' has one line on it, and one on what to do."""
    snapshot = delayed(planted(), 4, 300e-6)
    lines = snapshot_lines(snapshot.with_fabric(infer_fabric(snapshot)))
    told = [line for line in lines if "vm-05" in line and "vm-04" not in line]
    assert [line.split()[:2] for line in told] == [
        ["vm-05:", "answers"],
        ["next:", "'cloudcoll"],
    ]


def test_delays_add_up_without_a_fabric() -> None:
    """Tests that a late host is found where no groups are known."""
    flat = Fabric(Node("core", tuple(Node(f"vm-{i}") for i in range(1, 10))))
    racks = synth.racks((9,), seed=1)
    snapshot = delayed(synth.observe(racks), 2, 200e-6)
    for fabric in (flat, honest_fabric(snapshot)):
        (worst,) = worst_hosts(snapshot, fabric)
        assert worst.name == "vm-3"


def test_a_host_with_a_slow_link_is_named() -> None:
    """Tests that the capacities of hosts are compared with each other."""
    snapshot = throttled(planted(rounds=30), lambda flows: flows.src == 7, 0.2)
    snapshot = snapshot.with_fabric(infer_fabric(snapshot))
    (worst,) = worst_hosts(snapshot, honest_fabric(snapshot))
    assert (worst.name, worst.is_late, worst.is_slow) == ("vm-08", False, True)
    assert worst.sends_bytes_per_s < 0.3 * worst.receives_bytes_per_s


@pytest.mark.parametrize(
    ("slow", "sure", "named"),
    [(1, 0.5, 1), (2, 0.5, 0), (2, 0.95, 2), (2, math.nan, 2)],
)
def test_half_of_a_rack_is_slow_only_if_it_is_one(
    slow: int, sure: float, named: int
) -> None:
    """Tests cards in a rack of four: hosts of other racks may have been put there."""
    racks = list(FABRIC.root.children)
    cards = [
        dataclasses.replace(card, uplink_bytes_per_s=25e6) for card in racks[2].children
    ]
    cards[slow:] = racks[2].children[slow:]
    racks[2] = dataclasses.replace(racks[2], children=tuple(cards))
    root = dataclasses.replace(FABRIC.root, children=tuple(racks))
    fabric = Fabric(root, confidence=sure)
    worst = worst_hosts(synth.observe(fabric, rounds=40, seed=3), fabric)
    expected = sorted(card.name for card in cards[:named])
    assert sorted(host.name for host in worst) == expected


def test_a_slow_uplink_is_found_among_its_peers() -> None:
    """Tests that the worse direction of a group's link counts."""
    racks = list(FABRIC.root.children)
    racks[1] = dataclasses.replace(racks[1], downlink_bytes_per_s=10e6)
    fabric = Fabric(dataclasses.replace(FABRIC.root, children=tuple(racks)))
    first, *others = uplinks(synth.observe(fabric, rounds=20, seed=3), fabric)
    assert (first.name, first.stands_out) == ("rack-2", True)
    assert first.share == pytest.approx(0.2)
    assert first.oversubscription == pytest.approx(5 * 50e6 / 10e6)
    assert not any(link.stands_out for link in others)


@pytest.mark.parametrize(("share", "slow"), [(0.85, False), (0.75, False), (0.6, True)])
def test_how_slow_a_link_has_to_be_to_stand_out(share: float, slow: bool) -> None:
    """Tests an uplink and a host's link of a share of what the others have."""
    racks = list(FABRIC.root.children)
    racks[1] = dataclasses.replace(racks[1], downlink_bytes_per_s=share * 50e6)
    first, *cards = racks[0].children
    narrow = dataclasses.replace(first, uplink_bytes_per_s=share * 50e6)
    racks[0] = dataclasses.replace(racks[0], children=(narrow, *cards))
    fabric = Fabric(dataclasses.replace(FABRIC.root, children=tuple(racks)))
    snapshot = synth.observe(fabric, rounds=40, seed=3)
    assert [link.name for link in uplinks(snapshot, fabric) if link.stands_out] == (
        ["rack-2"] if slow else []
    )
    named = [host.name for host in host_effects(snapshot, fabric) if host.is_slow]
    assert named == ([first.name] if slow else [])


def test_oversubscription_counts_every_host_below() -> None:
    """Tests n:1 of nested groups, of unknown hosts and of unknown links."""
    racks = Node("pod", FABRIC.root.children, 150e6, 75e6)
    assert oversubscription(racks) == pytest.approx(10.0)
    some = Node("rack", (Node("a", (), 4.0, 4.0), Node("b"), Node("c")), 6.0, 6.0)
    assert oversubscription(some) == pytest.approx(2.0)
    assert math.isnan(oversubscription(Node("rack", some.children)))
    assert math.isnan(oversubscription(Node("rack", (Node("a"),), 6.0, 6.0)))


def test_a_bad_direction_is_named() -> None:
    """Tests that the worse direction comes first, with both rates."""
    snapshot = planted(rounds=40)

    def one_way(flows: LoadedFlows) -> Bools:
        chosen: Bools = (flows.src == 2) & (flows.dst == 11)
        return chosen

    (pair,) = one_way_pairs(throttled(snapshot, one_way, 0.1), FABRIC)
    assert (pair.src, pair.dst) == ("vm-03", "vm-12")
    assert pair.bytes_per_s < pair.back_bytes_per_s / 3
    (dead,) = one_way_pairs(throttled(snapshot, one_way, 0.0), FABRIC)
    assert dead.bytes_per_s == 0.0


def test_a_dead_host_has_no_rates() -> None:
    """Tests that a host without a measurement gets none from the others."""
    snapshot = without(planted(), 3)
    snapshot = snapshot.with_fabric(infer_fabric(snapshot))
    assert snapshot.silent == {"vm-04"}
    (effect,) = [
        host
        for host in host_effects(snapshot, honest_fabric(snapshot))
        if host.name == "vm-04"
    ]
    assert all(
        map(
            math.isnan,
            (effect.late_s, effect.sends_bytes_per_s, effect.receives_bytes_per_s),
        )
    )
    assert not effect.is_late
    assert not effect.is_slow


def test_what_labels_say_is_kept() -> None:
    """Tests that only inferred rates are taken back, not imported ones."""
    unmeasured = NetworkSnapshot(planted().hosts, fabric=FABRIC)
    assert honest_fabric(unmeasured) is FABRIC
    assert unmeasured.silent == frozenset()
