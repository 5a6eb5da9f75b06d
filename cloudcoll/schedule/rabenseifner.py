"""Rabenseifner's allreduce: halving reduce-scatter, doubling allgather."""

from __future__ import annotations

import numpy as np

from cloudcoll.schedule.steps import Schedule, Step, exchange, power_of_two_below


def rabenseifner(ranks: int, size: int) -> Schedule:
    """Return Open MPI's Rabenseifner allreduce (algorithm 6).

    Step i trades size / 2^(i + 1) bytes with v xor 2^i, and the allgather goes
    the same way back, so half of all bytes stay inside pairs of neighbours.
    Where N is not a power of two the first 2 rem ranks fold in halves and the
    *even* one takes part (Open MPI 5.0 ``coll_base_allreduce.c``,
    ``redscat_allgather``; Rabenseifner 2004). MPICH keeps the odd one.
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    even = np.arange(0, 2 * rem, 2)
    halves = np.full(rem, size / 2)
    whole = np.full(rem, float(size))
    taking_part = np.concatenate([even, np.arange(2 * rem, ranks)])
    halving = [
        exchange(taking_part, 1 << bit, size / (2 << bit))
        for bit in range(half.bit_length() - 1)
    ]
    steps = halving + halving[::-1]
    if rem:
        both_ways = Step(
            np.concatenate([even, even + 1]),
            np.concatenate([even + 1, even]),
            np.concatenate([halves, halves]),
        )
        fold = [both_ways, Step(even + 1, even, halves)]
        steps = [*fold, *steps, Step(even, even + 1, whole)]
    return Schedule(
        "allreduce", "rabenseifner", "Open MPI 5.0", ranks, size, tuple(steps)
    )
