"""Recursive doubling and halving: ranks trade at distances that are powers of two.

Among them Rabenseifner's algorithm: a halving reduce-scatter, a doubling allgather.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import exchanges
from cloudcoll.collectives.steps import Flow, Step, send
from cloudcoll.libraries.question import power_of_two


def doubling_gather(ranks: Ints, block: float) -> list[Step]:
    """Return the allgather in which v trades all it has with v xor 1, 2, 4, ...

    A position without a partner gets the partner's part from those in its own
    half that had one, who pass it on by halving (Open MPI 5.0
    ``coll_base_bcast.c``, ``scatter_allgather``; MPICH
    ``allgather_intra_recursive_doubling.c``). `ranks` has the rank at each position;
    position v has block v, of `block` bytes.
    """
    number = len(ranks)
    place = np.arange(number)
    steps = []
    for bit in range((number - 1).bit_length()):
        half = 1 << bit
        src = place[(place ^ half) < number]
        first = src & -half
        count = np.minimum(half, number - first)
        steps.append(send(ranks[src], ranks[src ^ half], block, first, count))
        for giver, getter in _hand_down(number, half):
            rest = number & -(2 * half) | half
            ends = ranks[giver], ranks[getter]
            steps.append(send(*ends, block, rest, number - rest))
    return steps


def _hand_down(number: int, half: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield who passes data on to ranks without a partner in an incomplete tree.

    Trees of 2 `half` positions, a power of two, trade between halves; only the last
    one can lack positions in its upper half. Those below that had a partner pass it
    on: positions that send and get, hop by hop.
    """
    tree = number & -(2 * half)
    partners = number - tree - half
    if not 0 < partners < half:
        return
    place = np.arange(tree, tree + half)
    hop = half // 2
    while hop:
        edge = (place & -(2 * hop)) + partners
        giver = place[(place & hop == 0) & (place < edge) & (place + hop >= edge)]
        yield giver, giver + hop
        hop //= 2


def mpich_allgather(ranks: int, size: int) -> Flow:
    """Return MPICH's recursive doubling allgather, for any N.

    ``allgather_intra_recursive_doubling.c``.
    """
    return Flow(doubling_gather(np.arange(ranks), size / ranks), ranks)


def open_mpi_allgather(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling allgather (algorithm 3).

    Only of a power of two: of any other N it takes Bruck's instead
    (``coll_base_allgather.c``, ``recursivedoubling``).
    """
    if ranks & (ranks - 1):
        return exchanges.bruck_allgather(ranks, size)
    return mpich_allgather(ranks, size)


def recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling allreduce (algorithm 3).

    Where N is not a power of two, the first 2 rem ranks fold: each even one
    sends its vector to the odd one above and gets the result at the end; the
    odd one takes part (``coll_base_allreduce.c``, ``recursivedoubling``; MPICH
    ``allreduce_intra_recursive_doubling.c`` folds the same way).
    """
    half = power_of_two(ranks)
    rem = ranks - half
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    place = np.arange(half)
    steps = [send(even, even + 1, size, reduces=True)]
    for bit in range(half.bit_length() - 1):
        partner = taking_part[place ^ (1 << bit)]
        steps.append(send(taking_part, partner, size, reduces=True))
    return Flow([*steps, send(even + 1, even, size)])


def rabenseifner(ranks: int, size: int) -> Flow:
    """Return Open MPI's Rabenseifner allreduce (algorithm 6).

    Step i trades size / 2^(i + 1) bytes with v xor 2^i, and the allgather goes
    the same way back, so half of all bytes stay inside pairs of neighbours.
    Where N is not a power of two the first 2 rem ranks fold in halves and the
    *even* one takes part (``coll_base_allreduce.c``, ``redscat_allgather``;
    Rabenseifner 2004). MPICH keeps the odd one.
    """
    half = power_of_two(ranks)
    rem = ranks - half
    blocks = max(half, 2)
    block = size / blocks
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even, np.arange(2 * rem, ranks)])
    steps = [
        *fold_in_halves(rem, block, blocks),
        *halving(taking_part, blocks, block),
        *doubling(taking_part, blocks, block),
        send(even, even + 1, block, 0, blocks),
    ]
    return Flow(steps, blocks)


