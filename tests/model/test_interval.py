from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.model.cost import (
    COVERED,
    MEASURED_OVER_PREDICTED,
    WITH_MESSAGE_COSTS,
    interval,
)

MISSED = np.array(MEASURED_OVER_PREDICTED)


@pytest.mark.parametrize("known", [False, True])
def test_as_many_measurements_are_inside_as_it_says(known: bool) -> None:
    """Tests the share of those measurements that the quantiles are of."""
    low, high = interval([2.0], [1.0], costs_known=known)
    missed = np.array(WITH_MESSAGE_COSTS) if known else MISSED
    # Between the quantiles that are written down.
    numbers = np.linspace(0.025, 0.975, 20)
    shares = np.linspace(0.025, 0.975, 2001)
    times = 2.0 * np.interp(shares, numbers, missed)
    # What is below the first and above the last quantile is outside: a twentieth.
    inside = 0.95 * np.mean((times >= low) & (times <= high))
    assert inside == pytest.approx(COVERED, abs=0.01)


def test_what_the_network_may_be_widens_it() -> None:
    """Tests another fabric: one that is likely, and one that hardly is."""
    alone = interval([1.0], [1.0])
    assert interval([1.0, 10.0], [0.7, 0.3])[1] > 10.0
    assert interval([1.0, 10.0], [0.7, 0.3])[0] == pytest.approx(alone[0], rel=0.05)
    assert interval([1.0, 10.0], [0.999, 0.001])[1] == pytest.approx(alone[1], rel=0.05)


def test_only_how_much_likelier_one_is_counts() -> None:
    """Tests shares that add up to 4, as those of some of many fabrics may to less."""
    assert interval([1.0, 10.0], [3.0, 1.0]) == interval([1.0, 10.0], [0.75, 0.25])


@given(
    st.lists(
        st.tuples(st.floats(1e-9, 1e6), st.floats(0.01, 1.0)), min_size=1, max_size=9
    ),
    st.integers(-10, 10),
)
def test_it_scales_and_holds_what_it_is_made_of(
    drawn: list[tuple[float, float]], power: int
) -> None:
    """Tests ends in order, within all there is, and in any unit of time."""
    seconds, shares = zip(*drawn, strict=True)
    low, high = interval(seconds, shares)
    assert min(seconds) * MISSED[0] * 0.999 <= low <= high
    assert high <= max(seconds) * MISSED[-1] * 1.001
    factor = 2.0**power  # times that are alike stay so
    longer = interval([factor * s for s in seconds], shares)
    assert longer == pytest.approx((factor * low, factor * high))


def test_the_quantiles_are_in_order() -> None:
    """Tests that what is written down are quantiles, the median near 1."""
    for known in (MEASURED_OVER_PREDICTED, WITH_MESSAGE_COSTS):
        assert (np.diff(known) >= 0).all()
        assert 0.8 < np.median(known) < 1.25
