"""A rank map as lines of text or JSON-ready values."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from cloudcoll import units
from cloudcoll.collectives.workload import read_workload
from cloudcoll.rankmap import RankMap
from cloudcoll.report.gains import gap_words, tuning_lines
from cloudcoll.report.traffic import ALL_TO_ALL, has_alltoall, operation_lines

MOST_PAIRS = 0.5
"""Share of measured pairs below which the map says that the others are guesses."""

FILLED_IN = (
    "of the pairs were measured, the others are assumed from their groups and hosts: "
    "'cloudcoll probe --standard' measures all"
)


def map_lines(rank_map: RankMap) -> list[str]:
    """Return what a rank map says: for what, the order, what it should bring."""
    what, table, exchange = _sent(rank_map.schedule)
    lines = [
        f"rank map for {what}, "
        f"{rank_map.size} ranks on {len(rank_map.order)} hosts, "
        f"snapshot {rank_map.snapshot[:12] or '?'}",
        *table,
        "order: " + " ".join(rank_map.order),
        *(
            f"{call.collective} of {units.size(call.least)} to "
            f"{units.size(call.most)}, inside MPI: {' '.join(call.order)}"
            for call in rank_map.calls
        ),
        *([f"left out: {' '.join(rank_map.dropped)}"] if rank_map.dropped else []),
        "",
        *predicted_lines(
            rank_map.predicted,
            bool(rank_map.assumption),
            rank_map.breaking,
            rank_map.intervals,
        ),
    ]
    if rank_map.tuning:
        lines += ["", *tuning_lines(rank_map.tuning)]
    if words := gap_words(rank_map):
        lines += ["", words]
    if rank_map.assumption:
        lines += ["", f"warning: {rank_map.assumption}"]
    if rank_map.measured and rank_map.measured < MOST_PAIRS:
        lines += ["", f"note: {rank_map.measured:.0%} {FILLED_IN}"]
    if rank_map.kept:
        lines += ["", rank_map.kept]
    if exchange:
        lines += ["", ALL_TO_ALL]
    return lines


def _sent(schedule: Mapping[str, Any]) -> tuple[str, list[str], bool]:
    """Return what a map is for, a line for each operation, and whether all-to-all."""
    if "operations" in schedule:
        workload = read_workload(json.dumps(dict(schedule)), "the map's workload")
        table = operation_lines(workload)
        return f"workload {workload.name}", table, has_alltoall(workload)
    size = units.size(schedule.get("size", math.nan))
    collective = schedule.get("collective", "?")
    what = f"{collective} {schedule.get('algorithm', '')} of {size}"
    return what, [], collective == "alltoall"


def map_json(rank_map: RankMap) -> dict[str, Any]:
    """Return a rank map as its file has it, and its ``gap``: ``null`` if not known."""
    gap = None if math.isnan(rank_map.gap) else rank_map.gap
    return {**json.loads(rank_map.to_json()), "gap": gap}


def predicted_lines(
    predicted: Mapping[str, float],
    assumed: bool = False,
    breaking: Collection[str] = (),
    intervals: Mapping[str, tuple[float, float]] = MappingProxyType({}),
) -> list[str]:
    """Return one line per order: predicted time and how it compares.

    Of times that rest on assumed speeds only the comparison is shown; orders in
    `breaking` are said to break the constraints. Behind a time stands between which
    90 % of the measured ones should be.
    """
    best = predicted.get("cloudcoll", math.nan)
    ends = {
        name: f"({units.seconds(low)} to {units.seconds(high)})"
        for name, (low, high) in intervals.items()
        if not assumed
    }
    width = max(map(len, ends.values()), default=0)
    return [
        f"{name:>10}  {'-' if assumed else units.seconds(value):>9}  "
        f"{ends.get(name, ''):<{width}}{'  ' if width else ''}"
        f"{value / best if best else 1.0:5.2f}x {'assumed' if assumed else 'predicted'}"
        f"{', breaks the constraints' if name in breaking else ''}"
        for name, value in predicted.items()
    ]
