from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.collectives.steps import Cargo, Schedule, Step, send
from cloudcoll.libraries.question import power_of_two


@given(st.integers(1, 1 << 40))
def test_power_of_two(ranks: int) -> None:
    """Tests that it is a power of two, not above the number, its double is."""
    power = power_of_two(ranks)
    assert power & (power - 1) == 0
    assert power <= ranks < 2 * power


def test_send_spreads_numbers_over_messages() -> None:
    """Tests that bytes follow from the blocks, and empty messages are left out."""
    step = send([1, 3, 4], [4, 5, 1], 10, first=2, count=[2, 0, 1], repeat=3)
    assert step.src.tolist() == [1, 4]
    assert step.dst.tolist() == [4, 1]
    assert step.size.tolist() == [20.0, 10.0]
    assert step.repeat == 3
    assert step.cargo is not None
    assert step.cargo.first.tolist() == [2, 2]


def test_cargo_moves_and_wraps() -> None:
    """Tests blocks of messages of different length in a later turn."""
    cargo = Cargo(np.array([6, 0]), np.array([3, 1]), shift=-2)
    message, block = cargo.blocks(turn=1, blocks=7)
    assert message.tolist() == [0, 0, 0, 1]
    assert block.tolist() == [4, 5, 6, 5]


def test_cargo_takes_the_offsets_given() -> None:
    """Tests blocks that are no neighbours."""
    cargo = Cargo(np.array([0, 5]), np.array([3, 2]), np.array([0, 2, 4]))
    message, block = cargo.blocks(turn=0, blocks=8)
    assert message.tolist() == [0, 0, 0, 1, 1]
    assert block.tolist() == [0, 2, 4, 5, 7]


def test_pair_bytes_counts_repeats_and_repeated_pairs() -> None:
    """Tests that bytes of one pair add up over messages, steps and repeats."""
    one = Step(np.array([0, 0]), np.array([1, 1]), np.array([2.0, 3.0]), repeat=4)
    two = Step(np.array([1]), np.array([0]), np.array([7.0]))
    schedule = Schedule("allreduce", "test", "none", 2, 1, (one, two))
    assert schedule.pair_bytes() == pytest.approx(np.array([[0, 20], [7, 0]]))
