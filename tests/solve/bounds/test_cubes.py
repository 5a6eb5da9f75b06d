from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.solve.bounds.cuts import Cube, Traffic, find_cube

ALGORITHMS = ["rabenseifner", "recursive_doubling", "gloo_halving_doubling"]


def phases_of(schedule: Schedule) -> tuple[Traffic, list[Traffic]]:
    """Return all messages of a schedule as one, and step by step."""
    steps, ranks = schedule.steps, schedule.ranks
    src = np.concatenate([step.src for step in steps])
    dst = np.concatenate([step.dst for step in steps])
    size = np.concatenate([step.size for step in steps])
    parts = [Traffic.of(ranks, step.src, step.dst, step.size) for step in steps]
    return Traffic.of(ranks, src, dst, size), parts


def cube_of(algorithm: str, ranks: int) -> tuple[Cube, list[Traffic]]:
    whole, parts = phases_of(build_schedule("allreduce", algorithm, ranks, 1 << 20))
    cube = find_cube(whole, parts)
    assert cube is not None
    return cube, parts


def least_by_trying(parts: list[Traffic], count: int, floor: float) -> float:
    """Return the least seconds of all choices, at a byte/s and with such a floor."""
    tried = []
    for chosen in itertools.combinations(range(parts[0].units), count):
        out = [
            part.size[np.isin(part.src, chosen) & ~np.isin(part.dst, chosen)].sum()
            for part in parts
        ]
        tried.append(sum(max(sent, floor) for sent in out))
    return float(min(tried))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ALGORITHMS),
    st.integers(4, 11),
    st.data(),
    st.sampled_from([0.0, 1e4, 1e5, 1e6]),
)
def test_no_choice_of_ranks_is_faster(
    algorithm: str, ranks: int, data: st.DataObject, floor: float
) -> None:
    """Tests cubes of all corners and with folded ranks against every choice."""
    cube, parts = cube_of(algorithm, ranks)
    count = data.draw(st.integers(1, ranks - 1))
    floors = np.full(len(parts), floor)
    best = least_by_trying(parts, count, floor)
    assert cube.seconds(count, 1.0, floors) <= best * (1 + 1e-9)
    assert cube.turned.seconds(count, 1.0, floors) <= best * (1 + 1e-9)


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_floors_the_best_choice_is_known(algorithm: str, count: int) -> None:
    """Tests the edges of Harper's sets, weighted, on 8 corners."""
    cube, parts = cube_of(algorithm, 8)
    best = least_by_trying(parts, count, 0.0)
    assert cube.seconds(count, 1.0, np.zeros(len(parts))) == pytest.approx(best)


def test_folded_ranks_stay_beside_the_cube() -> None:
    """Tests that 11 ranks are 8 corners, and the fold no dimension."""
    cube, parts = cube_of("rabenseifner", 11)
    assert (cube.phases[0].units, cube.hanging) == (8, 3)
    assert sorted(set(cube.dimensions.tolist())) == [-1, 0, 1, 2]
    assert len(cube.phases) == len(parts)


@pytest.mark.parametrize("algorithm", ["ring", "lightgbm", "basic_linear"])
def test_other_families_are_no_cubes(algorithm: str) -> None:
    """Tests that nothing is read into schedules of another shape."""
    whole, parts = phases_of(build_schedule("allreduce", algorithm, 12, 1 << 20))
    assert find_cube(whole, parts) is None
