from __future__ import annotations

import dataclasses
from math import gcd

import numpy as np
import pytest
from delivery import WORLDS, assert_delivers
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.collectives import SCHEDULES, Schedule, build_schedule

SIZE = 1 << 20
NAMES = [(name, algorithm) for name in SCHEDULES for algorithm in SCHEDULES[name]]
MOST = {("reduce_scatter", "gloo_ring_parts"): 40}
"""Ranks, where N x N blocks of N contributions on N ranks are too many."""

DRAWN = {
    "root": st.integers(0, 129),
    "segment": st.sampled_from([0, 1000, 4096, SIZE // 2, SIZE]),
    "radix": st.integers(2, 9),
    "fanout": st.integers(1, 9),
    "local": st.integers(1, 130),
    "columns": st.integers(1, 130),
    "allgather": st.integers(1, 8),
    "barrier": st.integers(1, 6),
    "bcast": st.integers(1, 9),
    "gather": st.integers(1, 3),
    "reduce": st.integers(1, 8),
    "scatter": st.integers(1, 3),
}
"""Values for each parameter that a family may take."""


@st.composite
def built(draw: st.DrawFn, collective: str, algorithm: str) -> Schedule:
    """Draw a schedule of this family for any number of ranks."""
    family = SCHEDULES[collective][algorithm]
    # Two algorithms in a row may have N p' blocks: more than fit for many ranks.
    most = 40 if {"bcast", "reduce"} & {*family.parameters()} else 130
    most = MOST.get((collective, algorithm), most)
    ranks = draw(st.just(family.only) if family.only else st.integers(1, most))
    given = {}
    for key in family.parameters():
        value = draw(st.none() | DRAWN[key])
        if value is not None:
            given[key] = fitting(key, value, ranks)
    return build_schedule(collective, algorithm, ranks, SIZE, **given)


def fitting(key: str, value: int, ranks: int) -> int:
    """Return a value near the one drawn that so many ranks can have."""
    if key == "root":
        return value % ranks
    return gcd(value, ranks) if key in ("local", "columns") else value


@pytest.mark.parametrize(("collective", "algorithm"), NAMES)
def test_delivers(collective: str, algorithm: str) -> None:
    """Tests by data flow that every rank ends with the operation's result."""
    only = SCHEDULES[collective][algorithm].only
    most = MOST.get((collective, algorithm), 130)
    for ranks in [only] if only else (n for n in WORLDS if n <= most):
        assert_delivers(build_schedule(collective, algorithm, ranks, SIZE))


@pytest.mark.parametrize(("collective", "algorithm"), NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_delivers_with_any_parameters(
    collective: str, algorithm: str, data: st.DataObject
) -> None:
    """Tests the same for any world size, root, segment and radix."""
    schedule = data.draw(built(collective, algorithm))
    assert_possible(schedule)
    assert_delivers(schedule)


def assert_possible(schedule: Schedule) -> None:
    """Check that ranks exist, none sends to itself, and that bytes fit blocks."""
    for step in schedule.steps:
        assert len(step.src) == len(step.dst) == len(step.size) > 0
        assert step.repeat >= 1
        for end in (step.src, step.dst):
            assert end.min() >= 0
            assert end.max() < schedule.ranks
        assert (step.src != step.dst).all()
        assert step.cargo is not None
        size = step.cargo.count * block_bytes(schedule)
        # `approx` compares one by one, which takes longer than all else here.
        np.testing.assert_allclose(step.size, size, rtol=1e-6)


def block_bytes(schedule: Schedule) -> float:
    """Return the bytes of a block as the operation has them."""
    if schedule.collective == "barrier":
        return 0
    if schedule.collective == "sendrecv":
        return schedule.size
    if schedule.collective == "alltoall":
        return schedule.size * schedule.ranks / schedule.blocks
    reduces = [step.cargo and step.cargo.reduces for step in schedule.steps]
    if schedule.collective == "allreduce" and not any(reduces):
        return schedule.size  # gathers whole vectors
    return schedule.size / schedule.blocks


@pytest.mark.parametrize("fault", ["dropped", "doubled", "empty"])
def test_a_wrong_schedule_is_noticed(fault: str) -> None:
    """Tests that the proof fails for a step that is missing or happens twice."""
    right = build_schedule("allreduce", "recursive_doubling", 8, SIZE)
    one, two, three = right.steps
    steps = {
        "dropped": (one, three),
        "doubled": (one, two, two, three),
        "empty": (),
    }[fault]
    with pytest.raises(AssertionError):
        assert_delivers(dataclasses.replace(right, steps=steps))


def test_a_wrong_block_is_noticed() -> None:
    """Tests that the proof fails for a ring whose blocks don't move on."""
    right = build_schedule("allreduce", "ring", 5, SIZE)
    first, second = right.steps
    assert first.cargo is not None
    stuck = dataclasses.replace(first.cargo, shift=0)
    wrong = dataclasses.replace(first, cargo=stuck)
    with pytest.raises(AssertionError):
        assert_delivers(dataclasses.replace(right, steps=(wrong, second)))


def test_every_parameter_can_be_drawn() -> None:
    """Tests that no family takes a parameter that these tests leave out."""
    for families in SCHEDULES.values():
        for family in families.values():
            assert set(family.parameters()) <= set(DRAWN)


def test_pair_bytes_are_those_of_the_blocks() -> None:
    """Tests bytes of pairs against a count of carried blocks, by hand."""
    schedule = build_schedule("allreduce", "rabenseifner", 11, SIZE)
    total = np.zeros((11, 11))
    for step in schedule.steps:
        assert step.cargo is not None
        message, _ = step.cargo.blocks(0, schedule.blocks)
        for number in message:
            total[step.src[number], step.dst[number]] += SIZE / schedule.blocks
    assert schedule.pair_bytes() == pytest.approx(total)
