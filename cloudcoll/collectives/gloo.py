"""Gloo's schedules: those of its function API, which torch calls, and older ones.

Read in Gloo 2026-04. Its allreduce and reduce go round *downwards*, from r to
r - 1; its allgather goes upwards. torch's reduce-scatter of a tensor is an
allreduce; that of a list is one of each rank's part, one after the other.
"""

from __future__ import annotations

import itertools

import numpy as np

from cloudcoll.collectives.doubling import window
from cloudcoll.collectives.steps import Flow, Step, send
from cloudcoll.libraries.question import power_of_two

LARGEST_SEGMENT = 1 << 20
"""Bytes (``gloo/reduce.h``, ``kMaxSegmentSize``)."""
BLOCK = 4096
"""Bytes to which a last, shorter segment is rounded."""


def ring(ranks: int, size: int) -> Flow:
    """Return the ring allreduce, r to r - 1 (``allreduce.cc``, ``ring``)."""
    src = np.arange(ranks)
    dst, block, turns = (src - 1) % ranks, size / ranks, ranks - 1
    reduce_scatter = send(src, dst, block, src + 1, shift=1, repeat=turns, reduces=True)
    allgather = send(src, dst, block, src, shift=1, repeat=turns)
    return Flow([reduce_scatter, allgather], ranks)


def ring_of_parts(ranks: int, size: int) -> Flow:
    """Return torch's reduce-scatter of a list: a ring allreduce of each part in turn.

    All of a part's sums reach all ranks, so that it sends what an allreduce of
    the whole does, in N times as many messages (``ProcessGroupGloo.cpp``).
    """
    src, turns = np.arange(ranks), ranks - 1
    ends, around = (src, (src - 1) % ranks, size / ranks**2), (src + 1) % ranks
    steps = []
    for part in range(0, ranks**2, ranks):
        first, then = part + around, part + src
        steps += [
            send(*ends, first, shift=1, span=ranks, repeat=turns, reduces=True),
            send(*ends, then, shift=1, span=ranks, repeat=turns),
        ]
    return Flow(steps, ranks**2)


def reduce(ranks: int, size: int, root: int = 0) -> Flow:
    """Return the ring reduction, r to r - 1, whose parts the root then collects.

    A chunk has two segments, or as many of 1 MiB as it takes: then the last
    ranks' chunks are shorter, or empty. With more than two the ring goes on
    for all but two of one chunk, in vain: the loop counts segments as if
    chunks had two (``reduce.cc``).
    """
    segment, blocks, chunk = 1, 2 * ranks, 2
    if size > blocks * LARGEST_SEGMENT:
        # Blocks are a fraction of a segment, so that the last one may be short.
        segment = LARGEST_SEGMENT // BLOCK
        blocks = -(-size // BLOCK)
        chunk = segment * -(-size // (LARGEST_SEGMENT * ranks))
    src, block = np.arange(ranks), size / blocks
    first = src * chunk
    count = np.clip(blocks - first, 0, chunk)

    def around(turn: int, limit: int, repeat: int = 1) -> Step:
        chunks = (src + turn) % ranks
        dst, sent = (src - 1) % ranks, np.minimum(count[chunks], limit)
        return send(
            *(src, dst, block, first[chunks], sent),
            shift=chunk,
            repeat=repeat,
            reduces=True,
        )

    if (count == chunk).all():
        steps = [around(1, chunk, ranks - 1)]
    else:
        steps = [around(turn, chunk) for turn in range(1, ranks)]
    others = np.delete(src, root)
    collect = send(others, root, block, first[others], count[others])
    return Flow([*steps, around(0, chunk - 2 * segment), collect], blocks)


def binomial(ranks: int, size: int, root: int = 0) -> Flow:
    """Return the binomial broadcast: 1, then 2, 4, ... send to r + 1, 2, 4, ...

    ``broadcast.cc``.
    """
    steps = []
    for bit in range((ranks - 1).bit_length()):
        src = np.arange(min(1 << bit, ranks - (1 << bit)))
        dst = (src + (1 << bit) + root) % ranks
        steps.append(send((src + root) % ranks, dst, size))
    return Flow(steps)


def whole_ring(ranks: int, size: int) -> Flow:
    """Return the ring on which everyone's whole vector goes round (``AllreduceRing``).

    Not torch's; `ring.ring` is the one in chunks (``AllreduceRingChunked``).
    """
    src = np.arange(ranks)
    step = send(src, (src + 1) % ranks, size, src, shift=-1, repeat=ranks - 1)
    return Flow([step], ranks)


def bcube(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return the allreduce in groups at distance 1, k, k^2, ...

    In a group each sends each other one its part of what the group has left,
    and gets the sums back the same way. Groups have k ranks as often as N
    divides by k, and the last ones what is left of N (``allreduce.cc``,
    ``bcube``, k = 2). The class ``AllreduceBcube`` has k as its base and does
    the same where N is c k^x with c <= k; it is wrong for other N.
    """
    block, steps, back = size / ranks, list[Step](), list[Step]()
    rank = np.arange(ranks)
    distance, blocks, first = 1, ranks, np.zeros(ranks, dtype=np.int64)
    while distance < ranks:
        left = ranks // distance
        group = radix if left % radix == 0 else left
        blocks //= group
        mine = (rank // distance % group)[:, None]
        theirs = (mine + np.arange(1, group)) % group
        src = np.repeat(rank, group - 1)
        dst = (rank[:, None] + (theirs - mine) * distance).ravel()
        part = (first[:, None] + theirs * blocks).ravel()
        steps.append(send(src, dst, block, part, blocks, reduces=True))
        first = first + mine[:, 0] * blocks
        back.append(send(src, dst, block, first[src], blocks))
        distance *= group
    return Flow([*steps, *reversed(back)], ranks)


def halving_doubling(ranks: int, size: int) -> Flow:
    """Return the allreduce by halving and doubling in binary blocks.

    N is cut into powers of two, largest first. Each such block halves inside;
    then each, from the smallest up, adds its sums to the next larger one, and
    gets the result back from it (``allreduce_halving_doubling.h``; Thakur,
    Rabenseifner and Gropp 2005).
    """
    chunks = power_of_two(ranks)
    block, halving, doubling = size / chunks, list[Step](), list[Step]()
    for bit in range(chunks.bit_length() - 1):
        # All ranks in blocks of more than 2^bit, which come first.
        src = np.arange(ranks >> (bit + 1) << (bit + 1))
        dst = src ^ (1 << bit)
        theirs, count = window(dst, bit + 1, chunks)
        halving.append(send(src, dst, block, theirs, count, reduces=True))
        mine, _ = window(src, bit + 1, chunks)
        doubling.append(send(src, dst, block, mine, count))
    up, down = list[Step](), list[Step]()
    powers = [1 << bit for bit in range(ranks.bit_length()) if ranks >> bit & 1]
    start = ranks
    for small, large in itertools.pairwise(powers):
        start -= small
        place = np.arange(large)
        first, count = window(place, large.bit_length() - 1, chunks)
        low, high = start + place % small, start - large + place
        up.append(send(low, high, block, first, count, reduces=True))
        down.append(send(high, low, block, first, count))
    return Flow([*halving, *up, *reversed(down), *reversed(doubling)], chunks)
