"""The profile of a job as a short report, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cloudcoll.profile import Calls, Profile
from cloudcoll.report import units
from cloudcoll.report.document import Table

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
