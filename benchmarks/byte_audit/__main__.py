"""Count what real libraries send between hosts, and compare with our schedules.

Every algorithm that a library can be told to run is run in an emulated data
centre, with one rank per host or several; the kernel counts the bytes between
each two hosts.

    python benchmarks/byte_audit count openmpi > rows
    python benchmarks/byte_audit count mpich --python env/bin/python >> rows
    python benchmarks/byte_audit count openmpi --ranks 10 12 --local 2 >> rows
    python benchmarks/byte_audit table rows > docs/byte-audit.md

A row is a line of JSON, and has the bytes counted; the table is made of the
schedules as they are when it is made.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cases import CASES, Case
from launching import PROGRAMS, Start
from table import document

from cloudcoll import lab as labs

RANKS = (5, 8, 11, 12, 16)
MANY, LARGE = 2, 4 << 20
"""Calls that are counted of vectors below so many bytes; of others it is one."""
BARRIERS = 64
"""Barriers that are counted."""
LAB = "audit"
LAUNCHERS = {"mpich": "mpiexec", "openmpi": "mpirun"}


def chosen(library: str, only: Sequence[str], ranks: int, local: int) -> list[Case]:
    """Return the cases of a library for so many ranks, or those named CALL[:NAME]."""
    return [
        case
        for case in CASES[library]
        if case.fits(ranks, local) and (not only or not _names(case).isdisjoint(only))
    ]


def _names(case: Case) -> set[str]:
    """Return by which names a case can be asked for."""
    return {case.call, f"{case.call}:{case.algorithm}", f"{case.call}:{case.forced}"}


def count(
    start: Start, cases: Sequence[Case], lab: labs.Lab, ranks: int, local: int
) -> Iterator[dict[str, Any]]:
    """Run cases and yield a row for each; one that fails has an ``error``."""
    left = [(case, block * ranks) for case in cases for block in case.blocks]
    while left:
        lines, problem = start.run(lab, ranks, local, [_request(*one) for one in left])
        if not lines:
            raise SystemExit(f"byte_audit: {start.library} did not start: {problem}")
        library, *counts = lines
        if len(counts) < len(left):
            # What follows the one that failed is tried again.
            counts.append({"error": problem.rpartition("\n")[2]})
        for (case, size), counted in zip(left, counts, strict=False):
            named = {"program": start.library, "call": case.call, "forced": case.forced}
            asked = {"ranks": ranks, "local": local, "size": size, "root": case.root}
            yield library | named | asked | counted
        left = left[len(counts) :]


def _request(case: Case, size: int) -> dict[str, Any]:
    calls = MANY if size < LARGE else 1
    calls = calls if size else BARRIERS
    return {
        "call": case.call,
        "root": case.root,
        "settings": case.settings,
        "size": size,
        "calls": calls,
    }


def run(arguments: argparse.Namespace) -> None:
    """Bring a lab up and print the rows of all that was asked for."""
    library = arguments.library
    launcher = arguments.launcher or LAUNCHERS.get(library, "")
    start = Start(library, arguments.python, launcher, arguments.libmpi)
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDCOLL_HOME"] = home
        hosts = -(-max(arguments.ranks) // arguments.local)
        lab = labs.up(labs.quick((hosts,), preset="tuned"), arguments.lab)
        try:
            for ranks in arguments.ranks:
                cases = chosen(library, arguments.only, ranks, arguments.local)
                for row in count(start, cases, lab, ranks, arguments.local):
                    print(json.dumps(row), flush=True)
        finally:
            labs.down(arguments.lab)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    counting = commands.add_parser("count", help="run a library, print rows")
    counting.add_argument("library", choices=sorted(PROGRAMS))
    counting.add_argument("--python", default=sys.executable, help="has the library")
    counting.add_argument("--launcher", help="of the library")
    counting.add_argument("--libmpi", default="", help="the library's own file")
    counting.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    counting.add_argument("--local", type=int, default=1, help="ranks on each host")
    counting.add_argument("--lab", default=LAB, help="the lab's name")
    counting.add_argument("--only", nargs="+", default=(), metavar="CALL[:NAME]")
    table = commands.add_parser("table", help="print rows as Markdown")
    table.add_argument("rows", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "table":
        print("\n".join(document(arguments.rows)))
    else:
        # So that the lab goes down when the audit is stopped.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        run(arguments)


if __name__ == "__main__":
    main()
