"""Slow hosts: delays on all of a host's round trips, as opposed to long links.

A slow host in a rack keeps the rack's view of the network, only later: its
rack still stands out among its round trips. To a host in a rack of its own all
the others are far. Only what is slow beyond chance counts: one's measurements are
compared with those of its peers, and nothing is assumed of the noise but that it is
the same for all, for neither TCP's stalls nor queues follow a law, and a threshold on
a fitted figure is crossed by somebody as soon as there are many of them. It takes
repeats: one measurement is never beyond chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer.grouping import bottom, grow
from cloudcoll.measured.samples import medians, middle

LONGER = 0.25
"""A host's link is longer from this share of the usual round trip on. Less moves a
message by less than the software at its two ends does, and no order can make up for
it."""

SUSPECT = 2.0
"""A host whose own leg is this many times the usual one may be a slow host: less
leaves it nearer to its own rack than to the others, so that groups are right."""

TOGETHER = 0.9
"""Two slow hosts are never nearer than this share of their delays together."""


def late_hosts(extra: Floats, least: float) -> tuple[Floats, Bools]:
    """Return each host's own delay in seconds, and whether it is late.

    In measured = explained + host + host + noise, a row's median is the row's
    host as long as most of the others are not late (the first step of Tukey's
    median polish, 1977). A host is late if the median is more than `least`, and its
    shortest round trips are longer than chance explains.

    `extra`, shape (hosts, hosts), are measured less explained seconds, NaN where not
    measured; where two hosts asked each other, the shorter one counts.
    """
    extra = np.fmin(extra, extra.T)
    late = middle(extra)
    a, b = np.nonzero(np.triu(np.isfinite(extra), 1))
    # The lower, the later.
    early = -extra[a, b]
    found = np.nan_to_num(late) > least
    for host in np.flatnonzero(found).tolist():
        mine = (a == host) | (b == host)
        found[host] = beyond_chance(early[mine], early[~mine], len(extra))
    return late, found


def host_delays(distance: Floats) -> Floats:
    """Return the seconds, 0 for all but slow hosts, that these add to all round trips.

    The groups of the hosts that are not suspected come first. A suspect is
    slow if one delay explains its round trips to the nearest of these groups
    and to the others alike, and if the suspects agree among themselves. `distance`,
    shape (hosts, hosts), is in seconds, symmetric; NaN all over if not measured.
    """
    delays = np.zeros(len(distance))
    if len(distance) < 4 or np.isnan(distance).any():
        return delays
    suspects = _suspects(_legs(distance))
    if not len(suspects):
        return delays
    rest = np.setdiff1d(np.arange(len(distance)), suspects)
    groups = bottom(grow(distance, rest.tolist()))
    order, sizes = np.concatenate(groups), [len(group) for group in groups]
    between = np.array([_middles(distance[group][:, order], sizes) for group in groups])
    near = np.diag(between)
    usual = float(np.median(near[near > 0])) if (near > 0).any() else 0.0
    between[np.diag_indices(len(groups))] = np.where(near > 0, near, usual)
    for host in suspects.tolist():
        profile = _middles(distance[host, order][None], sizes)
        delays[host] = _delay(profile, between)
    return _agreeing(distance, delays)


def _suspects(legs: Floats) -> Ints:
    """Return the hosts whose own legs are longer than most and than chance explains."""
    own: Floats = np.nanmedian(legs, axis=1)
    suspects = np.flatnonzero(own > SUSPECT * np.median(own))
    row, column = np.nonzero(np.isfinite(legs))
    short = -legs[row, column]
    far = [
        beyond_chance(short[row == host], short[row != host], len(legs))
        for host in suspects.tolist()
    ]
    found: Ints = suspects[np.array(far, dtype=bool)]
    return found


def _legs(distance: Floats) -> Floats:
    """Return the seconds that each host's own leg adds to each of its round trips.

    Half of what the way over a host takes longer than the way past it, with
    its nearest neighbour at one end and each other host at the other: exact
    in a tree (Gromov product) wherever the neighbour is on the same switch.
    NaN for the host itself and its neighbour.
    """
    over = distance.copy()
    np.fill_diagonal(over, np.inf)
    nearest = over.argmin(axis=1)
    rows = np.arange(len(distance))
    # In place: matrices of a thousand hosts are large.
    np.add(distance[rows, nearest][:, None], distance, out=over)
    over -= distance[nearest]
    over /= 2.0
    over[rows, rows] = over[rows, nearest] = np.nan
    return over


def _middles(block: Floats, sizes: Sequence[int]) -> Floats:
    """Return the median distance of all rows to each group; 0 if none is above 0.

    The hosts of a group stand side by side.
    """
    group = np.tile(np.repeat(np.arange(len(sizes)), sizes), len(block))
    apart = block.ravel() > 0
    return np.nan_to_num(medians(group[apart], block.ravel()[apart], len(sizes)))


def _delay(profile: Floats, between: Floats) -> float:
    """Return the delay that puts a host into a group, 0 if none does.

    `profile` is the host's distance to each group, `between` that of the
    groups among each other, theirs inside on the diagonal.
    """
    home = int(profile.argmin())
    others = np.arange(len(profile)) != home
    delay = profile[home] - between[home, home]
    if not others.any():
        # One group, one late host: that it is slow is the simpler reading.
        return float(delay)
    far = between[home, others]
    elsewhere = float(np.median(profile[others] - far))
    contrast = float(far.min()) - between[home, home]
    return float(delay) if delay - elsewhere < contrast / 2.0 else 0.0


def _agreeing(distance: Floats, delays: Floats) -> Floats:
    """Drop delays of hosts that are nearer to each other than these allow."""
    slow = np.flatnonzero(delays)
    sums = delays[slow][:, None] + delays[slow]
    clash = distance[np.ix_(slow, slow)] < TOGETHER * sums
    np.fill_diagonal(clash, False)
    kept = delays.copy()
    kept[slow[clash.any(axis=1)]] = 0.0
    return kept


FALSE_ALARMS = 0.005
"""Chance that any of those who are compared stands out although all are alike: of
all hosts, late or slow, 1 % together."""

LET_GO = 10
"""One in so many measurements of who stands out may be as good as any: a rate is
read too high now and then."""


def beyond_chance(mine: Floats, others: Floats, tests: int) -> bool:
    """Return whether all of `mine` are lower than chance explains, by its peers'.

    So many tests made together share `FALSE_ALARMS` (Bonferroni).
    """
    return all_low(mine, others) * tests < FALSE_ALARMS


def all_low(mine: Floats, others: Floats) -> float:
    """Return how likely chance makes all of `mine` as low as they are.

    The precedence test (Nelson 1963), exact for any distribution: how many of
    the others are above the highest of mine, but for one in `LET_GO` of these.
    What is slow is slow in its best moments, too: a slow card in its best
    transfers, a late host in its shortest round trips. A healthy one has
    some that are as good as those of its peers, however many stalled.
    """
    if not len(mine):
        return 1.0
    let_go = len(mine) // LET_GO
    above = let_go + int((others > best(mine)).sum())
    # Of the highest of all, `above` in number, at most `let_go` are mine.
    ways = _ways(len(mine) + len(others), above)
    return sum(
        math.exp(_ways(len(mine), own) + _ways(len(others), above - own) - ways)
        for own in range(min(let_go, above) + 1)
    )


def best(values: Floats) -> float:
    """Return the highest value but for one in `LET_GO`."""
    return float(np.sort(values)[-1 - len(values) // LET_GO])


def _ways(count: int, taken: int) -> float:
    """Return the logarithm of the number of ways to take some of `count`."""
    if taken > count:
        return -math.inf
    return (
        math.lgamma(count + 1) - math.lgamma(taken + 1) - math.lgamma(count - taken + 1)
    )
