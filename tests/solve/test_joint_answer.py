"""One order for several collectives at once, on planted fabrics."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.readymade import ready_made
from cloudcoll.collectives.workload import Operation, Workload, read_workload
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import solve
from cloudcoll.solve.orders import baseline_orders


def snapshot_of(fabric: Fabric) -> NetworkSnapshot:
    hosts = tuple(Host(name) for name in sorted(fabric.hosts))
    return NetworkSnapshot(hosts, fabric=fabric, digest="abc")


def seconds(sent: Schedule | Workload, fabric: Fabric, order: Sequence[str]) -> float:
    model = CostModel(sent, fabric, [1] * len(fabric.hosts))
    return model.seconds([fabric.position(name) for name in order])


def strided(ranks: int, stride: int) -> Workload:
    """Return heavy exchange between ranks a stride apart, a light ring of all."""
    groups = np.arange(ranks).reshape(-1, stride).T
    return Workload(
        "job",
        ranks,
        (
            Operation("allreduce", "ring", 16 << 20, groups, 8, "strided"),
            Operation("allreduce", "ring", 16 << 20, np.arange(ranks)[None]),
        ),
    )


@pytest.mark.parametrize(("racks_of", "stride"), [([3, 3], 2), ([4, 4, 4, 4], 4)])
def test_the_joint_answer_is_not_that_of_the_allreduce(
    racks_of: list[int], stride: int
) -> None:
    """Tests that it puts each strided group in a rack, and wins by what that saves."""
    fabric = racks(racks_of, seed=2)
    job = strided(sum(racks_of), stride)
    ring = build_schedule("allreduce", "ring", sum(racks_of), 16 << 20)
    joint, alone = (solve(snapshot_of(fabric), sent) for sent in (job, ring))
    assert joint.order != alone.order
    mine, theirs = (seconds(job, fabric, found.order) for found in (joint, alone))
    assert joint.predicted["cloudcoll"] == pytest.approx(mine)
    assert mine < 0.8 * theirs
    # What the ring alone loses by it: the price that the sum found worth paying.
    assert seconds(ring, fabric, joint.order) > seconds(ring, fabric, alone.order)
    for order in baseline_orders(sorted(fabric.hosts), fabric).values():
        assert mine <= seconds(job, fabric, order) * (1 + 1e-9)
    in_racks = {frozenset(joint.order[first::stride]) for first in range(stride)}
    assert in_racks == {frozenset(node.leaves()) for node in fabric.root.children}


def test_towers_sit_in_one_rack_each() -> None:
    """Tests that neighbouring ranks that exchange much get hosts of one rack."""
    fabric = racks([4, 4, 4, 4], seed=7)
    found = solve(snapshot_of(fabric), ready_made("towers:tower=4", 16))
    towers = {frozenset(found.order[first : first + 4]) for first in range(0, 16, 4)}
    assert towers == {frozenset(node.leaves()) for node in fabric.root.children}
    assert found.predicted["cloudcoll"] < found.predicted["given"]


def test_the_map_keeps_the_workload() -> None:
    """Tests that a saved map says in full what it was solved for."""
    fabric = racks([3, 3], seed=2)
    job = strided(6, 2)
    found = RankMap.from_json(solve(snapshot_of(fabric), job).to_json())
    assert found.schedule == job.describe()
    again = read_workload(json.dumps(dict(found.schedule)), "the map")
    assert (again.pair_bytes() == job.pair_bytes()).all()


def test_an_all_to_all_of_everyone_has_nothing_to_gain() -> None:
    """Tests that the order stays as it is: all pairs send alike."""
    fabric = racks([3, 3], seed=2)
    everyone = build_schedule("alltoall", "linear", 6, 1 << 20)
    assert solve(snapshot_of(fabric), everyone).origin == "given"


def test_slots_must_fit_the_workload() -> None:
    """Tests that a job of other ranks than the hosts have is refused."""
    with pytest.raises(UsageError, match="6 slots, the schedule 8 ranks"):
        solve(snapshot_of(racks([3, 3])), strided(8, 2))
