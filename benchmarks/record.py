"""The record of figures: what was measured, by which command, at which commit.

    python -m benchmarks.record python -m benchmarks.speedup   runs it, keeps figures
    python -m benchmarks.record --draw FILE.svg                draws all over commits
    python -m benchmarks.record                                prints the last of each

The command is run with ``--json FILE``, to which it writes a JSON object a line
(`write_figures`). Its figures are kept in history.jsonl only if the checkout is a
clean commit before and after, and the command ends well.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAME = "benchmarks/history.jsonl"
"""The record, from the root of the repository."""
COLUMNS = 3
"""Of the drawing."""
GRACE_S = 60.0
"""For a command that is told to stop: labs have to come down."""
Entry = dict[str, Any]


class NotRecordedError(Exception):
    """Why a command's figures are not in the record, in one line."""


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes
    ----------
    what : str
        Its name, the same in each run of a command.
    value, low, high : float
        With the ends of its interval, NaN where there is none.
    predicted : float
        NaN where nothing was.
    least, most : float
        What is wanted, NaN for no limit.
    unit : str
        ``s``, ``x`` (a ratio), ``%``, ``MiB``, ``of 20`` and the like; empty: a number.
    interval : str
        What `low` and `high` are: ``95 %`` (of the median), ``range of 5`` (least and
        most of so many), ``quartiles of 30``.
    note : str
        Said beside the value, such as ``the same order``.
    """

    what: str
    value: float
    low: float = math.nan
    high: float = math.nan
    predicted: float = math.nan
    least: float = math.nan
    most: float = math.nan
    unit: str = ""
    interval: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if (self.low == self.low) != bool(self.interval):
            raise ValueError(f"{self.what}: its interval has ends and says what it is")

    @property
    def reached(self) -> bool:
        """Whether it is as wanted."""
        return not (self.value < self.least or self.value > self.most)

    @property
    def wanted(self) -> str:
        """What is wanted, and whether it is reached; empty for no limit."""
        limits = (("at least", self.least), ("at most", self.most))
        words = [f"{word} {limit:g}" for word, limit in limits if limit == limit]
        verdict = "reached" if self.reached else "MISSED"
        return f"{verdict}: {' and '.join(words)}" if words else ""

    def __str__(self) -> str:
        """Return a line of a table."""
        spread = f"({self.low:.4g} to {self.high:.4g}; {self.interval})"
        model = f"predicted {self.predicted:.4g}"
        words = [f"{self.what:76} {self.value:8.4g} {self.unit:4}"]
        words += [spread] * bool(self.interval) + [model] * (self.predicted > 0)
        return " ".join([*words, self.note, self.wanted]).rstrip()


def median_of(what: str, values: Iterable[float], unit: str, **more: Any) -> Figure:
    """Return the median of measurements as a figure, with an interval.

    From six measurements on this is the 95 % interval of the median by order
    statistics (of a binomial's quantiles; Conover 1999, 3.2), which makes no
    assumption. Fewer have no such interval: it is the least and the most of them.
    """
    ordered = sorted(values)
    number, place, below = len(ordered), 0, 0.0
    if number < 2:
        return Figure(what, ordered[0], unit=unit, **more)
    while (below := below + math.comb(number, place) / 2**number) <= 0.025:
        place += 1
    kind = "95 %" if place else f"range of {number}"
    place = max(place - 1, 0)
    middle, low, high = statistics.median(ordered), ordered[place], ordered[-1 - place]
    return Figure(what, middle, low, high, unit=unit, interval=kind, **more)


def json_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that every script has whose figures are quoted."""
    parser.add_argument("--json", type=Path, help="append the figures to this file")


def write_figures(figures: Iterable[Figure], path: Path | None) -> None:
    """Print figures as they come, and append them to a file as JSON lines."""
    for figure in figures:
        print(figure, flush=True)
        if path:
            fields = {k: v for k, v in asdict(figure).items() if v == v and v != ""}
            short = {
                key: value if isinstance(value, str) else float(f"{value:.4g}")
                for key, value in fields.items()
            }
            with path.open("a") as file:
                file.write(json.dumps(short) + "\n")


def read_lines(path: Path, keys: Iterable[str]) -> list[Entry]:
    """Read JSON lines that have all of these keys.

    Raises
    ------
    SystemExit
        A line is no such object: half of one, or another file's.
    """
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = json.loads(line)
            entries.append({**entry, **{key: entry[key] for key in keys}})
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path}:{number}: no figure: {error!r}") from None
    return entries


