"""How much slower one order is than another, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloudcoll.measured.samples import Floats

MIN_REPEATS = 3
"""Of fewer there is no interval: it would be as narrow as there is no doubt."""

BOOTSTRAP = 2000
"""Resamples for an interval; seeded, so the same run gives the same one."""


@dataclass(frozen=True)
class Ratio:
    """How many times longer a baseline takes than CloudColl's order.

    Attributes
    ----------
    op, bytes, baseline
        What was compared; ``random`` stands for the median of all of them.
    ratio : float
        Median over the repeats of baseline time / CloudColl's time, paired.
    low, high : float
        95 % bootstrap interval of that median; NaN for less than `MIN_REPEATS`.
    predicted : float
        The same ratio by the cost model.
    """

    op: str
    bytes: int
    baseline: str
    ratio: float
    low: float
    high: float
    predicted: float


def interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a median (percentiles; Efron 1979).

    Parameters
    ----------
    values : ndarray of float64, shape (repeats,)

    Returns
    -------
    low, high : float
        NaN for less than `MIN_REPEATS`.
    """
    if len(values) < MIN_REPEATS:
        return np.nan, np.nan
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(values), (BOOTSTRAP, len(values)))
    medians = np.median(values[picks], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)
