from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
import pytest
from mpis import MPIS

from cloudcoll.bench.compare import compare_orders
from cloudcoll.bench.job import BenchPace
from cloudcoll.bench.native import mpi_program
from cloudcoll.collectives import build_schedule
from cloudcoll.daemon.verdict import OrderQuestion
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.libraries import Selection
from cloudcoll.measured import synth
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.solve import solve


def test_nothing_is_predicted_inside_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests ranks on one host: ratios, no prediction of links that it has not."""
    mpi = MPIS[0]
    for name, value in mpi.environment().items():
        monkeypatch.setenv(name, value)
    mpirun = str(mpi.prefix / "bin" / "mpirun")
    program = mpi_program("c", mpirun, mpi.environment())
    fabric = synth.racks((2,), seed=1)
    snapshot = synth.observe(fabric, rounds=3).with_fabric(fabric)
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=(mpirun, *mpi.options, "-n", "2", *program),
        start=1,
        hosts=(Host(snapshot.names[0]),),
        source="hosts",
        counts=(2,),
    )
    run = compare_orders(
        request,
        snapshot,
        orders="given,cloudcoll",
        collective="allreduce",
        chosen={4096: Selection("ring", rule="tests")},
        pace=BenchPace(repeats=3, seconds=1.0, narrow=0.01, least=3, min_seconds=0.0),
        free_rank0=False,
    )
    assert run.predicted == {}
    (ratio,) = run.ratios()
    assert ratio.ratio == 1.0
    assert np.isnan(ratio.predicted)


JOB = """
import json, sys
task = json.loads(sys.stdin.readline())
print(json.dumps({"library": "a job", "hosts": sys.argv[1:]}))
for size in task["sizes"]:
    for order in task["orders"]:
        row = {"op": task["op"], "bytes": size, "order": order, "repeat": 0}
        print(json.dumps({**row, "time_us": 2.0, "calls": 1, "wrong": 0}))
print(json.dumps({"done": True}))
"""


def two_racks(nic: float) -> tuple[LaunchRequest, NetworkSnapshot]:
    """Return a job of four hosts, racks by turns, and their snapshot."""
    fabric = synth.racks((2, 2), nic=nic, uplink=nic, rtt=0.0, rack_rtt=0.0)
    (a, b), (c, d) = (node.leaves() for node in fabric.root.children)
    given = (a, c, b, d)
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=(sys.executable, "-c", JOB, *given),
        start=1,
        hosts=tuple(map(Host, given)),
        source="hosts",
        counts=(1, 1, 1, 1),
    )
    return request, synth.observe(fabric, rounds=3).with_fabric(fabric)


def test_each_size_is_predicted_by_its_own_algorithm() -> None:
    """Tests seconds by hand, of two racks whose one link up two flows share, or not.

    A ring's ranks send a quarter of the bytes in each of six steps. In recursive
    doubling pairs exchange all of them, inside the racks once and once across, where
    two share a link up; and what is beyond 192 KiB waits for that of the other.
    """
    nic = 1e6
    request, snapshot = two_racks(nic)
    run = compare_orders(
        request,
        snapshot,
        orders="given,grouped",
        collective="allreduce",
        chosen={
            100_000: Selection("ring", rule="tests"),
            200_000: Selection("recursive_doubling", rule="tests"),
        },
        pace=BenchPace(repeats=1, seconds=140.0, narrow=0.01, least=3),
        free_rank0=False,
    )
    assert run.sizes == [100_000, 200_000]
    assert set(run.predicted) == {"100000", "200000"}
    ring = run.predicted["100000"]
    assert ring["grouped"] == pytest.approx(6 * 25_000 / nic, rel=1e-3)
    assert ring["given"] == pytest.approx(2 * 6 * 25_000 / nic, rel=1e-3)
    alone = 200_000 - (192 << 10)
    both = pytest.approx((1 + 2) * 200_000 / nic + 2 * alone / nic, rel=1e-3)
    assert run.predicted["200000"] == {"given": both, "grouped": both}
    assert run.metadata["algorithm"] == "ring, recursive_doubling"
    assert run.metadata["placement"] == list(request.used)


def labels_alone() -> NetworkSnapshot:
    """Return groups without a speed, as a map of a cloud has them."""
    groups = [Node(f"rack-{x}", (Node(f"{x}1"), Node(f"{x}2"))) for x in "ab"]
    fabric = Fabric(Node("core", tuple(groups)), origin="labels")
    return NetworkSnapshot(tuple(map(Host, fabric.hosts)), fabric=fabric)


def uneven_links() -> NetworkSnapshot:
    """Return racks whose links differ by less than the fit's own error."""
    fabric = synth.racks((2, 2), nic=1e6, uplink=1e6, rtt=1e-3, rack_rtt=2e-3)
    first, second = fabric.root.children
    slower = dataclasses.replace(first, uplink_bytes_per_s=0.8e6)
    root = dataclasses.replace(fabric.root, children=(slower, second))
    one = dataclasses.replace(fabric, root=root, holdout_error=0.3)
    return synth.observe(one, rounds=3).with_fabric(one)


