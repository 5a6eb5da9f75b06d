"""What a tuning chose, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudcoll.report import units
from cloudcoll.report.maps import map_json
from cloudcoll.tune.answer import Answer, Row

HEAD = ("collective", "sizes", "the library's own", "chosen", "gain")


def tuning_lines(answer: Answer) -> list[str]:
    """Return the order, a table of the choices, and what both should gain."""
    rank_map = answer.rank_map
    tuning = rank_map.tuning
    assert tuning is not None, "an answer carries a tuning"
    return [
        f"{answer.name} by {tuning.library}, {tuning.ranks} ranks on "
        f"{len(rank_map.order)} hosts, snapshot {rank_map.snapshot[:12] or '?'}",
        "order: " + " ".join(rank_map.order),
        "",
        *_table([HEAD, *map(_cells, answer.rows)]),
        "",
        *gain_lines(answer),
        *([f"warning: {rank_map.assumption}"] if rank_map.assumption else []),
    ]


def gain_lines(answer: Answer) -> list[str]:
    """Return what order alone, and order and algorithms, should gain."""
    how = "measured" if answer.measured else "predicted"
    if not answer.tuned:
        return []
    lines = [
        f"{name:<22}  {units.seconds(seconds):>9}  {answer.given / seconds:5.2f}x {how}"
        for name, seconds in (
            ("as it runs now", answer.given),
            ("order alone", answer.ordered),
            ("order and algorithms", answer.tuned),
        )
    ]
    if not any(row.range.algorithm for row in answer.rows):
        lines += ["", "no other algorithm is surely faster: all stay the library's own"]
    return lines


def tuning_json(answer: Answer) -> dict[str, Any]:
    """Return the map as its file has it, with seconds of all calls and the table."""
    return {
        **map_json(answer.rank_map),
        "gains": {
            "given": answer.given,
            "ordered": answer.ordered,
            "tuned": answer.tuned,
            "measured": answer.measured,
        },
        "choices": [
            {
                "collective": row.range.collective,
                "least": row.range.least,
                "most": row.most,
                "own": list(row.own),
                "algorithm": row.range.algorithm or None,
                "parameters": dict(row.range.parameters),
                "gain": row.gain,
                "measured": row.range.measured,
            }
            for row in answer.rows
        ],
    }


def _cells(row: Row) -> tuple[str, ...]:
    """Return the words of one line of the table."""
    one = row.range
    told = [
        f"{name} {units.size(value) if name == 'segment' else value}"
        for name, value in one.parameters.items()
        if value
    ]
    chosen = " ".join([one.algorithm, *([f"({', '.join(told)})"] if told else [])])
    gain = f"{row.gain:.2f}x {'measured' if one.measured else 'predicted'}"
    return (
        one.collective,
        _sizes(row),
        ", ".join(row.own),
        chosen or "its own",
        gain if one.algorithm else "",
    )


def _sizes(row: Row) -> str:
    """Return ``up to 24 KiB``, ``24 KiB to 1 MiB``, ``from 1 MiB``, ``all``."""
    least, most = row.range.least, row.most
    if most is None:
        return f"from {units.size(least)}" if least else "all"
    if not least:
        return f"up to {units.size(most)}"
    return f"{units.size(least)} to {units.size(most)}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
