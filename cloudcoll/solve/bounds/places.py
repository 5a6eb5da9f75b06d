"""Where ranks can stand on a fabric, as far as bounds ask.

Units are ranks, or whole hosts where all have the same slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cloudcoll.model.cost import FlatSteps, Floats, Ints
from cloudcoll.network.links import Links


class Group(NamedTuple):
    """The slowest of the links that have as many units below them.

    Attributes
    ----------
    held : int
        Units below each of them.
    up, down, both : float
        Seconds a byte: of what goes up, of what comes down, and of their sum.
    """

    held: int
    up: float
    down: float
    both: float


class Level(NamedTuple):
    """The links at one distance from the core.

    Attributes
    ----------
    counts : ndarray of int64, shape (groups,)
        Units below each.
    latency : ndarray of float64, shape (groups,)
        The least of a path that leaves or enters the group.
    per_byte : ndarray of float64, shape (groups,)
        Seconds a byte on the slowest link of such a path, at least.
    """

    counts: Ints
    latency: Floats
    per_byte: Floats


@dataclass(frozen=True)
class Places:
    """Where units can be.

    Attributes
    ----------
    units : int
        All of them.
    held : ndarray of int64, shape (hosts,)
        Units of each host.
    up, down : ndarray of float64, shape (hosts,)
        Seconds a byte over the slowest link that the host has for itself.
    own : ndarray of float64, shape (hosts,)
        Latency of these links.
    groups, levels : list
        Links above several hosts, and not all; links by distance from the core.
    """

    units: int
    held: Ints
    up: Floats
    down: Floats
    own: Floats
    groups: list[Group]
    levels: list[Level]


def places_of(flat: FlatSteps) -> Places:
    """Return where the units of a schedule can be on its fabric."""
    alike = len(set(flat.slots.tolist())) == 1
    held = np.ones_like(flat.slots) if alike else flat.slots
    links, units = flat.links, int(held.sum())
    below = np.zeros(len(links.up), dtype=np.int64)
    hosts = np.zeros(len(links.up), dtype=np.int64)
    for row in links.member:
        below += np.bincount(row, held, len(below)).astype(np.int64)
        hosts += np.bincount(row, minlength=len(hosts))
    alone = hosts[links.member] == 1
    own = np.where(alone, links.latency[links.member], 0.0).sum(axis=0)
    up, down = (
        np.where(alone, 1 / rate[links.member], 0.0).max(axis=0)
        for rate in (links.up, links.down)
    )
    shared = (hosts > 1) & (below < units)
    groups = [
        Group(
            int(count),
            float(1 / links.up[same].min()),
            float(1 / links.down[same].min()),
            float(1 / (links.up + links.down)[same].min()),
        )
        for count in np.unique(below[shared])
        for same in [shared & (below == count)]
    ]
    return Places(units, held, up, down, own, groups, _levels(links, held))


def _levels(links: Links, held: Ints) -> list[Level]:
    """Return the levels of a fabric, from the core to the hosts."""
    levels = []
    for depth, row in enumerate(links.member):
        below = links.member[depth:]
        numbers, place = np.unique(row, return_inverse=True)
        if len(numbers) < 2:
            continue
        legs = (
            links.latency[below].sum(axis=0),
            (1 / links.up[below]).max(axis=0),
            (1 / links.down[below]).max(axis=0),
        )
        nearest = np.full((3, len(numbers)), np.inf)
        for least, leg in zip(nearest, legs, strict=True):
            np.minimum.at(least, place, leg)
        latency = nearest[0] + least_other(nearest[0])
        per_byte = nearest[1:].min(axis=0)
        counts = np.bincount(place, held).astype(np.int64)
        levels.append(Level(counts, latency, per_byte))
    return levels


def least_other(values: Floats) -> Floats:
    """Return for each value the smallest of the others; there are two or more."""
    least, second = np.partition(values, 1)[:2]
    others = np.full_like(values, least)
    others[np.argmin(values)] = second
    return others
