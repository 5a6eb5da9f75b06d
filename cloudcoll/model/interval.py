"""How far a predicted time may be from the one that is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

COVERED = 0.90
"""Share of measured times that an interval should hold."""

MEASURED_OVER_PREDICTED = (
    *(0.74, 0.83, 0.88, 0.92, 0.94, 0.98, 1.01, 1.04, 1.05, 1.08),
    *(1.11, 1.14, 1.19, 1.25, 1.32, 1.38, 1.66, 1.91, 2.10, 2.70),
)
"""What real Open MPI took over what was predicted, at equally likely quantiles.

Of 168 cases: 1 and 4 MiB, by a ring and by Rabenseifner, in 48 of the networks of
``benchmarks/grid.py`` (queues of 2 to 200 ms, 64 packets, CoDel; quiet, beside hogs of
CPU, beside others' traffic). The long tail is that of short queues, where
TCP loses what a step sends at once."""


def interval(seconds: Sequence[float], shares: Sequence[float]) -> tuple[float, float]:
    """Return between which seconds `COVERED` of the measured times should be.

    The network may be another than the likeliest, and the model misses what it does
    not know of: losses in short queues, ranks without a processor of their own. Both
    are mixed, as if they had nothing to do with each other.

    Parameters
    ----------
    seconds : sequence of float
        Predicted for each fabric that the network may be.
    shares : sequence of float
        How likely each is.
    """
    missed = np.array(MEASURED_OVER_PREDICTED)
    times = np.multiply.outer(np.array(seconds), missed).ravel()
    weight = np.repeat(np.array(shares) / len(missed), len(missed))
    order = np.argsort(times)
    below = np.cumsum(weight[order]) / weight.sum()
    tail = (1 - COVERED) / 2
    # A time counts half below itself: the middle of the steps.
    middle = below - weight[order] / weight.sum() / 2
    low, high = np.interp([tail, 1 - tail], middle, times[order])
    return float(low), float(high)
