"""The figures that the documents quote, each from the record, and how to fill it.

`figures.md` beside this file has the text that the documents have between their
marks, with ``{NAME}`` for the last figure of that name in the record that was printed
by the last command named in its line or above. Only the values come from the record,
with their units and what their intervals are; nobody types them.

    python -m benchmarks.figures --check      says what of the documents differs
    python -m benchmarks.figures --write      writes it into them
    python -m benchmarks.figures --missing    lists the commands not measured yet
    python -m benchmarks.figures --measure    what `make figures` does: runs them

``{NAME@PART}`` is less of a figure: ``value``, ``low``, ``high`` or ``predicted``.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.record import (
    ROOT,
    Entry,
    NotRecordedError,
    clean_commit,
    entries,
    take,
)
from cloudcoll import units

TEMPLATE = Path(__file__).with_name("figures.md")
PAGES = ("README.md", "docs/figures.md")
BLOCK = re.compile(r"(<!-- figures: (\S+).*?-->\n)(.*?)(<!-- end of figures -->)", re.S)
PLACE = re.compile(r"\{([^{}@]+)(?:@(\w+))?\}")
COMMAND = re.compile(r"`(python (?:-m benchmarks\.|benchmarks/)[^`]+)`")
PROVENANCE = "{provenance}"
MISSING = "not measured on this version"
MINUTES = {
    "benchmarks.bench_time": 6,
    "benchmarks.bounds": 8,
    "benchmarks.bridged": 10,
    "benchmarks.daemon": 30,
    "benchmarks.daemon_crowd": 4,
    "benchmarks.demo": 3,
    "benchmarks.exchange": 3,
    "benchmarks.fabrics": 15,
    "benchmarks.findings": 25,
    "benchmarks.grid": 90,
    "benchmarks.hpcc": 50,
    "benchmarks.imports": 3,
    "benchmarks.memory": 5,
    "benchmarks.mpi4py_suite": 3,
    "benchmarks.mpi_probe": 5,
    "benchmarks.never_worse": 6,
    "benchmarks.optimum": 10,
    "benchmarks.orders": 20,
    "benchmarks.planted": 6,
    "benchmarks.prediction": 15,
    "benchmarks.probe_time": 5,
    "benchmarks.rings": 6,
    "benchmarks.scale": 4,
    "benchmarks.shim": 8,
    "benchmarks.simgrid.check": 7,
    "benchmarks.targets": 12,
    "benchmarks.tls_probe": 5,
    "benchmarks.tuned_program": 6,
    "benchmarks.tuning": 12,
    "benchmarks.workloads": 30,
}
"""Roughly, by module; of others two or three."""
FEW = 3
NEGLIGIBLE = 1e-4
"""Is written as 0."""
PATIENCE = 3
"""So many times that is waited."""


def record(root: Path = ROOT) -> dict[tuple[str, str], Entry]:
    """Return the last entry of each figure, by command and name."""
    return {(entry.get("command", ""), entry["what"]): entry for entry in entries(root)}


def shown(value: float, unit: str) -> str:
    """Return a value as people write it."""
    if unit == "s":
        return units.seconds(value)
    if unit == "x":
        return f"{value:.2f}x"
    digits = 2 if unit == "%" else 3
    value = value if abs(value) >= NEGLIGIBLE else 0.0
    short = f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return f"{short} {unit}".rstrip()


def quoted(entry: Entry, part: str | None = None) -> str:
    """Return a figure as documents have it, with its interval and what that is."""
    unit = entry.get("unit", "")
    if part:
        return shown(entry[part], unit)
    words = shown(entry["value"], unit)
    if kind := entry.get("interval", ""):
        ends = [shown(entry[key], unit) for key in ("low", "high")]
        suffix = words.lstrip("-0123456789.")
        if suffix and all(end.endswith(suffix) for end in ends):
            ends = [end.removesuffix(suffix) for end in ends]
        what = "" if kind == "95 %" else f"; {kind}"
        words += f" ({' to '.join(ends)}{what})"
    return ", ".join([words, *([entry["note"]] if "note" in entry else [])])


def blocks(text: str) -> dict[str, str]:
    """Return what is between a page's marks, by name."""
    return {name: body for _, name, body, _ in BLOCK.findall(text)}


