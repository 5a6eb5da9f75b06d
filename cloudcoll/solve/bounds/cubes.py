"""Recursive halving, doubling and the like: phases along edges of a hypercube.

In each phase every rank trades with the one whose number differs in one bit. A
group of hosts can keep such a phase inside, but not many of them: k corners of a
cube have few edges among them (Harper 1964). So phase by phase little can be said,
and all phases together miss that those kept inside still take their time on the
cards. Both at once: each phase takes its floor or what the group's link carries of
it, whichever is longer, and the group keeps inside what helps it most.

Among k corners there are at most h_1 + ... + h_i edges of any i dimensions, h_i
being the numbers below k with bit i set, as among the first k corners in binary.
These limits make a polymatroid, over which a greedy choice is the best of a sum of
concave gains (Federgruen and Groenevelt 1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.model.cost import Floats, Ints
from cloudcoll.solve.bounds.cuts import Traffic


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
        """Return what all phases take at least, given a link of a group.

        Parameters
        ----------
        held : int
            Units below the link.
        per_byte : float
            Seconds a byte that goes up the link.
        floors : ndarray of float64, shape (phases,)
            Seconds that each phase takes at least anyway.
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
    one other: all families fold in a way that keeps the order of the rest.

    Parameters
    ----------
    whole : Traffic
        All phases together.
    phases : sequence of Traffic
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

    Parameters
    ----------
    counts : ndarray of int64, shape (n,)
    per_edge : ndarray of float64, shape (dimensions,)
        Saved by each edge.
    spare : ndarray of float64, shape (n, dimensions)
        What all edges of a dimension save at most.
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