def git(root: Path, *words: str) -> str:
    """Return what git prints in a repository."""
    done = subprocess.run(
        ("git", *words), cwd=root, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def clean_commit(root: Path) -> str:
    """Return the commit that is checked out.

    Raises
    ------
    NotRecordedError
        A file is not as it is in that commit. The record itself may differ.
    """
    lines = git(root, "status", "--porcelain").splitlines()
    if changed := [line[3:] for line in lines if line[3:] != NAME]:
        raise NotRecordedError(
            f"{changed[0]} is not as in the last commit ({len(changed)} such files): "
            "commit first, since a figure belongs to a commit"
        )
    return git(root, "rev-parse", "--short=12", "HEAD").strip()


def unknown_commits(root: Path = ROOT) -> list[str]:
    """Return the commits in the record that are no part of this history."""
    known = git(root, "rev-list", "HEAD").split()
    named = dict.fromkeys(entry["commit"] for entry in entries(root))
    return [name for name in named if not any(full.startswith(name) for full in known)]


def entries(root: Path = ROOT) -> list[Entry]:
    """Return all of the record, the oldest first."""
    if not (root / NAME).exists():
        return []
    return read_lines(root / NAME, ("what", "value", "commit", "time", "machine"))


def take(command: Sequence[str], minutes: float, root: Path = ROOT) -> list[Entry]:
    """Run a command, and append its figures to the record.

    Parameters
    ----------
    command : sequence of str
        As one types it; ``python`` is the one that runs this.
    minutes : float
        After which it is stopped.

    Raises
    ------
    NotRecordedError
        The checkout is not clean, or the command failed, took too long or wrote
        nothing. Nothing is appended then.
    """
    commit = clean_commit(root)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures"
        _run([*command, "--json", str(path)], minutes, root)
        if clean_commit(root) != commit:
            raise NotRecordedError("another commit was checked out while it ran")
        if not path.exists():
            raise NotRecordedError("it wrote no figures")
        figures = read_lines(path, ("what", "value"))
    stamp = {
        "commit": commit,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "command": shlex.join(command),
    }
    with (root / NAME).open("a") as file:
        file.writelines(json.dumps({**stamp, **figure}) + "\n" for figure in figures)
    return figures


def _run(argv: list[str], minutes: float, root: Path) -> None:
    beside = Path(sys.executable).parent
    if argv[0] == "python":
        argv[0] = sys.executable
    env = {**os.environ, "PATH": f"{beside}:{os.environ['PATH']}"}
    with subprocess.Popen(argv, cwd=root, env=env, start_new_session=True) as process:
        try:
            process.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            raise NotRecordedError(f"it took more than {minutes:g} minutes") from None
        finally:
            _stop(process)
    if process.returncode:
        raise NotRecordedError(f"it ended with exit code {process.returncode}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a command that still runs, and whatever it has left behind."""
    if process.poll() is None:
        # As Ctrl-C does, so that it takes its lab down.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # nothing was left
    process.wait()


def series(root: Path = ROOT) -> dict[str, list[Entry]]:
    """Return the entries of each figure in order of time, by name and machine."""
    found: dict[str, list[Entry]] = {}
    for entry in entries(root):
        found.setdefault(f"{entry['what']} [{entry['machine']}]", []).append(entry)
    return found


def draw(target: Path) -> None:
    """Draw each figure over the commits, with its interval and what is wanted."""
    from matplotlib.figure import Figure as Drawing

    found = series()
    rows = math.ceil(len(found) / COLUMNS)
    drawing = Drawing((5 * COLUMNS, 2.4 * rows), layout="constrained")
    all_axes = drawing.subplots(rows, COLUMNS, squeeze=False).flat
    for (name, all_), axes in zip(found.items(), all_axes, strict=False):
        values = [entry["value"] for entry in all_]
        ends = [
            [entry["value"] - entry.get("low", entry["value"]) for entry in all_],
            [entry.get("high", entry["value"]) - entry["value"] for entry in all_],
        ]
        axes.errorbar(range(len(values)), values, ends, fmt="o-", capsize=3)
        for key in ("least", "most"):
            if key in all_[-1]:
                axes.axhline(all_[-1][key], linestyle=":", color="gray")
        axes.set_xticks(range(len(values)), [entry["commit"] for entry in all_])
        axes.set_title("\n".join(textwrap.wrap(name, 60)), fontsize=7)
        axes.tick_params(labelsize=6)
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
    for axes in all_axes:
        axes.remove()
    drawing.savefig(target)


def main(root: Path = ROOT) -> None:
    # So that the command is stopped, too.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="to run and keep")
    parser.add_argument("--minutes", type=float, default=120, help="that it may take")
    parser.add_argument("--draw", type=Path, help="file for the drawing")
    options = parser.parse_args()
    if options.command:
        try:
            figures = take(options.command, options.minutes, root)
        except NotRecordedError as why:
            sys.exit(f"record: nothing was kept: {why}")
        print(f"{len(figures)} figures kept in {NAME}")
    elif options.draw:
        draw(options.draw)
    else:
        for name, all_ in series().items():
            before = " ".join(f"{entry['value']:g}" for entry in all_[-8:-1])
            last = all_[-1]
            value = f"{last['value']:g} {last.get('unit', '')}"
            print(f"{name:100} {before} {value}  {last['commit']}")


if __name__ == "__main__":
    main()
