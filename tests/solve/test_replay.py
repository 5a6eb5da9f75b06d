from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, pair_figures, schedules, slot_counts

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.engine import library
from cloudcoll.measured.synth import racks
from cloudcoll.model.contention import contended_seconds, replay_of
from cloudcoll.model.cost import CostModel
from cloudcoll.solve.finalists import replayed_seconds

engine = library()


@given(st.data(), st.booleans())
def test_the_engine_replays_as_python_does(
    data: st.DataObject, with_pairs: bool
) -> None:
    """Tests any schedule, fabric, slots and order, with and without pairs' figures."""
    assert engine is not None
    fabric = data.draw(fabrics())
    hosts = len(fabric.hosts)
    slots = data.draw(slot_counts(hosts))
    sent = data.draw(schedules(sum(slots)))
    pairs = data.draw(pair_figures(hosts)) if with_pairs else None
    model = CostModel(sent, fabric, slots, pairs=pairs)
    order = data.draw(st.permutations(range(hosts)))
    expected = contended_seconds(model, order)
    found = replayed_seconds(engine, replay_of(model, order))
    # Where times are all but equal one of them may take them for one.
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("algorithm", ["rabenseifner", "nccl_tree", "lightgbm"])
def test_uneven_racks_are_replayed_alike(algorithm: str) -> None:
    """Tests a larger replay, where ranks drift apart."""
    assert engine is not None
    fabric = racks([9, 4, 6, 5], nic=1e9, uplink=2e9)
    model = CostModel(
        build_schedule("allreduce", algorithm, 24, 1 << 22), fabric, [1] * 24
    )
    order = np.random.default_rng(0).permutation(24)
    found = replayed_seconds(engine, replay_of(model, order))
    assert found == pytest.approx(contended_seconds(model, order), rel=1e-6)


@settings(max_examples=20)
@given(st.data())
def test_the_engine_replays_workloads_as_python_does(data: st.DataObject) -> None:
    """Tests operations with any calls, on any fabric: what leads is not counted."""
    assert engine is not None
    fabric = data.draw(fabrics(min_hosts=2))
    hosts = len(fabric.hosts)
    order = data.draw(st.permutations(range(hosts)))
    sent = tuple(
        Operation(*kind, size, [np.array(order)], data.draw(st.integers(1, 6)))
        for kind, size in (
            (("bcast", "binomial"), 1 << 20),
            (("allreduce", "nccl_tree"), 3 << 20),
        )
    )
    model = CostModel(Workload("any", hosts, sent), fabric, [1] * hosts)
    found = replayed_seconds(engine, replay_of(model, range(hosts)))
    assert found == pytest.approx(contended_seconds(model, range(hosts)), rel=1e-3)


@pytest.mark.parametrize("recurs", [False, True])
def test_a_replay_ends_at_its_limit(recurs: bool) -> None:
    """Tests that what takes longer than asked for is infinite, and nothing else."""
    assert engine is not None
    fabric = racks([2, 2], nic=100.0, uplink=100.0)
    sent: Schedule | Workload = build_schedule("allreduce", "ring", 4, 400)
    if recurs:
        ring = Operation("allreduce", "ring", 400, [np.arange(4)])
        sent = Workload("rings", 4, (ring, ring))
    model = CostModel(sent, fabric, [1] * 4)
    replay = replay_of(model, range(4))
    seconds = replayed_seconds(engine, replay)
    assert replayed_seconds(engine, replay, seconds * 1.01) == seconds
    assert replayed_seconds(engine, replay, seconds * 0.9) == math.inf
