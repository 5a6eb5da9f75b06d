from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.daemon import (
    CYCLE_S,
    LEAST_LOAD_S,
    MOST_LOAD_S,
    PAUSE_S,
    Settings,
)
from cloudcoll.errors import UsageError


@pytest.mark.parametrize(
    ("hosts", "every", "pause"),
    [(2, CYCLE_S, 2.0), (16, CYCLE_S, 2.0), (100, 60.0, 6.0), (1000, 600.0, PAUSE_S)],
)
def test_many_hosts_take_longer(hosts: int, every: float, pause: float) -> None:
    """Tests the cycle that nobody asked for, and looks again within it."""
    pace = Settings().pace(hosts)
    assert (pace.every, pace.pause) == (every, pause)


@given(st.floats(1.0, 1e5), st.floats(1e-6, 0.99), st.integers(2, 5000))
def test_a_cycle_takes_half_of_the_share(every: float, share: float, n: int) -> None:
    """Tests that checks have as much, but for bursts too short to tell anything."""
    pace = Settings(every, share).pace(n)
    assert pace.every == every
    assert LEAST_LOAD_S <= pace.load_s <= MOST_LOAD_S
    if pace.load_s > LEAST_LOAD_S:
        assert 2 * pace.load_s <= share * every / 2 * (1 + 1e-9)


@pytest.mark.parametrize(("every", "share"), [(0.5, 0.1), (9.0, 0.0), (None, 1.0)])
def test_what_makes_no_sense(every: float | None, share: float) -> None:
    """Tests that both figures are named."""
    with pytest.raises(UsageError, match=r"no daemon with a cycle of .* m?s and"):
        Settings(every, share)