def places(body: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each line of a block, with command and name of the figures in it."""
    command = ""
    for line in body.splitlines():
        # A row is of the command in it, or of the one above.
        command = (COMMAND.findall(line) or [command])[-1]
        found = [] if line == PROVENANCE else PLACE.findall(line)
        yield line, [(command, name) for name, _ in found]


def rendered(body: str, known: dict[tuple[str, str], Entry]) -> str:
    """Return a block with its figures."""
    lines = []
    for line, wanted in places(body):
        if line == PROVENANCE:
            lines += provenance(known)
            continue
        command = wanted[0][0] if wanted else ""
        # A cell of which one figure is missing is not measured, as a whole.
        cells = line.split("|") if line.startswith("|") else [line]
        lines.append("|".join(_filled(cell, command, known) for cell in cells))
    text = "".join(f"{line}\n" for line in lines)
    if found := re.search(r"\{[^}]*\}", text):
        raise ValueError(f"{TEMPLATE}: {found[0]} is no figure's name")
    return text


def _filled(cell: str, command: str, known: dict[tuple[str, str], Entry]) -> str:
    def fill(match: re.Match[str]) -> str:
        entry = known.get((command, match[1]))
        part = match[2] or "value"
        if entry is None or part not in entry:
            return MISSING
        return quoted(entry, match[2])

    filled = PLACE.sub(fill, cell)
    if MISSING in filled and filled != cell and cell.startswith(" "):
        return f" {MISSING} "
    return filled


def provenance(known: dict[tuple[str, str], Entry]) -> list[str]:
    """Return a table of the commands that are quoted: commit, day, machine."""
    rows = ["| command | commit | day | machine |", "|---|---|---|---|"]
    for command, names in quoted_names().items():
        had = [known[command, name] for name in names if (command, name) in known]
        for entry in had[-1:]:
            day = entry["time"].partition("T")[0]
            cells = (f"`{command}`", entry["commit"], day, entry["machine"])
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def quoted_names() -> dict[str, list[str]]:
    """Return the names of all quoted figures, by command, in the template's order."""
    found: dict[str, list[str]] = {}
    for body in blocks(TEMPLATE.read_text()).values():
        for _, wanted in places(body):
            for command, name in wanted:
                found.setdefault(command, []).append(name)
    return found


def page(text: str, known: dict[tuple[str, str], Entry]) -> str:
    """Return a document with its blocks as the template and the record have them."""
    templates = blocks(TEMPLATE.read_text())

    def write(match: re.Match[str]) -> str:
        return f"{match[1]}{rendered(templates[match[2]], known)}{match[4]}"

    return BLOCK.sub(write, text)


def differences(known: dict[tuple[str, str], Entry]) -> list[str]:
    """Return the lines in which documents say something else than the record."""
    lines: list[str] = []
    for name in PAGES:
        text = (ROOT / name).read_text()
        both = (text.splitlines(), page(text, known).splitlines())
        lines += difflib.unified_diff(*both, name, "the record", n=0, lineterm="")
    return lines


def todo(known: dict[tuple[str, str], Entry], commit: str) -> Iterator[str]:
    """Yield the commands of which a figure is missing, or of another commit."""
    for command, names in quoted_names().items():
        had = [known.get((command, name)) for name in dict.fromkeys(names)]
        if any(one is None or commit not in ("", one["commit"]) for one in had):
            yield command


def minutes(command: str) -> float:
    """Return how long a command takes, roughly."""
    return MINUTES.get(shlex.split(command)[2], FEW)


def left_words(commands: Sequence[str]) -> str:
    """Return how many commands are left, and roughly how long they take."""
    seconds = 60.0 * sum(map(minutes, commands))
    return (
        f"{units.count(len(commands), 'command')} left, about {units.seconds(seconds)}"
    )


def measure(commands: list[str], limit: float | None) -> int:
    """Run commands one after the other; return how many of them failed.

    Each is in the record as soon as it has ended: Ctrl-C loses only the one that runs.
    """
    failed = []
    print(left_words(commands))
    for number, command in enumerate(commands):
        print(f"\n[{number + 1}/{len(commands)}] {command}", flush=True)
        try:
            took = take(shlex.split(command), limit or PATIENCE * minutes(command))
        except NotRecordedError as why:
            failed.append(f"{command}: {why}")
        except KeyboardInterrupt:
            print(f"\nstopped: {left_words(commands[number:])}; the same goes on")
            return len(commands) - number + len(failed)
        else:
            names = {figure["what"] for figure in took}
            if unsaid := [one for one in quoted_names()[command] if one not in names]:
                failed.append(f"{command}: wrote no figure {unsaid[0]!r}")
        print(left_words(commands[number + 1 :]), flush=True)
    print("", *failed, f"{len(failed)} of {len(commands)} failed", sep="\n")
    return len(failed)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "write", "missing", "measure"):
        what.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--only", default="", help="commands that this regex finds")
    parser.add_argument("--minutes", type=float, help="that each command may take")
    parser.add_argument(
        "--again", action="store_true", help="also what is of another commit"
    )
    options = parser.parse_args()
    known = record()
    commit = ""
    if options.measure or options.again:
        try:
            now = clean_commit(ROOT)
        except NotRecordedError as why:
            sys.exit(f"figures: nothing can be measured: {why}")
        commit = now if options.again else ""
    commands = [one for one in todo(known, commit) if re.search(options.only, one)]
    if options.missing:
        for command in commands:
            print(f"{minutes(command):4g} min  {command}")
        print(left_words(commands))
    elif options.measure:
        return int(measure(commands, options.minutes) > 0)
    elif options.write:
        for name in PAGES:
            text = (ROOT / name).read_text()
            (ROOT / name).write_text(page(text, known))
    else:
        lines = differences(known)
        print(*lines, sep="\n")
        return int(bool(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
