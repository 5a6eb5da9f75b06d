"""What an order or a tuning should gain, and how far from perfect it can be, in words.

Loads no NumPy, for ``run``.
"""

from __future__ import annotations

import math

from cloudcoll import units
from cloudcoll.plain import columns
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

WEAK = 1.0
"""A gap above this says little of the order: the bound is a weak one."""


def gap_words(rank_map: RankMap) -> str:
    """Return a line such as ``at most 4 % from perfect``; empty if not known."""
    gap = rank_map.gap
    if math.isnan(gap):
        return ""
    if rank_map.is_perfect:
        groups = "these groups of hosts"
        if rank_map.confidence is not None:
            groups += f", which are {rank_map.confidence:.0%} sure"
        return f"no order is predicted to be faster than this, given {groups}"
    # Seconds that rest on assumed speeds are not shown.
    least = "" if rank_map.assumption else units.seconds(rank_map.lower_bound or 0.0)
    floor = f"no order takes less than {least}" if least else ""
    if gap > WEAK:
        return floor
    share = f"at most {max(math.ceil(100 * gap), 1)} % from perfect"
    return f"{share}: {floor}" if floor else share


SHOWN = 6
"""Hosts of an order that are named; the map has all."""


def order_words(rank_map: RankMap) -> str:
    """Return an order and what it should gain, such as ``order a c b d: ...``."""
    order = rank_map.order
    more = f" ... ({len(order)} hosts)" if len(order) > SHOWN else ""
    named = f"order {' '.join(order[:SHOWN])}{more}"
    before = rank_map.predicted.get("given", math.nan)
    after = rank_map.predicted.get("cloudcoll", math.nan)
    if not (before > 0 and after > 0):
        return f"{named}: what it gains is not known"
    gain = f"{before / after:.3g} times as fast as in the order given"
    if rank_map.assumption:
        # Seconds that rest on assumed speeds are not shown.
        return f"{named}: {_sent(rank_map)} should be {gain}"
    return (
        f"{named}: {_sent(rank_map)} should take {units.seconds(after)}"
        f"{_within(rank_map)}, not {units.seconds(before)} ({gain})"
    )


def _within(rank_map: RankMap) -> str:
    """Return between which seconds its order should be, or nothing: `` (1 to 2 s)``."""
    ends = rank_map.intervals.get("cloudcoll")
    if ends is None or rank_map.assumption:
        return ""
    return f" ({units.seconds(ends[0])} to {units.seconds(ends[1])})"


def without_words(rank_map: RankMap, left: RankMap) -> str:
    """Return words on the gain without some of the hosts; empty if too little.

    It has to be more than the work of these hosts, which the others take over. `left`
    is the map of those that stay, for the same collective.
    """
    before = rank_map.predicted.get("cloudcoll", math.nan)
    after = left.predicted.get("cloudcoll", math.nan)
    if not before * left.size > after * rank_map.size or rank_map.assumption:
        return ""
    gone = [name for name in rank_map.order if name not in left.order]
    more = f" and {len(gone) - SHOWN} more" if len(gone) > SHOWN else ""
    return (
        f"without {', '.join(gone[:SHOWN])}{more}: {_sent(rank_map)} on "
        f"{units.count(len(left.order), 'host')} should take {units.seconds(after)}, "
        f"not {units.seconds(before)}"
    )


def _sent(rank_map: RankMap) -> str:
    """Return what was solved for: ``allreduce of 16 MiB``, ``a step of fsdp``."""
    schedule = rank_map.schedule
    if "workload" in schedule:
        return f"a step of {schedule['workload']}"
    if "collective" not in schedule:
        return "it"
    return f"{schedule['collective']} of {units.size(schedule.get('size', 0))}"


TELLING = 1.02
"""A gain below this is not worth a word."""


def gain_words(tuning: Tuning) -> str:
    """Return what ``--tune`` should gain most, in a line; empty for nothing."""
    best = max(tuning.ranges, key=_gain, default=None)
    if best is None or _gain(best) < TELLING:
        return ""
    verb = "took" if best.measured else "should take"
    return (
        f"--tune chooses algorithms, too: {best.collective} of "
        f"{units.size(best.size)} {verb} {units.seconds(best.predicted)}, not "
        f"{units.seconds(best.own)} ({_gain(best):.3g} times as fast)"
    )


def _gain(one: TunedRange) -> float:
    if one.is_own or not one.predicted:
        return 0.0
    return one.own / one.predicted


def tuning_lines(tuning: Tuning) -> list[str]:
    """Return a line for each range of sizes of each collective."""
    local = f", {tuning.local} on each host" if tuning.local > 1 else ""
    title = f"algorithms for {tuning.library}, {tuning.ranks} ranks{local}:"
    rows = [
        (
            f"{one.collective} from {units.size(one.least)}",
            " ".join([one.algorithm or "its own choice", *_parameters(one)]),
            _seconds(one),
        )
        for one in tuning.ranges
    ]
    return [title, *(f"  {line}" for line in columns(rows))]


def _parameters(one: TunedRange) -> list[str]:
    return [
        f"{name} {units.size(value) if name == 'segment' else value}"
        for name, value in one.parameters.items()
    ]


def _seconds(one: TunedRange) -> str:
    """Return what is known of one range: seconds, of which size, and the gain."""
    if not one.predicted:
        return ""
    word = "measured" if one.measured else "predicted"
    text = f"{units.size(one.size)}: {units.seconds(one.predicted)} {word}"
    if one.is_own or not one.own:
        return text
    return f"{text}, {units.seconds(one.own)} by its own ({_gain(one):.2f}x)"
