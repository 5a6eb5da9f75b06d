"""The test that all findings rest on, against enumeration and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from cloudcoll.infer.host_delays import FALSE_ALARMS, all_low, best, beyond_chance


def lowest(mine: int, others: int) -> float:
    """Return the chance that all of mine are below all others."""
    return 1 / math.comb(mine + others, mine)


@pytest.mark.parametrize(("mine", "others"), [(1, 6), (4, 5), (9, 3), (10, 4), (12, 3)])
def test_the_chance_is_that_of_all_orders(mine: int, others: int) -> None:
    """Tests every place that mine can have among all: as often as is said."""
    places = range(mine + others)
    found = []
    for chosen in itertools.combinations(places, mine):
        rest = np.setdiff1d(places, chosen).astype(float)
        found.append(all_low(np.array(chosen, dtype=float), rest))
    for level in set(found):
        share = np.mean([value <= level + 1e-12 for value in found])
        assert share == pytest.approx(level)


def test_one_in_ten_may_be_high() -> None:
    """Tests that one of ten does not clear what nine show, and two of them do."""
    others = np.arange(100.0) + 10.0
    low = np.zeros(10)
    one, two = low.copy(), low.copy()
    one[:1], two[:2] = 1000.0, 1000.0
    assert all_low(low, others) < 1e-9
    assert all_low(one, others) < 1e-9
    assert all_low(two, others) > 0.01
    nine = np.append(low[:8], 1000.0)
    assert all_low(nine, others) > 0.5


@pytest.mark.parametrize(("values", "expected"), [(9, 8.0), (10, 8.0), (20, 17.0)])
def test_the_best_but_for_one_in_ten(values: int, expected: float) -> None:
    """Tests which value is taken for the best."""
    assert best(np.random.default_rng(1).permutation(values).astype(float)) == expected


def test_nothing_measured_is_no_evidence() -> None:
    """Tests that without measurements of one, or of the others, nothing stands out."""
    some, none = np.arange(5.0), np.zeros(0)
    assert all_low(none, some) == 1.0
    assert all_low(some, none) == 1.0
    assert not beyond_chance(none, some, 1)


def test_alike_is_no_evidence() -> None:
    """Tests that figures that are all the same have no lowest."""
    assert all_low(np.ones(6), np.ones(50)) == pytest.approx(1.0)


def test_all_who_are_compared_share_the_false_alarms() -> None:
    """Tests the number of comparisons from which a finding is none."""
    mine, others = np.zeros(4), np.ones(20)
    chance = lowest(4, 20)
    assert all_low(mine, others) == pytest.approx(chance)
    enough = math.floor(FALSE_ALARMS / chance)
    assert beyond_chance(mine, others, enough)
    assert not beyond_chance(mine, others, enough + 1)


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "exponential"])
def test_false_alarms_are_as_rare_as_said(draw: str) -> None:
    """Tests 4000 snapshots of 8 alike hosts, whatever the noise: 0.5 % at most."""
    generator = np.random.default_rng(5)
    alarms = 0
    for _ in range(4000):
        rates = getattr(generator, draw)(size=(8, 12))
        alarms += any(
            beyond_chance(rates[host], np.delete(rates, host, axis=0).ravel(), 8)
            for host in range(8)
        )
    assert alarms <= 4000 * FALSE_ALARMS


def test_many_measurements_do_not_overflow() -> None:
    """Tests hundreds of thousands of measurements."""
    others = np.arange(400_000.0)
    assert 0.0 <= all_low(others[:1000] - 1.0, others) < 1e-300
    assert all_low(others[::400] + 0.5, others) > 1e-3
