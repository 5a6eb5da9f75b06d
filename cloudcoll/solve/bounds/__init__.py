"""What no order of the hosts can beat.

`model/cost.py` adds the seconds of the busiest link of each phase and those of the
slowest path of each step. Either sum is bounded by itself. Of the links:

* a group of hosts holds a number of ranks that no order changes, and any that
  many send something out (`cuts`), over a link of known rate;
* the ranks of one host follow each other; the most that such a row sends goes
  over the fastest card at best.

Where pairs have figures of their own, the larger of the two sums counts. Of the
paths: ranks that talk to each other in a step, and do not fit into the
groups of a level, have to cross it; where all ranks talk, the host with the
longest way to its switch does too. A bound of all phases together is not the sum of
theirs: each can be the larger one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.model.cost import CostModel, FlatSteps
from cloudcoll.network.tree import Links
from cloudcoll.solve.bounds.cuts import Traffic, find_cube
from cloudcoll.solve.ring.gates import bottleneck_bound, visited


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
        (alone / rate[links.member]).max(axis=0) for rate in (links.up, links.down)
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


MOST_PHASES = 64
"""Phases that are bounded one by one; of more, all together mostly tell more."""

ROUNDING = 1e-9
"""What the seconds of an order may be rounded by, as a share."""


def lower_bound(model: CostModel) -> float:
    """Return seconds that no order of the same hosts can beat.

    At most the smallest `CostModel.seconds` of any order. 0 where nothing is known of
    the links, nothing needs to be sent, or hosts can be left out.
    """
    flat = model.flat()
    if flat.seats < len(flat.slots):
        return 0.0
    places = places_of(flat)
    if len(set(flat.slots.tolist())) == 1:
        # Hosts take ranks in blocks: blocks are as good as ranks, and tell more.
        unit = int(flat.slots[0])
        src, dst = flat.src // unit, flat.dst // unit
    else:
        src, dst = flat.src, flat.dst
    load, wait = _load(flat, places, src, dst), _wait(flat, places, src, dst)
    bound = (load + wait if flat.pairs is None else max(load, wait)) * (1 - ROUNDING)
    # NumPy adds up in other orders on other processors; answers are to be the same.
    # What half of the last digit adds is far below `ROUNDING`.
    return float(f"{bound:.11g}")


def _load(flat: FlatSteps, places: Places, src: Ints, dst: Ints) -> float:
    """Return what the links are busy for, at least."""
    whole = Traffic.of(places.units, src, dst, flat.size)
    if not 1 < flat.phases <= MOST_PHASES:
        return max(_link_seconds(places, whole))
    ends = np.searchsorted(flat.phase[flat.step], np.arange(flat.phases + 1))
    phases = [
        Traffic.of(places.units, src[begin:end], dst[begin:end], flat.size[begin:end])
        for begin, end in itertools.pairwise(ends)
    ]
    floors = np.array([max(_link_seconds(places, phase)) for phase in phases])
    seconds = float(floors.sum())
    cube = find_cube(whole, phases)
    if cube:
        turned = cube.turned
        for held, up, down, _ in places.groups:
            seconds = max(seconds, cube.seconds(held, up, floors))
            seconds = max(seconds, turned.seconds(held, down, floors))
    return max(seconds, *_link_seconds(places, whole))


def _link_seconds(places: Places, traffic: Traffic) -> Iterator[float]:
    """Yield seconds that some link is busy at least."""
    yield 0.0
    if not len(traffic.size):
        return
    for held, up, down, both in places.groups:
        least = traffic.least(held)
        yield max(least.out * up, least.into * down, least.both * both)
    for count in np.unique(places.held).tolist():
        mine = places.held == count
        for sent, rates in zip(
            traffic.windows(count), (places.up, places.down), strict=True
        ):
            yield _matched(sent, np.sort(rates[mine])[::-1])


def _matched(sent: Floats, per_byte: Floats) -> float:
    """Return the largest product if the fastest cards get the most of the least."""
    least = np.sort(sent)[: len(per_byte)]
    return float((least * per_byte).max(initial=0.0))


def _wait(flat: FlatSteps, places: Places, src: Ints, dst: Ints) -> float:
    """Return seconds of the steps' longest paths, at least."""
    ends = np.searchsorted(flat.step, np.arange(len(flat.phase) + 1))
    total = 0.0
    for step, weight in enumerate(flat.wait_weight.tolist()):
        some = slice(ends[step], ends[step + 1])
        crosses = src[some] != dst[some]
        ways = src[some][crosses], dst[some][crosses]
        if not len(ways[0]):
            continue
        if flat.pairs:
            sent = float(flat.sent[some][crosses].min())
            total += weight * _worst_pair(places, *ways, flat.pairs.seconds(sent))
            continue
        alone = float(flat.alone[some][crosses].min())
        total += weight * max(
            _crossing(places, *ways, alone), _slowest_host(places, *ways, alone)
        )
    return total


def _worst_pair(places: Places, src: Ints, dst: Ints, seconds: Floats) -> float:
    """Return the time of the host whose best partner is the worst, in a step."""
    if places.units != len(places.held):
        # A host of several ranks may have all its partners.
        return 0.0
    if visited(src, dst, places.units) is not None:
        return bottleneck_bound(seconds)
    np.fill_diagonal(seconds, np.inf)
    nearest = np.sort(seconds.min(axis=1)), np.sort(seconds.min(axis=0))
    return max(
        float(ways[len(np.unique(ends)) - 1])
        for ends, ways in zip((src, dst), nearest, strict=True)
    )


def _crossing(places: Places, src: Ints, dst: Ints, alone: float) -> float:
    """Return the longest path that must be: out of a group, or across a level.

    A group keeps to itself only what as many units as it holds can: whole
    components of the ranks that talk.
    """
    traffic = Traffic.of(places.units, src, dst, np.ones(len(src)))
    longest = 0.0
    for counts, latency, per_byte in places.levels:
        seconds = latency + alone * per_byte
        numbers, place = np.unique(counts, return_inverse=True)
        crossed = ~np.array([traffic.is_whole(number) for number in numbers.tolist()])
        longest = max(longest, float(seconds[crossed[place]].max(initial=0.0)))
        if not _fit(traffic.components, counts):
            longest = max(longest, float(seconds.min()))
    return longest


def _fit(sizes: Ints, counts: Ints) -> bool:
    """Return whether sets of such sizes may fit into groups of these counts."""
    return all(
        (counts // size).sum() >= (sizes >= size).sum() for size in np.unique(sizes)
    )


def _slowest_host(places: Places, src: Ints, dst: Ints, alone: float) -> float:
    """Return the path of the slowest host that cannot stay out of a step."""
    if places.units != len(places.held):
        # A host of several ranks may have all its partners.
        return 0.0
    other = least_other(places.own)
    longest = 0.0
    for ends, per_byte in ((src, places.up), (dst, places.down)):
        busy = len(np.unique(ends))
        ways = places.own + other + alone * per_byte
        # Those with the shortest ways may be the ones that take part.
        longest = max(longest, float(np.sort(ways)[busy - 1]))
    return longest
