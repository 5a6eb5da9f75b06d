"""Rows of counted bytes as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case
from verdict import Verdict, judge

from cloudcoll.report import units
from cloudcoll.schedule import SCHEDULES, build_schedule


def table_lines(paths: Iterable[Path]) -> list[str]:
    """Return a Markdown table: a line for each library and algorithm."""
    known = {(p, c.call, c.forced): c for p, cases in CASES.items() for c in cases}
    groups: dict[tuple[str, Case], list[dict[str, Any]]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            case = known[row["program"], row["call"], row["forced"]]
            groups.setdefault((row["library"], case), []).append(row)
    return [
        "| library | call | forced | schedule | ranks | vector | farthest pair "
        "| stray | as scheduled |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(library, case, rows) for (library, case), rows in groups.items()),
    ]


def _line(library: str, case: Case, rows: list[dict[str, Any]]) -> str:
    ranks = sorted({row["ranks"] for row in rows})
    sizes = [row["size"] for row in rows]
    cells = [
        *(library, case.call, case.forced, case.algorithm),
        " ".join(map(str, ranks)),
        f"{units.size(min(sizes))} to {units.size(max(sizes))}",
    ]
    counted = [row for row in rows if "sent" in row]
    failed = f", {len(rows) - len(counted)} failed" * (len(counted) < len(rows))
    if case.algorithm not in SCHEDULES.get(case.collective, {}):
        return _joined([*cells, "", "", f"no schedule{failed}"])
    verdicts = [_verdict(case, row) for row in counted]
    good = sum(verdict.good for verdict in verdicts)
    error = max((verdict.error for verdict in verdicts), default=np.nan)
    stray = max((verdict.stray for verdict in verdicts), default=np.nan)
    said = f"{good} of {len(verdicts)}{failed}"
    return _joined([*cells, f"{error:.2%}", f"{stray:.0f} B", said])


def _verdict(case: Case, row: dict[str, Any]) -> Verdict:
    ranks, size = row["ranks"], row["size"]
    power_of_two = ranks & (ranks - 1) == 0
    other = "" if power_of_two else case.otherwise
    algorithm = other or case.algorithm
    schedule = build_schedule(case.collective, algorithm, ranks, size)
    return judge(np.array(row["sent"]), schedule.pair_bytes())


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
