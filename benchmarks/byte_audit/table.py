"""Rows of counted bytes as a document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cases import CASES, Case
from expected import expected, verdict_of
from verdict import HEADER, SHARE, SLACK, STRAY, Verdict

from cloudcoll import units
from cloudcoll.collectives import Schedule

Group = tuple[str, Case, int]
"""Library, what was called, ranks on a host."""

Judged = tuple[dict[str, Any], Schedule]

INTRODUCTION = Path(__file__).with_name("introduction.md")


def document(paths: Iterable[Path]) -> list[str]:
    """Return Markdown: what was done, and a line for each library and algorithm."""
    rows = [
        json.loads(line) for path in paths for line in path.read_text().splitlines()
    ]
    known = {
        (program, case.call, case.forced, case.root): case
        for program, cases in CASES.items()
        for case in cases
    }
    groups: dict[Group, list[dict[str, Any]]] = {}
    for row in rows:
        case = known[row["program"], row["call"], row["forced"], row.get("root", 0)]
        groups.setdefault((row["library"], case, row.get("local", 1)), []).append(row)
    schedules = {group: _schedules(group[1], groups[group]) for group in groups}
    verdicts = {group: list(map(_verdict, found)) for group, found in schedules.items()}
    judged = [verdict for found in verdicts.values() for verdict in found]
    return [
        INTRODUCTION.read_text().format(
            share=SHARE,
            slack=SLACK,
            stray=STRAY,
            least=HEADER[0],
            most=HEADER[1],
            rows=sum("sent" in row for row in rows),
            judged=len(judged),
            good=sum(verdict.good for verdict in judged),
            elsewhere=max(row.get("elsewhere", 0.0) for row in rows),
        ),
        "| library | call | forced | schedule | ranks | on a host | vector "
        "| farthest pair | stray | as scheduled |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(
            _line(group, groups[group], schedules[group], verdicts[group])
            for group in groups
        ),
    ]


def _line(
    group: Group,
    rows: list[dict[str, Any]],
    schedules: list[Judged],
    verdicts: list[Verdict],
) -> str:
    library, case, local = group
    names = dict.fromkeys(schedule.algorithm for _, schedule in schedules)
    root = f", root {case.root}" if case.root else ""
    sizes = [row["size"] for row in rows]
    cells = [
        *(library, case.call + root, case.forced or "nothing"),
        ", ".join(names or [case.algorithm]),
        " ".join(map(str, sorted({row["ranks"] for row in rows}))),
        str(local),
        f"{units.size(min(sizes))} to {units.size(max(sizes))}" if max(sizes) else "",
    ]
    errors = [row["error"] for row in rows if "error" in row]
    failed = f"; {len(errors)} failed: {errors[0]}" if errors else ""
    if any("unavailable" in row for row in rows):
        return _joined([*cells, "", "", "not in this version"])
    good = sum(verdict.good for verdict in verdicts)
    error = max((verdict.error for verdict in verdicts), default=0.0)
    stray = max((verdict.stray for verdict in verdicts), default=0.0)
    said = f"{good} of {len(verdicts)}{failed}"
    return _joined([*cells, f"{error:.2%}", f"{stray:.0f} B", said])


def _schedules(case: Case, rows: list[dict[str, Any]]) -> list[Judged]:
    """Return the runs that were counted, each with what it should have sent."""
    return [(row, expected(case, row)) for row in rows if "sent" in row]


def _verdict(judged: Judged) -> Verdict:
    row, schedule = judged
    return verdict_of(schedule, row)


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
