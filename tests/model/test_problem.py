from __future__ import annotations

import dataclasses

from cloudcoll.collectives import build_schedule
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model import ASSUMPTION, fabric_of, problem_of, problem_on
from cloudcoll.network.tree import Fabric

WIDE = racks([2, 2], nic=100.0, uplink=100.0, rtt=0.0, rack_rtt=0.0)
NARROW = racks([2, 2], nic=100.0, uplink=10.0, rtt=0.0, rack_rtt=0.0)
A, B, C, D = WIDE.hosts
RING = build_schedule("allreduce", "ring", 4, 400)


def snapshot_of(fabric: Fabric | None) -> NetworkSnapshot:
    """Return a snapshot in which nothing but a fabric is known."""
    return NetworkSnapshot(tuple(map(Host, WIDE.hosts)), fabric=fabric)


def test_a_fabric_may_stand_in_for_the_snapshots() -> None:
    """Tests a ring across wide and narrow uplinks: six steps of 100 bytes."""
    slots, order = dict.fromkeys(WIDE.hosts, 1), [A, B, C, D]
    assert problem_of(snapshot_of(WIDE), RING, slots).seconds(order) == 6 * 1.0
    assert problem_of(snapshot_of(NARROW), RING, slots).seconds(order) == 6 * 10.0
    for carried in (WIDE, None):
        snapshot = snapshot_of(carried)
        narrow = problem_of(snapshot, RING, slots, fabric=NARROW)
        assert narrow.seconds(order) == 6 * 10.0


def test_only_the_hosts_to_use_are_in_it() -> None:
    """Tests two hosts of four, named in any order, one with two ranks."""
    ring = build_schedule("allreduce", "ring", 3, 300)
    found = problem_of(snapshot_of(NARROW), ring, {D: 2, A: 1})
    assert found.fabric.hosts == (A, D)
    assert found.model.slots.tolist() == [1, 2]
    assert found.positions([D, A]).tolist() == [1, 0]
    # Four steps, in each of which 100 bytes go over the uplink.
    assert found.seconds([A, D]) == 4 * 10.0
    assert found.assumption == ""


def test_hosts_beyond_the_seats_have_no_ranks() -> None:
    """Tests that the last of an order count for nothing, on either way to a problem."""
    ring = build_schedule("allreduce", "ring", 2, 200)
    slots = dict.fromkeys(WIDE.hosts, 1)
    for found in (
        problem_of(snapshot_of(NARROW), ring, slots, seats=2),
        problem_on(NARROW, ring, slots, seats=2),
    ):
        assert found.seconds([A, B, C, D]) == 2 * 1.0
        assert found.seconds([A, C, B, D]) == 2 * 10.0


def test_what_is_assumed_is_said() -> None:
    """Tests groups by labels, taken as they are where a fabric has changed."""
    bare = dataclasses.replace(
        racks([2, 2], nic=float("nan"), uplink=float("nan"), rtt=0.0, rack_rtt=0.0),
        origin="labels",
    )
    slots = dict.fromkeys(WIDE.hosts, 1)
    found = problem_of(snapshot_of(bare), RING, slots)
    assert found.assumption == ASSUMPTION
    assert found.fabric.shares_links()
    as_it_stands = problem_on(bare, RING, slots)
    assert (as_it_stands.fabric, as_it_stands.assumption) == (bare, "")


def test_a_fabric_is_inferred_where_there_is_none() -> None:
    """Tests racks that round trips tell, and a fabric that a snapshot carries."""
    seen = observe(racks([3, 3], seed=1))
    assert seen.fabric is None
    found = fabric_of(seen)
    planted = racks([3, 3], seed=1).groups()[0]
    assert {frozenset(node.leaves()) for node in found.groups()[0]} == {
        frozenset(node.leaves()) for node in planted
    }
    assert fabric_of(snapshot_of(NARROW)) is NARROW
