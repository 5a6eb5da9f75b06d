from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, slot_counts

from cloudcoll.cost import CostModel, FlatSteps
from cloudcoll.fabric.synth import racks
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.schedule import SCHEDULES, build_schedule
from cloudcoll.solve import kernel as kernel_module
from cloudcoll.solve import search
from cloudcoll.solve.kernel import Kernel, library

FAMILIES = [(name, key) for name, table in SCHEDULES.items() for key in table]
SAMPLE = [
    ("allreduce", "rabenseifner"),
    ("allreduce", "nccl_tree"),
    ("allreduce", "lightgbm"),
    ("allreduce", "ring"),
    ("alltoall", "bruck"),
]


def engine_of(model: CostModel) -> Kernel:
    engine = library()
    assert engine is not None, "the engine was not built: pip install -e ."
    return Kernel(engine, model.flat())


def agree(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether two costs are the same but for rounding."""
    return all(map(lambda a, b: math.isclose(a, b, rel_tol=2e-9), one, other))


@st.composite
def models(draw: st.DrawFn, max_hosts: int = 40) -> CostModel:
    fabric = draw(fabrics(min_hosts=2, max_hosts=max_hosts))
    slots = draw(slot_counts(len(fabric.hosts)))
    collective, algorithm = draw(st.sampled_from(FAMILIES))
    ranks = SCHEDULES[collective][algorithm].only or sum(slots)
    if ranks != sum(slots):
        fabric = Fabric(Node("core", (Node("a", (), 1e7, 2e7, 1e-5), Node("b"))))
        slots = [1, 1]
    size = draw(st.sampled_from([8, 4096, 1 << 20, (64 << 20) + 4]))
    schedule = build_schedule(collective, algorithm, sum(slots), size)
    return CostModel(schedule, fabric, slots)


@settings(max_examples=150)
@given(models(), st.data())
def test_the_engine_counts_what_the_cost_model_counts(
    model: CostModel, data: st.DataObject
) -> None:
    """Tests every algorithm on any tree, with any slots and order."""
    order = data.draw(st.permutations(range(len(model.slots))))
    assert agree(engine_of(model).cost(order), model.cost(order))


@settings(max_examples=100)
@given(models(max_hosts=24), st.data(), st.integers(0, 2**64), st.booleans())
def test_figures_kept_up_to_date_do_not_drift(
    model: CostModel, data: st.DataObject, seed: int, hot: bool
) -> None:
    """Tests, to the last bit, long walks of moves: all taken, or many undone."""
    order = data.draw(st.permutations(range(len(model.slots))))
    kernel = engine_of(model)
    heat = 1e9 if hot else 0.01 * model.seconds(order)
    found = kernel.search(order, steps=2000, seed=seed, heat=heat, smooth=1.0)
    assert found.steps == 2000
    assert sorted(found.last.tolist()) == sorted(order)
    assert found.last_cost == kernel.cost(found.last)
    assert found.cost == kernel.cost(found.order)
    assert agree(found.cost, model.cost(found.order))
    assert found.cost[0] <= kernel.cost(order)[0] * (1 + 1e-8)


def test_a_hot_walk_leaves_no_order_out() -> None:
    """Tests that moves reach every order with the pinned host in front."""
    kernel = engine_of(CostModel(*problem("ring", [3, 2])))
    ends = {
        tuple(kernel.search(range(5), steps=50, pinned=1, seed=i, heat=1e9).last)
        for i in range(400)
    }
    assert len(ends) == math.factorial(4)
    assert {order[0] for order in ends} == {0}


def problem(algorithm: str, sizes: list[int]) -> tuple[object, Fabric, list[int]]:
    fabric = racks(sizes, nic=50e6, uplink=60e6, seed=len(sizes))
    ones = [1] * sum(sizes)
    return build_schedule("allreduce", algorithm, sum(sizes), 16 << 20), fabric, ones
