"""Tests of how `benchmarks.tuning` compares a choice with all others."""

from __future__ import annotations

import random
from statistics import mean

from benchmarks.tuning import CHOICE, off_fastest


def test_the_luckiest_of_many_is_not_the_measure() -> None:
    """Tests a choice that is as fast as twenty others, with 20 % of noise."""
    source, off = random.Random(1), []
    for _ in range(100):
        names = [CHOICE, *(f"rival-{n}" for n in range(20))]
        times = {
            name: [source.lognormvariate(0, 0.2) for _ in range(8)] for name in names
        }
        off.append(off_fastest(times)[0])
    # Over the least median of all it would be 1.2.
    assert 0.95 < mean(off) < 1.06


def test_what_is_slower_is_measured_so() -> None:
    """Tests planted times, and one repeat alone."""
    times = {CHOICE: [3.0, 6.0, 3.0, 6.0], "ring": [2.0, 4.0, 2.0, 4.0]}
    assert off_fastest(times) == (1.5, "ring")
    assert off_fastest({CHOICE: [3.0], "ring": [2.0]}) == (1.5, "ring")
    assert off_fastest({CHOICE: [1.0, 1.0], "ring": [2.0, 2.0]}) == (1.0, CHOICE)
