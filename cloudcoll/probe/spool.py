"""Rows of a probe that is not finished, in a file that outlives it.

The first line says what is being measured: hosts and plan. Each other line is
one row as it was reported. A row that was being written when the machine went
down has no end of line, and is dropped. `rounds_left` says what is left to do.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import Any

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import write_atomic
from cloudcoll.hosts import Host
from cloudcoll.probe import frames
from cloudcoll.probe.frames import Frame, FrameError
from cloudcoll.probe.plan import ProbePlan, Round
from cloudcoll.probe.results import Results

SCHEMA = 1

KEPT = ("rtt", "flow", "starved")
"""Reports of measurements."""

Row = tuple[int, Frame]
"""Position of the host that reports, and its report."""


@contextlib.contextmanager
def spooling(
    path: Path | None,
    hosts: Sequence[Host],
    plan: ProbePlan,
    results: Results,
    resume: bool,
) -> Iterator[None]:
    """Keep what is added to `results` in a spool; first add what it holds already.

    Nothing is kept without a path, and a spool that got no row is gone at the end.
    With `resume` there is a spool to begin with. An UnusableError that passes through
    says where the rows are, if there are any.
    """
    if path is None:
        yield
        return
    rows = load_spool(path, hosts, plan, results) if resume else []
    with start_spool(path, hosts, plan, rows) as file:

        def record(host: int, frame: Frame) -> None:
            # Rounds that came of what was found are found again.
            if frame["slot"] < plan.count:
                add_row(file, (host, frame))

        results.record = record
        try:
            yield
        except UnusableError as error:
            done, planned = results.count
            if not done:
                raise
            raise UnusableError(
                f"{error}; {done} of {planned} measurements are in {path}: go on with "
                "the same command and --resume"
            ) from error
        finally:
            if not results.count[0]:
                path.unlink(missing_ok=True)


def read_row(line: bytes, kinds: Collection[str] = KEPT) -> Row:
    """Return the row that a line holds, of one of these kinds, or raise FrameError."""
    value = frames.parse(line)
    frame = frames.check(value)
    if frame["type"] not in kinds or type(value.get("host")) is not int:
        raise FrameError(f"no measurement: {line[:60]!r}")
    return value["host"], frame


def start_spool(
    path: Path, hosts: Sequence[Host], plan: ProbePlan, rows: Iterable[Row] = ()
) -> FileIO:
    """Write a spool that begins with `rows`; return it open for more.

    UnusableError if it can't be; a spool that was there is intact.
    """
    lines = [_line(_about(hosts, plan)), *map(_row_line, rows)]
    # Not buffered: a row that was added survives this process.
    return write_atomic(path, b"".join(lines)).open("ab", buffering=0)


def set_aside(path: Path) -> Path | None:
    """Keep the rows of a probe that will not be resumed; return where, if any.

    The new name ends in ``.old``.
    """
    old = path.with_name(f"{path.name}.old")
    try:
        with path.open("rb") as file:
            file.readline()
            if not file.readline().endswith(b"\n"):
                return None
        return path.replace(old)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableError(
            f"cannot set {path} aside as {old.name}: {error.strerror}"
        ) from error


def add_row(spool: FileIO, row: Row) -> None:
    """Add a row to a spool, or raise UnusableError; the rows before are intact."""
    line = _row_line(row)
    try:
        written = spool.write(line)
    except OSError as error:
        raise UnusableError(f"cannot write {spool.name!s}: {error.strerror}") from error
    if written != len(line):  # a part of it still fitted
        raise UnusableError(f"cannot write {spool.name!s}: the disk is full")


def load_spool(
    path: Path, hosts: Sequence[Host], plan: ProbePlan, results: Results
) -> list[Row]:
    """Add the rows that a probe left to `results`, and return them.

    Flows count only together with the others of their round. What got no reply,
    and what a host measured that was starved of CPU, is left to be measured again.
    UsageError if there is no spool, or it is of other hosts or another plan;
    UnusableError if it cannot be read, or holds what the plan did not ask for.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        raise UsageError(
            f"nothing to resume: there is no {path} (leave --resume out)"
        ) from None
    except OSError as error:
        raise UnusableError(f"cannot read {path}: {error.strerror}") from error
    try:
        _compare(path, frames.parse(lines[0] if lines else b""), _about(hosts, plan))
        rows = _whole([read_row(line) for line in lines[1:]], plan)
        for host, frame in rows:
            results.add(host, frame)
    except FrameError as error:
        raise UnusableError(
            f"{path} is damaged ({error}): leave --resume out"
        ) from error
    return rows


def _row_line(row: Row) -> bytes:
    host, frame = row
    return _line({"host": host, **frame})


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _about(hosts: Sequence[Host], plan: ProbePlan) -> dict[str, Any]:
    about = {
        "spool": SCHEMA,
        "names": [host.name for host in hosts],
        **plan.parameters(),
    }
    # JSON has lists where a plan has tuples.
    return dict(json.loads(_line(about)))


def _compare(path: Path, found: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(found, dict):
        raise FrameError("it does not say what was measured")
    for key, value in wanted.items():
        if found.get(key) != value:
            raise UsageError(
                f"{path} is of another probe: its {key} is {_short(found.get(key))}, "
                f"now it is {_short(value)} (ask for the same, or leave --resume out)"
            )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _whole(rows: list[Row], plan: ProbePlan) -> list[Row]:
    """Return the rows that need not be measured again: see `load_spool`."""
    planned = {round_.number: len(round_.pairs) for round_ in plan.rounds()}
    flows = Counter(frame["slot"] for _, frame in rows if frame["type"] == "flow")
    starved = {_meeting(row) for row in rows if row[1]["type"] == "starved"}
    spoilt = {slot for slot, _ in starved}

    def is_whole(row: Row) -> bool:
        slot = row[1]["slot"]
        if row[1]["type"] == "rtt":
            return row[1]["ns"] != [] and _meeting(row) not in starved
        return flows[slot] == planned.get(slot) and slot not in spoilt

    return [row for row in rows if row[1]["type"] != "starved" and is_whole(row)]


def _meeting(row: Row) -> tuple[int, frozenset[int]]:
    """Return the round and the two hosts, whichever of them reports."""
    host, frame = row
    return frame["slot"], frozenset((host, frame["peer"]))


AT_ONCE = 4096
"""Rounds that fit into one frame to an agent, at most."""


def rounds_left(
    plan: ProbePlan, missing: Mapping[int, Sequence[int]]
) -> list[list[Round]]:
    """Return the rounds of a plan that are left, by their own numbers.

    `missing` is as of `Results.missing`. Each list has rounds of one kind whose numbers
    follow each other, with `start` in seconds after the first.
    """
    left = []
    for slot in plan.rounds():
        reporter = 0 if slot.kind == "rtt" else 1
        who = missing.get(slot.number, ())
        if pairs := tuple(pair for pair in slot.pairs if pair[reporter] in who):
            left.append(replace(slot, pairs=pairs))
    runs = [list(run) for _, run in groupby(enumerate(left), _run_of)]
    return [
        [
            replace(slot, start=turn * plan.length(slot.kind))
            for turn, (_, slot) in enumerate(run)
        ]
        for run in runs
    ]


def _run_of(place: tuple[int, Round]) -> tuple[str, int, int]:
    """Return what rounds that follow each other have in common."""
    index, slot = place
    return slot.kind, slot.number - index, slot.number // AT_ONCE
