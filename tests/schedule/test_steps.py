from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.schedule.steps import Schedule, Step, exchange, power_of_two_below


@given(st.integers(1, 1 << 40))
def test_power_of_two_below(ranks: int) -> None:
    """Tests that it is a power of two, not above the number, its double is."""
    power = power_of_two_below(ranks)
    assert power & (power - 1) == 0
    assert power <= ranks < 2 * power


def test_exchange_pairs_positions_not_ranks() -> None:
    """Tests that xor is taken over positions in the list of ranks."""
    step = exchange(np.array([1, 3, 4, 5]), 2, 10)
    assert step.src.tolist() == [1, 3, 4, 5]
    assert step.dst.tolist() == [4, 5, 1, 3]
    assert step.size.tolist() == [10.0] * 4


def test_pair_bytes_counts_repeats_and_repeated_pairs() -> None:
    """Tests that bytes of one pair add up over messages, steps and repeats."""
    one = Step(np.array([0, 0]), np.array([1, 1]), np.array([2.0, 3.0]), repeat=4)
    two = Step(np.array([1]), np.array([0]), np.array([7.0]))
    schedule = Schedule("allreduce", "test", "none", 2, 1, (one, two))
    assert schedule.pair_bytes() == pytest.approx(np.array([[0, 20], [7, 0]]))
