"""How much any k of n must send to the others, whoever they are.

A group of hosts holds some ranks, and which ones is up to the order; how many is
not. What the best choice of that many still sends out is what the group's uplink
carries at least.

Recursive halving, doubling and the like are phases along the edges of a hypercube: in
each one every rank trades with the one whose number differs in one bit. A group of
hosts can keep such a phase inside, but not many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Floats, Ints

DENSE = 128
"""Units up to which eigenvalues of irregular traffic are computed, in some 5 ms."""

SLACK = 1e-9
"""What eigenvalues may be wrong by, as a share of the largest."""


class Least(NamedTuple):
    """Bytes that any choice of a number of units sends at least.

    To the others (`out`), from them (`into`), and the sum of the two (`both`).
    """

    out: float
    into: float
    both: float


@dataclass(frozen=True)
class Traffic:
    """Bytes between units: ranks, or hosts of equally many ranks.

    Attributes
    ----------
    src, dst : ndarray of int64, shape (pairs,)
        Each pair once, in order, none with itself.
    size : ndarray of float64, shape (pairs,)
        Bytes, above 0.
    """

    units: int
    src: Ints
    dst: Ints
    size: Floats

    @classmethod
    def of(cls, units: int, src: Ints, dst: Ints, size: Floats) -> Traffic:
        """Return messages as traffic: those of a pair added up."""
        kept = (src != dst) & (size > 0)
        pairs, place = np.unique(src[kept] * units + dst[kept], return_inverse=True)
        total = _sums(place, size[kept], len(pairs))
        return cls(units, pairs // units, pairs % units, total)

    def within(self, chosen: Ints) -> Traffic:
        """Return the traffic among the chosen units, numbered by their place."""
        number = np.full(self.units, -1)
        number[chosen] = np.arange(len(chosen))
        src, dst = number[self.src], number[self.dst]
        return Traffic.of(len(chosen), src, dst, self.size * ((src | dst) >= 0))

    def least(self, count: int) -> Least:
        """Return what any `count` units send to the others, and hear, at least."""
        rest = self.units - count
        # What the others hear is what these send.
        out = max(self._out(count), self.turned._out(rest))
        into = max(self.turned._out(count), self._out(rest))
        both = max(out + into, self._split(count), self._spectral(count))
        if self._balanced:
            return Least(both / 2, both / 2, both)
        return Least(out, into, both)

    def windows(self, count: int) -> tuple[Floats, Floats]:
        """Return the bytes to and from `count` units in a row, by the first of them."""
        low, high = np.minimum(self.src, self.dst), np.maximum(self.src, self.dst)
        near = high - low < count
        first, last = np.maximum(high - count + 1, 0)[near], low[near] + 1
        change = np.bincount(first, self.size[near], self.units + 1)
        change -= np.bincount(last, self.size[near], self.units + 1)
        starts = self.units - count + 1
        inside = np.cumsum(change)[:starts]
        sent, heard = (
            np.convolve(degree, np.ones(count), "valid") - inside
            for degree in (self.sent, self.turned.sent)
        )
        return np.maximum(sent, 0.0), np.maximum(heard, 0.0)

    @cached_property
    def components(self) -> Ints:
        """How many units each set of units has that talk to each other."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        shape = (self.units, self.units)
        graph = coo_array((np.ones(len(self.src)), (self.src, self.dst)), shape)
        _, labels = connected_components(graph, directed=False)
        sizes: Ints = np.bincount(labels)
        return sizes

    @cached_property
    def turned(self) -> Traffic:
        """Every message the other way."""
        order = np.argsort(self.dst, kind="stable")
        return Traffic(self.units, self.dst[order], self.src[order], self.size[order])

    @cached_property
    def sent(self) -> Floats:
        """Bytes that each unit sends, shape (units,)."""
        return _sums(self.src, self.size, self.units)

    @cached_property
    def fewest(self) -> Floats:
        """What 0, 1, 2, ... units send at least in all, shape (units + 1,)."""
        return np.concatenate([[0.0], np.cumsum(np.sort(self.sent))])

    @cached_property
    def _balanced(self) -> bool:
        """Whether every unit sends what it hears: then so does every set."""
        return np.allclose(self.sent, self.turned.sent, rtol=1e-12)

    @cached_property
    def _ranked(self) -> tuple[Ints, Ints, Floats]:
        """Senders, the place of each pair among its sender's by bytes, bytes."""
        order = np.lexsort((-self.size, self.src))
        src = self.src[order]
        begins = np.searchsorted(src, np.arange(self.units))
        return src, np.arange(len(src)) - begins[src], self.size[order]

    def _out(self, count: int) -> float:
        """No unit has more than count - 1 of its partners beside it."""
        src, place, size = self._ranked
        seen = place >= count - 1
        left = _sums(src[seen], size[seen], self.units)
        return _smallest(left, count)

    def is_whole(self, count: int) -> bool:
        """Return whether some `count` units may have no one to talk to outside."""
        return bool(self._whole >> count & 1)

    @cached_property
    def _whole(self) -> int:
        """Bit k is set if whole components can have k units together."""
        reached = 1
        sizes, counts = np.unique(self.components, return_counts=True)
        for size, times in zip(sizes.tolist(), counts.tolist(), strict=True):
            part, left = 1, times
            while left:  # 1, 2, 4, ... of one size at a time
                part = min(part, left)
                reached |= reached << size * part
                part, left = 2 * part, left - part
        return reached

    def _split(self, count: int) -> float:
        """Where `count` units are no whole components, a message leaves or enters."""
        if not len(self.size) or self.is_whole(count):
            return 0.0
        return float(self.size.min()) * (2 if self._balanced else 1)

    def _spectral(self, count: int) -> float:
        """Return the eigenvalue bound on a cut (Mohar 1991): l2 k (n - k) / n."""
        return self._connectivity * count * (self.units - count) / self.units

    @cached_property
    def _connectivity(self) -> float:
        """The second smallest eigenvalue of the Laplacian of bytes both ways."""
        values = _circulant(self)
        if values is None and self.units <= DENSE and len(self.components) == 1:
            values = _dense(self)
        if values is None or len(values) < 2:
            return 0.0
        return max(float(values[1] - SLACK * values[-1]), 0.0)


