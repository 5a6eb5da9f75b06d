"""Recursive doubling allreduce: the whole vector to v xor 1, 2, 4, ..."""

from __future__ import annotations

import numpy as np

from cloudcoll.schedule.steps import Schedule, Step, exchange, power_of_two_below


def recursive_doubling(ranks: int, size: int) -> Schedule:
    """Return Open MPI's recursive doubling allreduce (algorithm 3).

    Where N is not a power of two, the first 2 rem ranks fold: each even one
    sends its vector to the odd one above and gets the result at the end; the
    odd one takes part (Open MPI 5.0 ``coll_base_allreduce.c``,
    ``recursivedoubling``; MPICH folds the same way).
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    even = np.arange(0, 2 * rem, 2)
    whole = np.full(rem, float(size))
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    distances = [1 << bit for bit in range(half.bit_length() - 1)]
    steps = [exchange(taking_part, distance, size) for distance in distances]
    if rem:
        steps = [Step(even, even + 1, whole), *steps, Step(even + 1, even, whole)]
    return Schedule(
        "allreduce", "recursive_doubling", "Open MPI 5.0", ranks, size, tuple(steps)
    )
