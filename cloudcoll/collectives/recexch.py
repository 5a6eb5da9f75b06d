"""MPICH's recursive exchange: recursive doubling with any radix k.

Positions are numbers of k-ary digits; in phase i those meet that differ in
digit i alone. Ranks beyond a power of k fold into others before and hear from
them at the end (``recexchalgo.c``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives.steps import Flow, Step, send


class RankPlaces(NamedTuple):
    """Which ranks take part in an exchange, at which positions.

    Attributes
    ----------
    ranks : ndarray of int64, shape (power of radix,)
        The rank at each position.
    folded, into : ndarray of int64, shape (the other ranks,)
        Ranks that don't take part, and the rank that stands for each.
    edge : ndarray of int64, shape (positions + 1,)
        Rank at which each position's range of ranks, itself the last, begins.
    radix : int
        Not above the number of ranks.
    phases : int
        Digits of a position.
    """

    ranks: Ints
    folded: Ints
    into: Ints
    edge: Ints
    radix: int
    phases: int

    @classmethod
    def of(cls, ranks: int, radix: int) -> RankPlaces:
        """Fold the first ranks, k - 1 of each k in a row into the last."""
        radix = min(radix, ranks)
        phases = _digits(ranks, radix)
        rem = ranks - radix**phases
        end = rem * radix // (radix - 1)
        rank = np.arange(ranks)
        takes_part = (rank >= end) | (rank % radix == radix - 1)
        folded = rank[~takes_part]
        # The last set may be cut off: then the first rank behind stands for it.
        into = np.minimum(folded - folded % radix + radix - 1, end)
        part = rank[takes_part]
        edge = np.concatenate([[0], part + 1])
        return cls(part, folded, into, edge, radix, phases)

    def peers(self, phase: int) -> tuple[Ints, Ints]:
        """Return each position with each that differs from it in one digit."""
        return _peers(np.arange(len(self.ranks)), self.radix, self.radix**phase)

    def reverse(self, place: Ints) -> Ints:
        """Return positions with their digits in reverse order."""
        result = np.zeros_like(place)
        for phase in range(self.phases):
            digit = place // self.radix**phase % self.radix
            result += digit * self.radix ** (self.phases - 1 - phase)
        return result


def _digits(ranks: int, radix: int) -> int:
    digits = 0
    while radix ** (digits + 1) <= ranks:
        digits += 1
    return digits


def _peers(place: Ints, radix: int, distance: int) -> tuple[Ints, Ints]:
    src = np.repeat(place, radix - 1)
    turn = np.tile(np.arange(1, radix), len(place)) * distance
    span = radix * distance
    return src, src - src % span + (src % span + turn) % span


def allreduce(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's recexch allreduce: whole vectors among k in each phase.

    ``allreduce_intra_recexch.c``.
    """
    places = RankPlaces.of(ranks, radix)
    steps = [send(places.folded, places.into, size, reduces=True)]
    for phase in range(places.phases):
        src, dst = places.peers(phase)
        steps.append(send(places.ranks[src], places.ranks[dst], size, reduces=True))
    return Flow([*steps, send(places.into, places.folded, size)])


def barrier(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's recexch barrier: the allreduce of nothing."""
    return allreduce(ranks, 0, radix)


def recursive_multiplying(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's recursive multiplying allreduce.

    As `allreduce`, but ranks from p' on fold into rank modulo p', the largest
    power of k (``allreduce_intra_recursive_multiplying.c``).
    """
    power = radix ** _digits(ranks, radix)
    rest = np.arange(power, ranks)
    steps = [send(rest, rest % power, size, reduces=True)]
    distance = 1
    while distance < power:
        src, dst = _peers(np.arange(power), radix, distance)
        steps.append(send(src, dst, size, reduces=True))
        distance *= radix
    return Flow([*steps, send(rest % power, rest, size)])


def reduce_scatter_allgather(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's k_reduce_scatter_allgather: Rabenseifner's with radix k.

    Position v ends the reduce-scatter with the block of its digits in reverse
    (``allreduce_intra_k_reduce_scatter_allgather.c``).
    """
    places = RankPlaces.of(ranks, radix)
    blocks = len(places.ranks)
    block = size / blocks
    down: list[Step] = []
    up: list[Step] = []
    for phase in range(places.phases):
        src, dst = places.peers(phase)
        width = places.radix ** (places.phases - 1 - phase)
        ends = places.ranks[src], places.ranks[dst]
        for_dst, own = (x - x % width for x in map(places.reverse, (dst, src)))
        down.append(send(*ends, block, for_dst, width, reduces=True))
        up.append(send(*ends, block, own, width))
    fold = send(places.folded, places.into, block, 0, blocks, reduces=True)
    unfold = send(places.into, places.folded, block, 0, blocks)
    return Flow([fold, *down, *reversed(up), unfold], blocks)


def allgather_doubling(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's recexch_doubling allgather: distances grow with the data.

    ``allgather_intra_recexch.c``.
    """
    places = RankPlaces.of(ranks, radix)
    steps = [
        _gather(places, phase, phase, size / ranks) for phase in range(places.phases)
    ]
    return _with_folded(places, steps, ranks, size / ranks)


def allgather_halving(ranks: int, size: int, radix: int = 2) -> Flow:
    """Return MPICH's recexch_halving allgather: distances shrink as data grows.

    Before, each position gives its blocks to the one of its digits in reverse.
    """
    places = RankPlaces.of(ranks, radix)
    block = size / ranks
    place = np.arange(len(places.ranks))
    mirror = places.reverse(place)
    moved = place[mirror != place]
    first, count = places.edge[moved], places.edge[moved + 1] - places.edge[moved]
    swap = send(places.ranks[moved], places.ranks[mirror[moved]], block, first, count)
    last = places.phases - 1
    steps = [
        _gather(places, last - turn, turn, block, mirror) for turn in range(last + 1)
    ]
    return _with_folded(places, [swap, *steps], ranks, block)


def _gather(
    places: RankPlaces, phase: int, turn: int, block: float, name: Ints | None = None
) -> Step:
    """Return the phase after `turn` others; position v has the blocks of name[v]."""
    src, dst = places.peers(phase)
    width = places.radix**turn
    low = src if name is None else name[src]
    low = low - low % width
    first, count = places.edge[low], places.edge[low + width] - places.edge[low]
    return send(places.ranks[src], places.ranks[dst], block, first, count)


def _with_folded(
    places: RankPlaces, steps: list[Step], ranks: int, block: float
) -> Flow:
    give = send(places.folded, places.into, block, places.folded)
    get = send(places.into, places.folded, block, 0, ranks)
    return Flow([give, *steps, get], ranks)
