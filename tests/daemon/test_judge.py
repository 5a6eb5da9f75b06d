from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated import beat_of

from cloudcoll.collectives import build_schedule
from cloudcoll.daemon.beats import HostGroup, cycle
from cloudcoll.daemon.changes import Ratios, drifted, groups_of, ratios
from cloudcoll.measured.synth import racks
from cloudcoll.model import problem_on
from cloudcoll.network.tree import Fabric, Node, flat

NIC = UPLINK = 50e6


@pytest.fixture
def fabric() -> Fabric:
    """Racks whose uplinks carry what one of their hosts can send."""
    return racks((4, 4, 4, 4), nic=NIC, uplink=UPLINK, seed=1)


def degraded(fabric: Fabric, name: str, factor: float) -> Fabric:
    """Return the fabric with one uplink slower by a factor."""
    children = tuple(
        replace(
            node,
            uplink_bytes_per_s=node.uplink_bytes_per_s / factor,
            downlink_bytes_per_s=node.downlink_bytes_per_s / factor,
        )
        if node.name == name
        else node
        for node in fabric.root.children
    )
    return replace(fabric, root=replace(fabric.root, children=children))


def test_groups_of_a_fabric(fabric: Fabric) -> None:
    """Tests racks, a host beside them on the core, and a flat network."""
    root = replace(fabric.root, children=(*fabric.root.children, Node("alone")))
    made = groups_of(Fabric(root))
    assert [group.name for group in made] == [
        "rack-1",
        "rack-2",
        "rack-3",
        "rack-4",
        "",
    ]
    assert made[-1] == HostGroup("", ("alone",))
    assert groups_of(flat(("a", "b"))) == (HostGroup("", ("a",)), HostGroup("", ("b",)))


def test_nothing_changed(fabric: Fabric) -> None:
    """Tests that a beat of the fabric in force gives ratios of one."""
    for beat in cycle(groups_of(fabric), 0.0, 60.0, 1):
        found = ratios(fabric, beat, beat_of(fabric, beat, noise=0.0))
        assert found.rtt == pytest.approx(1.0)
        assert found.up == pytest.approx(1.0, rel=0.01)
        assert found.down == pytest.approx(1.0, rel=0.01)


def test_an_uplink_four_times_slower(fabric: Fabric) -> None:
    """Tests that it shows in its own group's beat, whoever the partners are."""
    now = degraded(fabric, "rack-2", 4.0)
    for seed in range(5):
        for beat in cycle(groups_of(fabric), 0.0, 60.0, seed):
            found = ratios(fabric, beat, beat_of(now, beat, noise=0.0))
            if beat.group == "rack-2":
                assert found.up == pytest.approx(0.25, rel=0.01)
                assert found.down == pytest.approx(0.25, rel=0.01)
            else:
                assert found.up > 0.25 + 1e-3


def test_the_cost_of_an_order_follows_the_uplink(fabric: Fabric) -> None:
    """Tests that what beats saw of an uplink is in the predicted seconds."""
    sent = build_schedule("allreduce", "ring", 16, 1 << 24)
    now = degraded(fabric, "rack-2", 4.0)
    beats = cycle(groups_of(fabric), 0.0, 60.0, 3)
    found = {b.group: ratios(fabric, b, beat_of(now, b, noise=0.0)) for b in beats}
    one = {"rack-2": found["rack-2"]}
    slots = dict.fromkeys(fabric.hosts, 1)
    before, after, true = (
        problem_on(one, sent, slots).seconds(fabric.hosts)
        for one in (fabric, drifted(fabric, one), now)
    )
    assert after == pytest.approx(true, rel=0.01)
    assert after > 3 * before


def test_a_longer_way(fabric: Fabric) -> None:
    """Tests that round trips out of a group lengthen its link."""
    children = tuple(
        replace(node, latency_s=node.latency_s + 1e-4)
        if node.name == "rack-3"
        else node
        for node in fabric.root.children
    )
    now = replace(fabric, root=replace(fabric.root, children=children))
    beats = cycle(groups_of(fabric), 0.0, 60.0, 4)
    beat = next(beat for beat in beats if beat.group == "rack-3")
    found = ratios(fabric, beat, beat_of(now, beat, noise=0.0))
    changed = drifted(fabric, {"rack-3": found})
    assert np.allclose(changed.links.latency, now.links.latency)


def test_where_no_rate_is_known() -> None:
    """Tests that a flat network without rates has round trips alone, or nothing."""
    names = tuple(f"vm-{i}" for i in range(8))
    unknown = flat(names)
    beat = cycle(groups_of(unknown), 0.0, 60.0, 1)[0]
    fast = Fabric(Node("core", tuple(Node(n, (), NIC, NIC, 1e-5) for n in names)))
    found = ratios(unknown, beat, beat_of(fast, beat, noise=0.0))
    assert math.isnan(found.rtt)
    assert math.isnan(found.up)
    assert repr(drifted(unknown, {"core": found})) == repr(unknown)


def test_an_uplink_that_was_no_limit() -> None:
    """Tests that one of unknown capacity gets what it lets through once it limits."""
    known = racks((4, 4), nic=NIC, uplink=8 * NIC, seed=1)
    fabric = degraded(known, "rack-1", math.nan)
    assert math.isnan(fabric.root.children[0].uplink_bytes_per_s)
    now = degraded(known, "rack-1", 8.0)
    beats = cycle(groups_of(fabric), 0.0, 60.0, 4)
    beat = next(beat for beat in beats if beat.group == "rack-1")
    found = ratios(fabric, beat, beat_of(now, beat, noise=0.0))
    changed = drifted(fabric, {"rack-1": found}).root.children[0]
    assert changed.uplink_bytes_per_s == pytest.approx(NIC, rel=0.02)


def test_rates_over_the_first() -> None:
    """Tests the median of what was seen first, and what is not known of it."""
    first = [Ratios(rtt=1.0, up=up, down=2.0) for up in (1.8, 9.0, 2.0)]
    found = Ratios(rtt=1.5, up=0.5, down=2.0, trip=1e-3, rates=(1.0, 2.0)).over(first)
    assert found == Ratios(rtt=1.5, up=0.25, down=1.0, trip=1e-3, rates=(1.0, 2.0))
    unknown = found.over([])
    assert math.isnan(unknown.up)
    assert unknown.rtt == 1.5
