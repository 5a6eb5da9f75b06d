from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.daemon.beats import Beat
from cloudcoll.daemon.changes import Watched


def watched(values: list[float]) -> Watched:
    """Return what is known after these values."""
    series = Watched()
    for value in values:
        series = series.after(value)
    return series


def noise(seed: int, spread: float, count: int) -> list[float]:
    """Return values without any change."""
    source = random.Random(seed)
    return [source.gauss(0.0, spread) for _ in range(count)]


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0])
def test_a_large_change_takes_four_values(factor: float) -> None:
    """Tests that a rate that fell or rose by a factor is a change soon."""
    before = watched(noise(1, 0.05, 50))
    assert not before.changed
    after = before
    for _ in range(4):
        assert not after.changed
        after = after.after(math.log(factor))
        assert after.suspicious
    assert after.changed


def test_a_single_departure_is_none() -> None:
    """Tests that one value, however wild, is worth a look but no change."""
    series = watched(noise(2, 0.05, 50)).after(math.log(1e-6))
    assert series.suspicious
    assert not series.changed
    assert not series.after(0.0).suspicious


@pytest.mark.parametrize("spread", [0.01, 0.05, 0.3])
def test_noise_is_no_change(spread: float) -> None:
    """Tests thirty days of values, one each 20 seconds, none of which changed."""
    series, changes = Watched(), 0
    for value in noise(3, spread, 129_600):
        series = series.after(value)
        if series.changed:
            series, changes = series.afresh(), changes + 1
    # Two of them at most while it is learnt how wide the noise is.
    assert changes <= 2


def test_small_changes_do_not_matter() -> None:
    """Tests that two per cent for good are not a change."""
    assert not watched([*noise(4, 0.01, 100), *[0.02] * 200]).changed


def test_a_fault_from_the_second_value_on() -> None:
    """Tests that the first value of all does not hide what follows."""
    assert watched([0.0, 0.0, 0.0, *[-1.4] * 4]).changed


def test_first_values_that_contradict_each_other() -> None:
    """Tests that a change amid them is one, as is noise nothing can be told of."""
    assert watched([0.0, -1.2]).changed
    assert watched([0.0, 0.1, -1.2]).changed
    assert not watched([0.0, 0.3, -0.3]).changed


def test_a_beat_of_two_hosts_has_wider_noise() -> None:
    """Tests that one pair, now and then twice as late, is no change, and a fall is."""
    lone = Beat(0.0, "", (("a", "b"),), 0)
    rack = Beat(0.0, "rack", tuple((f"a{n}", f"b{n}") for n in range(4)), 0)
    assert Watched.of(rack) == Watched()
    alarms = 0
    for seed in range(100):
        series = Watched.of(lone)
        for value in noise(seed, 0.35, 100):
            series = series.after(value)
            if series.changed:
                series, alarms = series.afresh(), alarms + 1
    # With the spread of a rack's beat it is 142.
    assert alarms <= 10
    series = Watched.of(lone)
    for value in [*noise(1, 0.1, 3), *[math.log(0.2)] * 4]:
        series = series.after(value)
    assert series.changed


def test_a_series_begun_afresh() -> None:
    """Tests that its noise is known, and nothing else."""
    series = watched(noise(5, 0.3, 200)).afresh()
    assert series.spread == pytest.approx(0.3, rel=0.3)
    assert replace(series, spread=Watched().spread) == Watched()


@given(st.lists(st.floats(allow_infinity=False, width=32), max_size=30))
def test_nothing_measured_changes_nothing(values: list[float]) -> None:
    """Tests that NaN leaves a series as it is, and sums stay finite."""
    series = watched(values)
    assert series.after(math.nan) == series
    assert watched([value for value in values if not math.isnan(value)]) == series
    assert math.isfinite(series.above + series.below + series.spread)