def _sums(place: Ints, size: Floats, places: int) -> Floats:
    """Return what there is at each place: floats, also of nothing."""
    return np.bincount(place, size, places).astype(np.float64, copy=False)


def _smallest(values: Floats, count: int) -> float:
    """Return the sum of the `count` smallest values."""
    if count >= len(values):
        return float(values.sum())
    return float(np.partition(values, count)[:count].sum())


def _circulant(traffic: Traffic) -> Floats | None:
    """Return the Laplacian's eigenvalues if all units send alike, else None."""
    units = traffic.units
    away = (traffic.dst - traffic.src) % units
    times = np.bincount(away, minlength=units)
    mean = np.bincount(away, traffic.size, units) / units
    if ((times > 0) & (times != units)).any():
        return None
    if not np.allclose(mean[away], traffic.size, rtol=1e-12):
        return None
    values: Floats = 2 * (mean.sum() - np.fft.fft(mean).real)
    return np.sort(values)


def _dense(traffic: Traffic) -> Floats:
    """Return the smallest two eigenvalues of the Laplacian, and its trace."""
    from scipy.linalg import eigh

    units = traffic.units
    sent = np.zeros((units, units))
    sent[traffic.src, traffic.dst] = traffic.size
    both = sent + sent.T
    laplacian = np.diag(both.sum(axis=1)) - both
    low = eigh(laplacian, eigvals_only=True, subset_by_index=[0, 1])
    return np.array([*low, np.trace(laplacian)])


