"""What a file of results says, as figures for the record: see `figures`."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloudcoll import units

Part = dict[str, Any]
Row = dict[str, Any]
"""A figure with the keys of ``benchmarks/record.py``, which a bare machine lacks."""

WANTED_HOSTS = 8
"""Of which something is asked."""


def figures(parts: list[Part]) -> Iterator[Row]:
    """Yield the figures of all parts, in the order of their numbers of hosts."""
    wrong = sum(row["wrong"] for part in parts for row in part["times"])
    calls = sum(row["repeats"] for part in parts for row in part["times"])
    checks = [row["good"] for part in parts for row in part["check"]]
    if parts:
        yield _row("wrong elements of all results", wrong, most=0)
        yield _row("calls whose results were looked at", calls)
    if checks:
        failed = len(checks) - sum(checks)
        yield _row("failed checks", failed, unit=f"of {len(checks)}", most=0)
    for hosts in dict.fromkeys(part["hosts"] for part in parts):
        of = {part["variant"]: part for part in parts if part["hosts"] == hosts}
        for found in (*_bytes(of), *_gains(of), *_shim(of), *_steps(of), *_errors(of)):
            yield found | {"what": f"{hosts} hosts, {found['what']}"}


def _row(what: str, value: float, **more: Any) -> Row:
    return {"what": what, "value": value, **more}


def _over(what: str, values: list[float], **more: Any) -> Row:
    """Return a ratio's median, with the least and the most of several."""
    found = _row(what, statistics.median(values), unit="x", **more)
    if len(values) > 1:
        ends = {"low": min(values), "high": max(values)}
        found |= {**ends, "interval": f"range of {len(values)}"}
    return found


def _seconds(part: Part, op: str, size: int) -> dict[str, float]:
    """Return order -> seconds of a call."""
    return {
        row["order"]: row["seconds"]
        for row in part["times"]
        if row["op"] == op and row["bytes"] == size
    }


def _bytes(of: dict[str, Part]) -> Iterator[Row]:
    for name, part in of.items():
        if part["bytes"] and name in ("ring", "tree"):
            size = part["bytes"][0]["bytes"]
            off = 100 * max(row["host_off"] for row in part["bytes"])
            limit = {"most": 5.0} if size == part["largest"] else {}
            what = f"{name} of {units.size(size)}: bytes of a host"
            yield _row(f"{what}, off the schedule at most", off, unit="%", **limit)


def _gains(of: dict[str, Part]) -> Iterator[Row]:
    for name, part in of.items():
        for op, size in dict.fromkeys((r["op"], r["bytes"]) for r in part["times"]):
            seconds = _seconds(part, op, size)
            ours = seconds.pop("cloudcoll", 0.0)
            random = [s / ours for order, s in seconds.items() if "random" in order]
            what = f"{name}, {op} of {units.size(size)}"
            asked = (name, op, part["hosts"]) == ("ring", "allreduce", WANTED_HOSTS)
            limit = {"least": 2.0} if asked and size == part["largest"] else {}
            if ours and random:
                yield _over(f"{what}: random over ours", random, **limit)
            if ours and "given" in seconds:
                yield _over(f"{what}: given over ours", [seconds["given"] / ours])


def _shim(of: dict[str, Part]) -> Iterator[Row]:
    if not {"ring", "shim"} <= of.keys():
        return
    for size in dict.fromkeys(row["bytes"] for row in of["shim"]["times"]):
        ours = _seconds(of["ring"], "allreduce", size).get("cloudcoll")
        shimmed = _seconds(of["shim"], "allreduce", size).get("given")
        limit = {"most": 1.1} if size == of["shim"]["largest"] else {}
        if ours and shimmed:
            what = f"allreduce of {units.size(size)}: shim over launch placement"
            yield _over(what, [shimmed / ours], **limit)


def _steps(of: dict[str, Part]) -> Iterator[Row]:
    seconds = {
        (name, row["step"], row["order"]): row["seconds"]
        for name, part in of.items()
        for row in part["step"]
    }
    for kind in ("ddp", "fsdp"):
        given = seconds.get(("ring", kind, "given"))
        for name, order, words in (
            ("ring", "cloudcoll", "given over ours"),
            ("shim", "given", "without the shim over with it"),
        ):
            ours = seconds.get((name, kind, order))
            if given and ours:
                yield _over(f"a step of {kind}: {words}", [given / ours])


def _errors(of: dict[str, Part]) -> Iterator[Row]:
    for name, part in of.items():
        off = [
            100 * abs(row["predicted"] / row["seconds"] - 1)
            for row in part["times"]
            if "predicted" in row and row["bytes"] == part["largest"]
        ]
        if off:
            what = (
                f"{name}, allreduce of {units.size(part['largest'])}: seconds predicted"
            )
            yield _row(f"{what}, off by: median", statistics.median(off), unit="%")
            yield _row(f"{what}, off by: worst", max(off), unit="%")


def told(row: Row) -> str:
    """Return a figure in words."""
    words = f"{row['what']}: {row['value']:.3g} {row.get('unit', '')}".rstrip()
    if "least" in row:
        words += f" (at least {row['least']:g})"
    if "most" in row:
        words += f" (at most {row['most']:g})"
    return words


def recorded(paths: list[Path]) -> Iterator[Row]:
    """Yield figures of files, each with where, when and at which commit it was run."""
    for path in paths:
        found = json.loads(path.read_text())
        stamp = {key: found[key] for key in ("commit", "time", "machine")}
        for row in figures(found["parts"]):
            short = {k: float(f"{v:.4g}") for k, v in row.items() if type(v) is float}
            yield row | short | stamp