def mpich_rabenseifner(ranks: int, size: int) -> Flow:
    """Return MPICH's reduce_scatter_allgather allreduce.

    As `rabenseifner`, but of the first 2 rem ranks the even ones send all they
    have to the *odd* ones, which take part
    (``allreduce_intra_reduce_scatter_allgather.c``).
    """
    half = power_of_two(ranks)
    rem = ranks - half
    block = size / half
    even = np.arange(0, 2 * rem, 2)
    taking_part = np.concatenate([even + 1, np.arange(2 * rem, ranks)])
    steps = [
        send(even, even + 1, block, 0, half, reduces=True),
        *halving(taking_part, half, block),
        *doubling(taking_part, half, block),
        send(even + 1, even, block, 0, half),
    ]
    return Flow(steps, half)


def fold_in_halves(rem: int, block: float, blocks: int) -> list[Step]:
    """Return how each even rank below 2 rem gets the sum of its and the next one's.

    They trade halves, and the odd one sends its half of the sum back. N is `rem` above
    a power of two; the vector has `blocks` blocks of `block` bytes.
    """
    even, middle = np.arange(0, 2 * rem, 2), blocks // 2
    pairs = np.concatenate([even, even + 1])
    halves = np.repeat([middle, 0], rem)
    return [
        send(pairs, pairs ^ 1, block, halves, middle, reduces=True),
        send(even + 1, even, block, middle, middle),
    ]


def halving(ranks: Ints, blocks: int, block: float) -> list[Step]:
    """Return the reduce-scatter in which v trades half its window with v xor 2^i.

    `ranks` has the rank at each position v, a power of two of them, of which the
    vector's blocks, of `block` bytes, are a multiple.
    """
    place = np.arange(len(ranks))
    steps = []
    for bit in range(len(ranks).bit_length() - 1):
        partner = place ^ (1 << bit)
        # What the partner keeps of the window that both still have.
        first, count = window(partner, bit + 1, blocks)
        steps.append(send(ranks, ranks[partner], block, first, count, reduces=True))
    return steps


def doubling(ranks: Ints, blocks: int, block: float) -> list[Step]:
    """Return the allgather that takes `halving`'s way back."""
    place = np.arange(len(ranks))
    steps = []
    for bit in reversed(range(len(ranks).bit_length() - 1)):
        first, count = window(place, bit + 1, blocks)
        steps.append(send(ranks, ranks[place ^ (1 << bit)], block, first, count))
    return steps


def window(place: Ints, halvings: int, blocks: int) -> tuple[Ints, int]:
    """Return first block and number of blocks left to a position.

    Each halving keeps the upper half where that bit of the position is set,
    lowest bit first.
    """
    first = np.zeros_like(place)
    for bit in range(halvings):
        blocks //= 2
        first += blocks * ((place >> bit) & 1)
    return first, blocks


def recursive_halving(ranks: int, size: int) -> Flow:
    """Return the reduce-scatter at distance p'/2, p'/4, ..., 1.

    Where N is not a power of two, even ranks below 2 rem send all to the odd
    one above, and get their block from it (Open MPI's algorithm 2, of
    reduce_scatter_block 3; MPICH ``reduce_scatter_intra_recursive_halving.c``).
    """
    places, edge = _folded(ranks)
    block = size / ranks
    even = np.arange(0, 2 * (ranks - len(places)), 2)
    fold = send(even, even + 1, block, 0, ranks, reduces=True)
    unfold = send(even + 1, even, block, even)
    return Flow([fold, *far_first(places, edge, block), unfold], ranks)


