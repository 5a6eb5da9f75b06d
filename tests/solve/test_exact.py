from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import fabrics, slot_counts

from benchmarks.exact import branch_and_bound, lower_bounds
from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import exhaustive

FAMILIES = [
    (name, key)
    for name, table in SCHEDULES.items()
    for key, family in table.items()
    if family.only is None
]


@st.composite
def small(draw: st.DrawFn, most: int = 6) -> CostModel:
    """Draw a handful of hosts on any tree, with any slots and schedule."""
    fabric = draw(fabrics(min_hosts=2, max_hosts=most))
    slots = draw(slot_counts(len(fabric.hosts)))
    collective, algorithm = draw(st.sampled_from(FAMILIES))
    size = draw(st.sampled_from([8, 4096, 1 << 20]))
    schedule = build_schedule(collective, algorithm, sum(slots), size)
    return CostModel(schedule, fabric, slots)


@settings(max_examples=60)
@given(small(), st.integers(0, 1), st.data())
def test_nothing_is_faster(model: CostModel, pinned: int, data: st.DataObject) -> None:
    """Tests that it finds what trying every order finds."""
    start = np.array(data.draw(st.permutations(range(len(model.slots)))))
    order, cost = branch_and_bound(model, [start], pinned)
    rules = Rules.only(len(start), dict(enumerate(start[:pinned].tolist())))
    _, least = exhaustive(model, [start], rules, 0)
    assert cost == model.cost(order)
    assert cost[0] == pytest.approx(least[0], rel=1e-8)
    assert sorted(order.tolist()) == list(range(len(model.slots)))
    assert order[:pinned].tolist() == start[:pinned].tolist()


@settings(max_examples=100)
@given(small(most=12), st.data())
def test_bounds_rise_to_the_cost(model: CostModel, data: st.DataObject) -> None:
    """Tests that a longer beginning never bounds less, and a whole order exactly."""
    order = np.array(data.draw(st.permutations(range(len(model.slots)))))
    bounds = [
        lower_bounds(model.flat(), order[None, :placed]).item()
        for placed in range(len(order) + 1)
    ]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(bounds))
    assert bounds[-1] == pytest.approx(model.seconds(order), rel=1e-8)


def test_what_ends_in_a_rack_of_its_own_is_seen_early() -> None:
    """Tests that a full rack's uplink counts before its partners have hosts."""
    fabric = racks([2, 4], nic=1e9, uplink=1e6)
    ring = build_schedule("allreduce", "ring", 6, 6 << 20)
    model = CostModel(ring, fabric, [1] * 6)
    one, both = (
        lower_bounds(model.flat(), np.arange(placed)[None]) for placed in (1, 2)
    )
    assert both.item() > 10 * one.item()


def test_twins_are_tried_once() -> None:
    """Tests eleven hosts of three racks: 11550 orders differ, of 40 million."""
    fabric = racks([4, 4, 3], seed=1)
    schedule = build_schedule("allreduce", "rabenseifner", 11, 1 << 20)
    model = CostModel(schedule, fabric, [1] * 11)
    order, cost = branch_and_bound(model, [np.arange(11)], 0)
    assert cost < model.cost(np.arange(11))
    assert sorted(order.tolist()) == list(range(11))