def pairs_that_differ() -> NetworkSnapshot:
    """Return hosts of which some pairs are always far, and no group is."""
    fabric = flat(tuple("abcdefgh"), "measured")
    src, dst = np.tile(np.triu_indices(8, 1), 3)
    generator = np.random.default_rng(1)
    far = generator.permutation(len(src) // 3) % 2 > 0
    trips = np.where(np.tile(far, 3), 9e-4, 2e-4)
    trips *= generator.normal(1.0, 0.01, len(src))
    each = np.ones_like(src)
    samples = RttSamples(src, dst, each, np.cumsum(each), trips)
    hosts = tuple(map(Host, fabric.hosts))
    return NetworkSnapshot(hosts, samples, fabric=fabric)


@pytest.mark.parametrize("known", [labels_alone, uneven_links, pairs_that_differ])
def test_all_predict_the_same(known: Callable[[], NetworkSnapshot]) -> None:
    """Tests that bench, map and daemon say one figure of an order and a snapshot."""
    snapshot = known()
    request, _ = two_racks(1e6)
    given = snapshot.names[::2] + snapshot.names[1::2]
    request = dataclasses.replace(
        request,
        hosts=tuple(map(Host, given)),
        argv=(sys.executable, "-c", JOB, *given),
        counts=(1,) * len(given),
    )
    run = compare_orders(
        request,
        snapshot,
        orders="given,cloudcoll",
        collective="allreduce",
        chosen={1000: Selection("ring", rule="tests")},
        pace=BenchPace(repeats=1, seconds=140.0, narrow=0.01, least=3),
        free_rank0=False,
    )
    ring = build_schedule("allreduce", "ring", len(given), 1000)
    rank_map = solve(snapshot, ring, given=given)
    question = OrderQuestion("q", ring, given, request.slots)
    kept = question.found(snapshot).best.predicted["given"]
    assert rank_map.predicted["given"] > 0
    assert run.predicted["1000"]["given"] == rank_map.predicted["given"] == kept
    ours = run.same_as.get("cloudcoll", "cloudcoll")
    assert run.predicted["1000"][ours] == rank_map.predicted["cloudcoll"]


RANDOM = ["random-1", "random-2"]


@pytest.mark.parametrize(
    ("seconds", "orders", "sizes"),
    [(9e9, [], []), (1300.0, RANDOM, []), (0.0, RANDOM, [400_000])],
)
def test_what_there_was_no_time_for(
    seconds: float, orders: list[str], sizes: list[int]
) -> None:
    """Tests that orders and sizes that were left out are told, and in what time.

    Calls are predicted to take so long that this test itself takes no time.
    """
    request, snapshot = two_racks(1e4)
    ring = Selection("ring", rule="tests")
    run = compare_orders(
        request,
        snapshot,
        orders="given,random:2,cloudcoll",
        collective="allreduce",
        chosen={100_000: ring, 400_000: ring},
        pace=BenchPace(repeats=3, seconds=seconds, narrow=0.01, least=3),
        free_rank0=False,
    )
    assert run.spared.get("orders", []) == orders
    assert run.spared.get("sizes", []) == sizes
    if orders:
        assert run.spared["seconds"] == seconds
        assert run.spared["needed"] > seconds
    else:
        assert "spared" not in run.metadata
