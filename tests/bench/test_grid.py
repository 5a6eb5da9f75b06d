"""What of a bench fits into its time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.bench.compare import SLACK, Grid, fitted, start_seconds, whole_seconds
from cloudcoll.bench.job import BenchPace, NamedOrder

MIB = 1 << 20
HOSTS = ("a", "b", "c", "d")
ORDERS = (
    NamedOrder("given", HOSTS, ("sorted",)),
    NamedOrder("grouped", HOSTS),
    *(NamedOrder(f"random-{i}", HOSTS) for i in (1, 2, 3)),
    NamedOrder("cloudcoll", HOSTS),
)
WHOLE = Grid(ORDERS, (MIB, 4 * MIB, 16 * MIB))
PACE = BenchPace(20, 140.0, 0.01, least=5, min_seconds=0.05)
PREDICTED = {
    str(size): {one.name: 0.1 * size / MIB for one in ORDERS} for size in WHOLE.sizes
}


def kept(seconds: float) -> tuple[list[str], list[int]]:
    """Return the names of the orders, and the MiB, that fit into so many seconds."""
    part = fitted(WHOLE, PREDICTED, PACE, seconds)
    return [one.name for one in part.orders], [size // MIB for size in part.sizes]


@pytest.mark.parametrize(
    ("seconds", "orders", "sizes"),
    [
        (90.0, ["given", "grouped", *"123", "cloudcoll"], [1, 4, 16]),
        (70.0, ["given", "grouped", "1", "2", "cloudcoll"], [1, 4, 16]),
        (42.0, ["given", "grouped", "cloudcoll"], [1, 4, 16]),
        (30.0, ["given", "cloudcoll"], [1, 4, 16]),
        (22.0, ["given", "cloudcoll"], [1, 4]),
        (2.0, ["given", "cloudcoll"], [1]),
        (0.0, ["given", "cloudcoll"], [1]),
    ],
)
def test_what_goes_first(seconds: float, orders: list[str], sizes: list[int]) -> None:
    """Tests that random orders go first, then all but two, then large sizes."""
    names = [f"random-{one}" if one.isdigit() else one for one in orders]
    assert kept(seconds) == (names, sizes)


def test_small_sizes_make_way_where_that_helps() -> None:
    """Tests many small sizes, each of which takes as long as a large one."""
    sizes = (1, 2, 4, 8, MIB)
    many = Grid(ORDERS, sizes)
    alike = {str(size): dict.fromkeys(PREDICTED[str(MIB)], 0.01) for size in sizes}
    part = fitted(many, alike, PACE, 1.3)
    assert [one.name for one in part.orders] == ["given", "grouped", "cloudcoll"]
    assert part.sizes == (MIB,)


def test_the_first_order_stays_where_others_were_asked_for() -> None:
    """Tests a grid without the order given and CloudColl's."""
    others = Grid(ORDERS[1:3], WHOLE.sizes)
    part = fitted(others, PREDICTED, PACE, 0.0)
    assert [one.name for one in part.orders] == ["grouped"]


def test_seconds_by_hand() -> None:
    """Tests warm-up calls as they are, and measurements no shorter than asked for."""
    two = Grid(ORDERS[:2], (MIB, 4 * MIB))
    predicted = {
        str(MIB): {"given": 0.01, "grouped": 0.02},
        str(4 * MIB): {"given": 0.2, "grouped": 0.01},
    }
    warm = 2 * SLACK * (0.01 + 0.02)
    measured = 3 * (0.05 + 0.05) + 3 * (SLACK * 0.2 + 0.05)
    pace = replace(PACE, least=3)
    assert two.seconds(predicted, pace) == pytest.approx(warm + measured)
    assert whole_seconds(two, predicted, pace, before=40.0) == 50
    # A job of 100 ranks takes two seconds more than one of none.
    assert start_seconds(100) - start_seconds(0) == pytest.approx(2.0)
    assert start_seconds(0) > 0


@given(st.floats(0.0, 200.0))
def test_it_fits_or_is_the_least(seconds: float) -> None:
    """Tests that `least` measurements of all that stays take at most the time."""
    part = fitted(WHOLE, PREDICTED, PACE, seconds)
    least: Any = ([ORDERS[0], ORDERS[-1]], (MIB,))
    fits = part.seconds(PREDICTED, PACE) <= seconds
    assert fits or ([*part.orders], part.sizes) == least
    assert {ORDERS[0], ORDERS[-1]} <= {*part.orders}


def test_the_seconds_that_all_would_take_are_enough() -> None:
    """Tests that following the advice leaves nothing out."""
    needed = whole_seconds(WHOLE, PREDICTED, PACE, before=7.0)
    assert fitted(WHOLE, PREDICTED, PACE, needed - 7.0) == WHOLE
    assert fitted(WHOLE, PREDICTED, PACE, needed - 17.0) != WHOLE


def test_nothing_is_left_out_where_nothing_is_predicted() -> None:
    """Tests that the job itself then has to see what it has time for."""
    assert fitted(WHOLE, {}, PACE, 0.0) is WHOLE
