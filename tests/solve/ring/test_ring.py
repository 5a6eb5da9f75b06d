from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll import engine
from cloudcoll.arrays import Floats, Ints
from cloudcoll.errors import UsageError
from cloudcoll.solve import ring as ring_module
from cloudcoll.solve.ring import OBJECTIVES, best_ring
from cloudcoll.solve.ring.gates import bottleneck_bound, visited

BR17 = """
9999 3 5 48 48 8 8 5 5 3 3 0 3 5 8 8 5
3 9999 3 48 48 8 8 5 5 0 0 3 0 3 8 8 5
5 3 9999 72 72 48 48 24 24 3 3 5 3 0 48 48 24
48 48 74 9999 0 6 6 12 12 48 48 48 48 74 6 6 12
48 48 74 0 9999 6 6 12 12 48 48 48 48 74 6 6 12
8 8 50 6 6 9999 0 8 8 8 8 8 8 50 0 0 8
8 8 50 6 6 0 9999 8 8 8 8 8 8 50 0 0 8
5 5 26 12 12 8 8 9999 0 5 5 5 5 26 8 8 0
5 5 26 12 12 8 8 0 9999 5 5 5 5 26 8 8 0
3 0 3 48 48 8 8 5 5 9999 0 3 0 3 8 8 5
3 0 3 48 48 8 8 5 5 0 9999 3 0 3 8 8 5
0 3 5 48 48 8 8 5 5 3 3 9999 3 5 8 8 5
3 0 3 48 48 8 8 5 5 0 0 3 9999 3 8 8 5
5 3 0 72 72 48 48 24 24 3 3 5 3 9999 48 48 24
8 8 50 6 6 0 0 8 8 8 8 8 8 50 9999 0 8
8 8 50 6 6 0 0 8 8 8 8 8 8 50 0 9999 8
5 5 26 12 12 8 8 0 0 5 5 5 5 26 8 8 9999
"""
"""From TSPLIB (Reinelt 1991): directed, many ties; its best ring takes 39."""
BOTH_WAYS = [0, 7, 1, 4, 12, 9, 6, 2, 5, 8, 3, 11, 13, 10]
ONE_WAY = [0, 3, 11, 13, 4, 1, 7, 6, 9, 12, 2, 5, 8, 10]


def total(times: Floats, ring: Sequence[int] | Ints) -> float:
    return math.fsum(pairs(times, ring))


def slowest(times: Floats, ring: Sequence[int] | Ints) -> tuple[float, float]:
    return max(pairs(times, ring)), total(times, ring)


def pairs(times: Floats, ring: Sequence[int] | Ints) -> list[float]:
    hosts = np.asarray(ring)
    found: list[float] = times[hosts, np.roll(hosts, -1)].tolist()
    return found


@st.composite
def matrices(draw: st.DrawFn, most: int = 8) -> Floats:
    """Draw times of pairs: alike both ways or not, with many ties or hardly any."""
    hosts = draw(st.integers(1, most))
    value = draw(st.sampled_from([st.integers(0, 3), st.floats(0, 1e3), st.just(0)]))
    size = hosts * hosts
    flat = draw(st.lists(value, min_size=size, max_size=size))
    times = np.array(flat, dtype=np.float64).reshape(hosts, hosts)
    return times + times.T if draw(st.booleans()) else times


def least(times: Floats, objective: str) -> tuple[float, float]:
    """Return the slowest pair and the sum of the best of all rings."""
    rests = list(itertools.permutations(range(1, len(times))))
    rings = np.array([(0, *rest) for rest in rests])
    steps = times[rings, np.roll(rings, -1, axis=1)]
    both = list(
        zip(steps.max(axis=1).tolist(), steps.sum(axis=1).tolist(), strict=True)
    )
    return min(both) if objective == "bottleneck" else min(both, key=lambda two: two[1])


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=80)
@given(matrices(), st.integers(0, 2**64))
def test_small_rings_are_the_best_there_are(
    objective: str, times: Floats, seed: int
) -> None:
    """Tests up to eight hosts against every ring."""
    np.fill_diagonal(times, 0.0)
    found = slowest(times, best_ring(times, objective=objective, steps=9, seed=seed))
    best = least(times, objective)
    assert found[1] == pytest.approx(best[1], rel=1e-9)
    if objective == "bottleneck":
        assert found[0] == best[0]


