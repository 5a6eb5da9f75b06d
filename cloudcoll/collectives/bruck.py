"""Bruck's algorithms: all to all in about log N steps, for any N.

Bruck, Ho, Kipnis, Upfal and Weathersby 1997.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.collectives.steps import Flow, send


def allgather(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return Bruck's allgather: everything so far to r - 1, r - 2, r - 4, ...

    With radix k to r - j k^i, j = 1 to k - 1, in step i; the last step carries
    only what is missing (Open MPI ``coll_base_allgather.c``, ``bruck``,
    ``k_bruck``; MPICH ``allgather_intra_brucks.c``, ``allgather_intra_k_brucks.c``).
    """
    src = np.arange(ranks)
    steps, distance = [], 1
    while distance < ranks:
        hops = np.arange(distance, min(ranks, radix * distance), distance)
        count = np.minimum(distance, ranks - hops)
        sender, hop = np.repeat(src, len(hops)), np.tile(hops, ranks)
        receiver = (sender - hop) % ranks
        many = np.tile(count, ranks)
        steps.append(send(sender, receiver, size / ranks, sender, many))
        distance *= radix
    return Flow(steps, ranks)


def alltoall(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return Bruck's alltoall: by step i, what is digit i of the way to go.

    Rank r sends to r + j k^i all blocks whose distance to go has digit j at
    place i of radix k, about a k-th of all (Open MPI ``coll_base_alltoall.c``,
    ``bruck``, k = 2; MPICH ``alltoall_intra_brucks.c``, ``alltoall_intra_k_brucks.c``).
    """
    src, way = np.arange(ranks), np.arange(ranks)
    steps, distance = [], 1
    while distance < ranks:
        # A block with so far to go has come as far as the lower digits say.
        home = way - way % distance * ranks
        for digit in range(1, radix):
            chosen = home[way // distance % radix == digit]
            dst = (src + digit * distance) % ranks
            steps.append(
                send(src, dst, size / ranks, src * ranks, len(chosen), offsets=chosen)
            )
        distance *= radix
    return Flow(steps, ranks**2)
