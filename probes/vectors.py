"""What ranks send while a collective is timed, and what they must receive.

Every rank's numbers tell rank and place, so that a block of another rank counts
as wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

PERIOD = 251
"""Of the numbers that ranks send. A prime, so that blocks and ranks differ, and
so small that the sums of 65536 ranks are exact in float32."""


class Buffers(NamedTuple):
    """What one rank sends and receives at one size."""

    send: Any
    recv: Any


def wave(start: int) -> Any:
    """Return the numbers that repeat in a vector; `start` is its first."""
    return (start + np.arange(PERIOD)) % PERIOD


def make_buffers(op: str, rank: int, ranks: int, size: int) -> Buffers:
    """Return the vectors of a world rank for `size` bytes in all."""
    count = max(size // 4, 1)
    block = count // ranks
    sent = block if op == "allgather" else count
    if op == "alltoall":
        blocks = [np.resize(wave(rank + 17 * place), block) for place in range(ranks)]
        send = np.concatenate(blocks).astype(np.float32)
    else:
        send = np.resize(wave(rank), sent).astype(np.float32)
    received = block if op == "reduce_scatter" else count
    return Buffers(send, np.empty(received, np.float32))


def count_wrong(op: str, members: Sequence[int], place: int, recv: Any) -> int:
    """Return how many elements of a result are not as they should be.

    `members` are the world ranks in order; the result is of that at `place`.
    """
    if op in ("allreduce", "reduce", "reduce_scatter"):
        if op == "reduce" and place != 0:
            return 0
        total = sum(wave(rank) for rank in members)
        first = place * len(recv) if op == "reduce_scatter" else 0
        return differences(recv, np.roll(total, -first % -PERIOD))
    if op == "bcast":
        return differences(recv, wave(members[0]))
    shift = 17 * place if op == "alltoall" else 0
    parts = recv.reshape(len(members), -1)
    return sum(
        differences(parts[i], wave(rank + shift)) for i, rank in enumerate(members)
    )


def differences(found: Any, period: Any) -> int:
    """Return how many elements differ from a repeated period."""
    whole = len(found) // PERIOD * PERIOD
    rows, rest = found[:whole].reshape(-1, PERIOD), found[whole:]
    return int(
        np.count_nonzero(rows != period) + np.count_nonzero(rest != period[: len(rest)])
    )
