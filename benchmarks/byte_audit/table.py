"""Rows of counted bytes as a document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case
from verdict import SHARE, SLACK, STRAY, Verdict, judge

from cloudcoll.report import units
from cloudcoll.schedule import SCHEDULES, build_schedule

INTRODUCTION = Path(__file__).with_name("introduction.md")


def document(paths: Iterable[Path]) -> list[str]:
    """Return Markdown: what was done, and a line for each library and algorithm."""
    rows = [
        json.loads(line) for path in paths for line in path.read_text().splitlines()
    ]
    known = {(p, c.call, c.forced): c for p, cases in CASES.items() for c in cases}
    groups: dict[tuple[str, Case], list[dict[str, Any]]] = {}
    for row in rows:
        case = known[row["program"], row["call"], row["forced"]]
        groups.setdefault((row["library"], case), []).append(row)
    verdicts = {group: _verdicts(group[1], groups[group]) for group in groups}
    judged = [verdict for found in verdicts.values() for verdict in found]
    return [
        INTRODUCTION.read_text().format(
            share=SHARE,
            slack=SLACK,
            stray=STRAY,
            rows=sum("sent" in row for row in rows),
            judged=len(judged),
            good=sum(verdict.good for verdict in judged),
            elsewhere=max(row.get("elsewhere", 0.0) for row in rows),
        ),
        "| library | call | forced | schedule | ranks | vector | farthest pair "
        "| stray | as scheduled |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(*group, groups[group], verdicts[group]) for group in groups),
    ]


def _line(
    library: str, case: Case, rows: list[dict[str, Any]], verdicts: list[Verdict]
) -> str:
    ranks = sorted({row["ranks"] for row in rows})
    sizes = [row["size"] for row in rows]
    cells = [
        *(library, case.call, case.forced, case.algorithm),
        " ".join(map(str, ranks)),
        f"{units.size(min(sizes))} to {units.size(max(sizes))}",
    ]
    errors = [row["error"] for row in rows if "error" in row]
    failed = f"; {len(errors)} failed: {errors[0]}" if errors else ""
    if any("unavailable" in row for row in rows):
        return _joined([*cells, "", "", "not in this version"])
    if not verdicts:
        return _joined([*cells, "", "", f"no schedule{failed}"])
    good = sum(verdict.good for verdict in verdicts)
    error = max(verdict.error for verdict in verdicts)
    stray = max(verdict.stray for verdict in verdicts)
    said = f"{good} of {len(verdicts)}{failed}"
    return _joined([*cells, f"{error:.2%}", f"{stray:.0f} B", said])


def _verdicts(case: Case, rows: list[dict[str, Any]]) -> list[Verdict]:
    """Return how far each run was off, nothing where there is no schedule."""
    verdicts = []
    for row in rows:
        ranks, size = row["ranks"], row["size"]
        power_of_two = ranks & (ranks - 1) == 0
        algorithm = case.algorithm if power_of_two else case.otherwise or case.algorithm
        if "sent" in row and algorithm in SCHEDULES.get(case.collective, {}):
            schedule = build_schedule(case.collective, algorithm, ranks, size)
            verdicts.append(judge(np.array(row["sent"]), schedule.pair_bytes()))
    return verdicts


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
