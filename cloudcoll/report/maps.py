"""A rank map as lines of text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cloudcoll.rankmap import RankMap
from cloudcoll.report import units


def map_lines(rank_map: RankMap) -> list[str]:
    """Return what a rank map says: for what, the order, what it should bring."""
    schedule = rank_map.schedule
    what = f"{schedule.get('collective', '?')} {schedule.get('algorithm', '')}"
    lines = [
        f"rank map for {what} of {units.size(schedule.get('size', math.nan))}, "
        f"{rank_map.size} ranks on {len(rank_map.order)} hosts, "
        f"snapshot {rank_map.snapshot[:12] or '?'}",
        "order: " + " ".join(rank_map.order),
        "",
        *predicted_lines(rank_map.predicted, bool(rank_map.assumption)),
    ]
    if rank_map.assumption:
        lines += ["", f"warning: {rank_map.assumption}"]
    if rank_map.origin == "given":
        lines += ["", "no gain expected: order kept"]
    return lines


def predicted_lines(predicted: Mapping[str, float], assumed: bool = False) -> list[str]:
    """Return one line per order: predicted time and how it compares.

    Of times that rest on assumed speeds only the comparison is shown.
    """
    best = predicted.get("cloudcoll", math.nan)
    return [
        f"{name:>10}  {'-' if assumed else units.seconds(value):>9}  "
        f"{value / best if best else 1.0:5.2f}x {'assumed' if assumed else 'predicted'}"
        for name, value in predicted.items()
    ]
