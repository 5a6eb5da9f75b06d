"""Rows of counted bytes as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from verdict import judge

from cloudcoll.report import units
from cloudcoll.schedule import SCHEDULES, build_schedule


def read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the rows of files."""
    for path in paths:
        for line in path.read_text().splitlines():
            yield json.loads(line)


def table_lines(paths: Iterable[Path]) -> list[str]:
    """Return a Markdown table: one line per library and algorithm."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in read(paths):
        key = tuple(row[k] for k in ("library", "collective", "forced", "algorithm"))
        groups.setdefault(key, []).append(row)
    return [
        "| library | collective | forced | schedule | ranks | vector "
        "| worst pair | stray | as scheduled |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(key, rows) for key, rows in groups.items()),
    ]


def _line(key: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    _, collective, _, algorithm = key
    ranks = sorted({row["ranks"] for row in rows})
    sizes = [row["size"] for row in rows]
    cells = [
        *key,
        " ".join(map(str, ranks)),
        f"{units.size(min(sizes))} to {units.size(max(sizes))}",
    ]
    if algorithm not in SCHEDULES.get(collective, {}):
        return _joined([*cells, "", "", "no schedule"])
    verdicts = []
    for row in rows:
        if "sent" in row:
            schedule = build_schedule(collective, algorithm, row["ranks"], row["size"])
            verdicts.append(judge(np.array(row["sent"]), schedule.pair_bytes()))
    good = sum(verdict.good for verdict in verdicts)
    failed = len(rows) - len(verdicts)
    return _joined(
        [
            *cells,
            f"{max((v.error for v in verdicts), default=np.nan):.2%}",
            units.size(max((v.stray for v in verdicts), default=np.nan)),
            f"{good} of {len(verdicts)}" + f", {failed} did not run" * bool(failed),
        ]
    )


def _joined(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