@pytest.mark.parametrize("directed", [False, True])
def test_the_search_finds_small_optima(
    directed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the engine where every ring can be tried: 57 optima of 60 at least."""
    optima = 0
    for seed in range(60):
        times = np.random.default_rng(seed).random((8, 8))
        times = times if directed else times + times.T
        rings = [best_ring(times, steps=500, seed=seed)]
        with monkeypatch.context() as patch:
            patch.setattr(ring_module, "EXACT_HOSTS", 0)
            rings.append(best_ring(times, steps=500, seed=seed))
        exact, found = (total(times, ring) for ring in rings)
        assert exact <= found * (1 + 1e-12)
        optima += found <= exact * (1 + 1e-12)
    assert optima >= 57


@settings(max_examples=80)
@given(matrices(7))
def test_no_ring_is_below_the_bound(times: Floats) -> None:
    """Tests the bound of the slowest pair: it holds, and is one of the pairs."""
    np.fill_diagonal(times, 0.0)
    bound = bottleneck_bound(times)
    assert bound <= least(times, "bottleneck")[0]
    assert bound in times


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=60)
@given(matrices(40), st.data(), st.integers(0, 60))
def test_never_worse_than_the_start(
    objective: str, times: Floats, data: st.DataObject, steps: int
) -> None:
    """Tests that a ring has every host once, rank 0's in front, and costs no more."""
    start = data.draw(st.permutations(range(len(times))))
    found = best_ring(times, objective=objective, steps=steps, start=start)
    assert sorted(found.tolist()) == list(range(len(times)))
    assert found[0] == start[0]
    if objective == "sum":
        assert total(times, found) <= total(times, start)
    else:
        assert slowest(times, found) <= slowest(times, start)


def circle(hosts: int, seed: int) -> tuple[Floats, list[int]]:
    """Return distances on a circle, and the hosts as they lie on it."""
    generator = np.random.default_rng(seed)
    angle = generator.uniform(0, 2 * math.pi, hosts)
    points = np.exp(1j * angle)
    return np.abs(points[:, None] - points[None, :]), np.argsort(angle).tolist()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_circle_is_found(objective: str) -> None:
    """Tests 300 hosts in a circle: the only best ring, whichever way round."""
    times, order = circle(300, 4)
    found = best_ring(times, objective=objective, steps=2000).tolist()
    at = order.index(0)
    onward = order[at:] + order[:at]
    assert found in (onward, [0, *onward[:0:-1]])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_one_way_circle_is_found(objective: str) -> None:
    """Tests that directions count: against its sense the circle costs more."""
    generator = np.random.default_rng(5)
    order = generator.permutation(60)
    times = generator.uniform(2.0, 3.0, (60, 60))
    times[order, np.roll(order, -1)] = generator.uniform(0.5, 1.0, 60)
    found = best_ring(times, objective=objective, steps=4000, start=order[::-1])
    assert total(times, found) == pytest.approx(total(times, order), rel=1e-12)


def test_a_known_optimum() -> None:
    """Tests a directed instance of TSPLIB."""
    times = np.array(BR17.split(), dtype=np.float64).reshape(17, 17)
    assert total(times, best_ring(times, steps=2000)) == 39


def test_the_bound_of_a_bow_tie() -> None:
    """Tests that a host which all ways cross is no ring: the bound is above."""
    times = np.full((5, 5), 7.0)
    for left, right in itertools.permutations(range(5), 2):
        if {left, right} <= {0, 1, 2} or {left, right} <= {2, 3, 4}:
            times[left, right] = 1.0
    assert bottleneck_bound(times) == 7.0
    times[1, 3] = times[3, 1] = 2.0
    assert bottleneck_bound(times) == 2.0


def test_the_bound_where_directions_differ() -> None:
    """Tests that pairs of fast ways are no ring, and neither is a dead end."""
    times = np.full((4, 4), 9.0)
    times[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
    times[1, 2] = 2.0
    times[3, 0] = 5.0
    assert bottleneck_bound(times) == 5.0
    times[3, :] = 9.0
    times[3, 2] = 1.0
    assert bottleneck_bound(times) == 9.0


def test_the_bound_is_reached_where_it_can_be() -> None:
    """Tests 120 hosts at random: the slowest pair is at the bound."""
    points = np.random.default_rng(8).random((120, 2))
    times = np.linalg.norm(points[:, None] - points[None, :], axis=2)
    found = best_ring(times, objective="bottleneck", steps=4000)
    assert slowest(times, found)[0] == bottleneck_bound(times)


@pytest.mark.parametrize("directed", [False, True])
def test_the_same_ring_on_every_machine(directed: bool) -> None:
    """Tests one short search against what it once gave, and twice the same."""
    generator = np.random.default_rng(6)
    times = generator.integers(1, 100, (14, 14)).astype(np.float64)
    times = times if directed else times + times.T
    rings = [best_ring(times, steps=3, seed=9).tolist() for _ in range(2)]
    assert rings[0] == rings[1] == (ONE_WAY if directed else BOTH_WAYS)


def test_a_search_ends_in_time() -> None:
    """Tests that the cap of time counts, not only that of steps."""
    times, _ = circle(50, 1)
    found = best_ring(times * 1.5, steps=2**62, limit_s=0.0)
    assert sorted(found.tolist()) == list(range(50))


def test_times_of_any_size_count_alike() -> None:
    """Tests that the unit does not matter: a power of two changes nothing."""
    times = np.random.default_rng(7).random((30, 30))
    rings = [best_ring(times * 2.0**k, steps=50).tolist() for k in (-40, 0, 40)]
    assert rings[0] == rings[1] == rings[2]


def test_pairs_that_were_not_measured_are_named() -> None:
    """Tests that NaN, infinity and less than nothing are refused; the diagonal not."""
    for wrong in (math.nan, math.inf, -1.0):
        times = np.ones((4, 4))
        np.fill_diagonal(times, math.nan)
        best_ring(times, steps=1)
        times[2, 3] = wrong
        with pytest.raises(UsageError, match=f"row 2, column 3 has {wrong:g} .1 such"):
            best_ring(times, steps=1)


def test_what_makes_no_sense_is_refused() -> None:
    """Tests the other arguments."""
    times = np.ones((4, 4))
    with pytest.raises(ValueError, match=r"not a square matrix: shape \(2, 4\)"):
        best_ring(times[:2], steps=1)
    for start in ([0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4]):
        with pytest.raises(ValueError, match="not a ring of 4 hosts"):
            best_ring(times, steps=1, start=start)
    with pytest.raises(ValueError, match=r"'mean' \(known: sum, bottleneck\)"):
        best_ring(times, steps=1, objective="mean")
    with pytest.raises(ValueError, match="-1 steps"):
        best_ring(times, steps=-1)


def test_without_the_engine_the_start_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Tests an installation that had no compiler: a word about it, once."""
    monkeypatch.setattr(engine, "LIBRARY", tmp_path / "kernel")
    engine.library.cache_clear()
    times, _ = circle(9, 2)
    try:
        with caplog.at_level(logging.WARNING):
            rings = [best_ring(times, steps=9, start=range(8, -1, -1)) for _ in "ab"]
    finally:
        engine.library.cache_clear()
    assert [ring.tolist() for ring in rings] == [list(range(8, -1, -1))] * 2
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("slots", [1, 3])
def test_a_schedule_that_goes_round(slots: int) -> None:
    """Tests that rings are known by their messages, whichever way they go round."""
    hosts = np.random.default_rng(5).permutation(7)
    src = np.repeat(hosts, slots)
    dst = np.repeat(np.roll(hosts, -1), slots)
    dst[1::slots] = src[1::slots] if slots > 1 else dst[1::slots]
    ring = visited(src, dst, 7)
    assert ring is not None
    start = int(np.flatnonzero(hosts == 0)[0])
    assert ring.tolist() == np.roll(hosts, -start).tolist()


@pytest.mark.parametrize(
    "dst",
    [
        pytest.param([1, 2, 0, 4, 3], id="two rings"),
        pytest.param([1, 2, 3, 4, 4], id="a chain"),
        pytest.param([1, 0, 3, 4, 2], id="one that misses a place"),
    ],
)
def test_a_schedule_that_does_not(dst: list[int]) -> None:
    """Tests messages that are no single ring."""
    assert visited(np.arange(5), np.array(dst), 5) is None
    assert visited(np.array([0, 1, 0]), np.array([1, 0, 2]), 3) is None
