"""What is sent, as text and JSON: by one collective, or in a step of a workload."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cloudcoll import units
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.profile import Calls, Profile
from cloudcoll.report.document import Table
from cloudcoll.report.schedules import (
    Crossing,
    crossing_lines,
    pair_lines,
    pairs_json,
    schedule_json,
    schedule_lines,
)

ALL_TO_ALL = "all-to-all: no order cuts its bytes per pair, choosing other VMs can help"
"""What to know before expecting much of a better order."""


def has_alltoall(sent: Schedule | Workload) -> bool:
    """Return whether the words `ALL_TO_ALL` apply."""
    calls = sent.operations if isinstance(sent, Workload) else [sent]
    return any(call.collective == "alltoall" for call in calls)


def traffic_lines(
    sent: Schedule | Workload, orders: Mapping[str, Sequence[Crossing]]
) -> list[str]:
    """Return what is sent, and the share that leaves each level in some orders.

    Parameters
    ----------
    sent : Schedule or Workload
    orders : mapping of str to sequence of Crossing
        May be empty.
    """
    lines = workload_lines(sent) if isinstance(sent, Workload) else schedule_lines(sent)
    if orders:
        lines += ["", *crossing_lines(orders)]
    if has_alltoall(sent):
        lines += ["", ALL_TO_ALL]
    return lines


def traffic_json(
    sent: Schedule | Workload, orders: Mapping[str, Sequence[Crossing]]
) -> dict[str, Any]:
    """Return the same as JSON-ready values: see `schedule_json`.

    A workload has its file's keys in place of steps.
    """
    if isinstance(sent, Schedule):
        return schedule_json(sent, orders)
    return sent.describe() | pairs_json(sent.pair_bytes(), orders)


def workload_lines(workload: Workload) -> list[str]:
    """Return the operations of a workload and its bytes per pair."""
    split = f", {workload.parallel}" if workload.parallel else ""
    return [
        f"workload {workload.name}, {workload.ranks} ranks{split}, one step",
        "",
        *operation_lines(workload),
        "",
        *pair_lines(workload.pair_bytes()),
    ]


def operation_lines(workload: Workload) -> list[str]:
    """Return a table: calls, bytes, collective and groups of each operation."""
    rows = [
        f"{op.calls:>5}  {units.size(op.size):>11}  "
        f"{op.collective + ' ' + op.algorithm:<27}  {_groups_text(op)}"
        for op in workload.operations
    ]
    return [f"calls  {'bytes':>11}  {'operation':<27}  groups", *rows]


def _groups_text(operation: Operation) -> str:
    """Return ``16 x 8 tp``: how many groups of how many ranks, and their name."""
    sizes = Counter(len(group) for group in operation.groups)
    counts = [f"{count} x {size}" for size, count in sorted(sizes.items())]
    return f"{', '.join(counts)} {operation.where}"


MOST_LINES = 20
"""The rest takes less time than any of these."""


def profile_lines(profile: Profile, path: str) -> Iterator[str]:
    """Yield what the job called, what took most time first.

    Parameters
    ----------
    profile : Profile
    path : str
        Of its file, for the command that comes next.
    """
    name = profile.library.partition(",")[0].replace("Version:", "")
    library = " ".join(name.split())
    share = "?" if math.isnan(profile.share) else f"{profile.share:.0%}"
    yield (
        f"profile of {profile.ranks} ranks, {library}: "
        f"{units.seconds(profile.seconds)}, {share} in collectives"
    )
    if not profile.calls:
        yield "no collective that is counted was called"
        return
    yield ""
    whole = sum(one.rank_seconds for one in profile.calls)
    rows = [_row(alike, whole) for alike in _alike(profile.calls)]
    shown = tuple(rows[:MOST_LINES])
    head = ("share", "collective", "groups", "calls", "bytes", "a call", "without wait")
    yield from Table(head, shown).lines()
    if left := len(rows) - len(shown):
        yield f"and {left} more that take less time"
    yield ""
    yield (
        "share: of the time in collectives; a call: the mean of the ranks; without "
        "wait: of the rank that was there last"
    )
    if any(len(one.group) > 1 for one in profile.calls):
        yield f"next: cloudcoll solve SNAP --workload {path}"


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return the same as JSON-ready values, `Profile`'s own; NaN is ``null``."""
    share = None if math.isnan(profile.share) else profile.share
    return asdict(profile) | {"share": share}


def _alike(calls: Sequence[Calls]) -> list[list[Calls]]:
    """Return calls of one collective and class of sizes, by the size of groups."""
    found: dict[tuple[object, ...], list[Calls]] = {}
    for one in calls:
        key = one.collective, one.size.bit_length(), len(one.group)
        found.setdefault(key, []).append(one)
    return sorted(found.values(), key=lambda alike: -_seconds(alike))


def _seconds(calls: Sequence[Calls]) -> float:
    return sum(one.rank_seconds for one in calls)


def _row(alike: Sequence[Calls], whole: float) -> tuple[str, ...]:
    """Return one line; figures of a call are means over the groups' calls."""
    first = alike[0]
    times = sum(one.calls for one in alike)
    groups = len({one.group for one in alike})
    return (
        f"{_seconds(alike) / whole:.0%}" if whole else "?",
        first.collective,
        f"{groups} x {len(first.group)}",
        f"{times / groups:g}",
        units.size(sum(one.calls * one.size for one in alike) / times),
        units.seconds(sum(one.seconds for one in alike) / times),
        units.seconds(sum(one.least for one in alike) / times),
    )