@dataclass(frozen=True)
class Cube:
    """Phases in which corners of a hypercube trade along its edges.

    Attributes
    ----------
    phases : tuple of Traffic
        All of them, among the corners alone.
    dimensions : ndarray of int64, shape (phases,)
        The bit along which a phase goes, -1 for one that does something else.
    hanging : int
        Units beside the corners.
    """

    phases: tuple[Traffic, ...]
    dimensions: Ints
    hanging: int

    @property
    def turned(self) -> Cube:
        """Every message the other way."""
        turned = tuple(phase.turned for phase in self.phases)
        return Cube(turned, self.dimensions, self.hanging)

    def seconds(self, held: int, per_byte: float, floors: Floats) -> float:
        """Return the least seconds of all phases together, given a link of a group.

        `held` units are below the link, a byte that goes up it takes `per_byte`
        seconds. `floors`, shape (phases,), has the seconds that each phase takes at
        least anyway.
        """
        corners = self.phases[0].units
        counts = np.arange(max(held - self.hanging, 0), min(held, corners) + 1)
        number = int(self.dimensions.max()) + 1
        rest = float(floors[self.dimensions < 0].sum())
        longest = np.zeros((len(counts), number))
        spare = np.zeros((len(counts), number))
        per_edge = np.zeros(number)
        for phase, bit, floor in zip(self.phases, self.dimensions, floors, strict=True):
            if bit >= 0:
                carried = phase.fewest[counts] * per_byte
                longest[:, bit] += np.maximum(carried, floor)
                spare[:, bit] += np.maximum(carried - floor, 0.0)
                # An edge inside keeps the messages of both its ends from the link.
                per_edge[bit] += 2 * per_byte * phase.size.max(initial=0.0)
        saved = _most_saved(counts, per_edge, spare)
        return rest + float((longest.sum(axis=1) - saved).min())


def find_cube(whole: Traffic, phases: Sequence[Traffic]) -> Cube | None:
    """Return the hypercube that phases go along, None where none does.

    Ranks are numbered as they are, or without those that only hand their data to
    one other: all families fold in a way that keeps the order of the rest. `whole` is
    all phases together.
    """
    both = (
        np.concatenate([whole.src, whole.dst]),
        np.concatenate([whole.dst, whole.src]),
    )
    pairs = np.unique(both[0] * whole.units + both[1])
    partners = np.bincount(pairs // whole.units, minlength=whole.units)
    found = []
    for corners in (np.arange(whole.units), np.flatnonzero(partners > 1)):
        inner = tuple(phase.within(corners) for phase in phases)
        dimensions = np.array([_dimension(phase) for phase in inner])
        found.append(Cube(inner, dimensions, whole.units - len(corners)))
    best = max(found, key=lambda cube: len(np.unique(cube.dimensions)))
    # A single dimension is no more than its phases are one by one.
    return best if len(set(best.dimensions.tolist()) - {-1}) > 1 else None


def _dimension(phase: Traffic) -> int:
    """Return the one bit in which the ends of all messages differ, or -1."""
    way = np.unique(phase.src ^ phase.dst)
    if len(way) != 1 or way[0] & (way[0] - 1):
        return -1
    return int(way[0]).bit_length() - 1


def _most_saved(counts: Ints, per_edge: Floats, spare: Floats) -> Floats:
    """Return the most seconds that edges among `counts` corners can save.

    By dimension, each edge saves `per_edge`, and all together at most `spare`.
    """
    bits = np.arange(len(per_edge))
    whole = counts[:, None] >> (bits + 1) << bits
    part = (counts[:, None] & ((2 << bits) - 1)) - (1 << bits)
    limits = np.cumsum(whole + np.maximum(part, 0), axis=1)
    edges = np.zeros_like(spare)
    saved = np.zeros(len(counts))
    for place, bit in enumerate(np.argsort(-per_edge).tolist()):
        if not per_edge[bit]:
            break
        most = -np.sort(-edges[:, :place], axis=1)
        taken = np.cumsum(np.pad(most, ((0, 0), (1, 0))), axis=1)
        room = (limits[:, : place + 1] - taken).min(axis=1)
        edges[:, place] = np.minimum(room, spare[:, bit] / per_edge[bit])
        saved += edges[:, place] * per_edge[bit]
    return saved
