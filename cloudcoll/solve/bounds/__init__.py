"""What no order of the hosts can beat.

`cost.py` adds the seconds of the busiest link of each phase and those of the
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

import numpy as np

from cloudcoll.model.cost import CostModel, FlatSteps, Floats, Ints
from cloudcoll.solve.bounds.cubes import find_cube
from cloudcoll.solve.bounds.cuts import Traffic
from cloudcoll.solve.bounds.places import Places, least_other, places_of
from cloudcoll.solve.ring.threshold import bottleneck_bound, visited

MOST_PHASES = 64
"""Phases that are bounded one by one; of more, all together mostly tell more."""

ROUNDING = 1e-9
"""What the seconds of an order may be rounded by, as a share."""


def lower_bound(model: CostModel) -> float:
    """Return seconds that no order of the same hosts can beat.

    Parameters
    ----------
    model : CostModel

    Returns
    -------
    float
        At most the smallest `CostModel.seconds` of any order. 0 where nothing
        is known of the links, nothing needs to be sent, or hosts can be left out.
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
    return (load + wait if flat.pairs is None else max(load, wait)) * (1 - ROUNDING)


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