def far_first(places: Ints, edge: Ints, block: float) -> list[Step]:
    """Return the reduce-scatter in which position v trades with v xor p'/2, ..., 1.

    `places` has the rank at each position, a power of two of them; `edge`, shape
    (positions + 1,), at which block each one's blocks begin, and the last one's end.
    """
    place, distance = np.arange(len(places)), len(places) // 2
    steps = []
    while distance:
        partner = place ^ distance
        low = partner & -distance
        first, count = edge[low], edge[low + distance] - edge[low]
        steps.append(send(places, places[partner], block, first, count, reduces=True))
        distance //= 2
    return steps


def butterfly(ranks: int, size: int) -> Flow:
    """Return Open MPI's butterfly reduce-scatter (algorithm 4).

    Distances rise as halves fall, so that position v ends with the block of
    its bits in reverse and sends it there (``coll_base_reduce_scatter.c``;
    Traeff 2005).
    """
    places, edge = _folded(ranks)
    block, half = size / ranks, len(places)
    even = np.arange(0, 2 * (ranks - half), 2)
    place = np.arange(half)
    steps = [send(even, even + 1, block, 0, ranks, reduces=True)]
    bits = half.bit_length() - 1
    for bit in range(bits):
        partner = place ^ (1 << bit)
        low, width = window(partner, bit + 1, half)
        first, count = edge[low], edge[low + width] - edge[low]
        steps.append(send(places, places[partner], block, first, count, reduces=True))
    mirror, _ = window(place, bits, half)
    owner = places[mirror]
    folded = mirror < len(even)
    for_even = send(places[folded], owner[folded] - 1, block, owner[folded] - 1)
    moved = mirror != place
    own = send(places[moved], owner[moved], block, owner[moved])
    return Flow([*steps, for_even, own], ranks)


def butterfly_block(ranks: int, size: int) -> Flow:
    """Return Open MPI's butterfly of reduce_scatter_block (algorithm 4).

    Of a power of two, blocks are put in reverse order of bits before, and
    nothing has to be sent after.
    """
    half = power_of_two(ranks)
    if half < ranks:
        return butterfly(ranks, size)
    place = np.arange(ranks)
    steps = []
    for bit in range(ranks.bit_length() - 1):
        partner = place ^ (1 << bit)
        low = partner & ((2 << bit) - 1)
        offsets = np.arange(0, ranks, 2 << bit)
        steps.append(
            send(
                place,
                partner,
                size / ranks,
                low,
                len(offsets),
                offsets=offsets,
                reduces=True,
            )
        )
    return Flow(steps, ranks)


def block_recursive_doubling(ranks: int, size: int) -> Flow:
    """Return Open MPI's recursive doubling of reduce_scatter_block (algorithm 2).

    Rank r trades with r xor 2^i all blocks but those of its own 2^i ranks. What
    a rank without a partner misses is passed on to it as it came
    (``coll_base_reduce_scatter_block.c``, ``recursivedoubling``).
    """
    place, block = np.arange(ranks), size / ranks
    steps = []
    for bit in range((ranks - 1).bit_length()):
        half = 1 << bit
        src = place[place ^ half < ranks]
        end = np.minimum((src & -half) + half, ranks)
        count = ranks - end + (src & -half)
        steps.append(send(src, src ^ half, block, end, count, reduces=True))
        rest = ranks & -(2 * half) | half
        steps += [
            send(giver, getter, block, 0, rest, reduces=True, relays=True)
            for giver, getter in _hand_down(ranks, half)
        ]
    return Flow(steps, ranks)


def _folded(ranks: int) -> tuple[Ints, Ints]:
    """Return the rank at each position, and at which block each position begins.

    The odd one of the first rem pairs stands for both.
    """
    half = power_of_two(ranks)
    rem = ranks - half
    place = np.arange(half + 1)
    edge = place + np.minimum(place, rem)
    return edge[:-1] + (place[:-1] < rem), edge
