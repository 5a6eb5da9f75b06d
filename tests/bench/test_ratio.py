from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import bdtrc

from cloudcoll.bench.result import interval


@pytest.mark.parametrize("repeats", [5, 7, 11, 21])
def test_the_interval_leaves_a_fortieth_out_at_either_end(repeats: int) -> None:
    """Tests both ends against the exact distribution of a resample's median.

    Of an odd number of values drawn again it is at most the k-th smallest value if more
    than half of the draws are among the k smallest.
    """
    values = np.random.default_rng(repeats).permutation(repeats).astype(np.float64)
    smallest = np.arange(1, repeats + 1)
    at_most = bdtrc((repeats - 1) // 2, repeats, smallest / repeats)
    low, high = (int(np.searchsorted(at_most, tail)) for tail in (0.025, 0.975))
    assert interval(values) == (low, high)


def test_too_few_repeats_have_no_interval() -> None:
    """Tests that two repeats tell nothing of the doubt, and that three do."""
    assert all(map(math.isnan, interval(np.array([1.0, 2.0]))))
    assert interval(np.array([2.0, 1.0, 3.0])) == (1.0, 3.0)
