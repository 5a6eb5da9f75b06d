"""Recursive doubling: everything to v xor 1, 2, 4, ..."""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.steps import Flow, power_of_two_below, send


def recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling allreduce (algorithm 3).

    Where N is not a power of two, the first 2 rem ranks fold: each even one
    sends its vector to the odd one above and gets the result at the end; the
    odd one takes part (``coll_base_allreduce.c``, ``recursivedoubling``; MPICH
    ``allreduce_intra_recursive_doubling.c`` folds the same way).
    """
    half = power_of_two_below(ranks)
    rem = ranks - half
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    place = np.arange(half)
    steps = [send(even, even + 1, size, reduces=True)]
    for bit in range(half.bit_length() - 1):
        partner = taking_part[place ^ (1 << bit)]
        steps.append(send(taking_part, partner, size, reduces=True))
    return Flow([*steps, send(even + 1, even, size)])
