"""Keep figures with the commit that they were measured at, and draw their history.

A script writes its figures with ``--json FILE``, one JSON object a line;

    python -m benchmarks.record FILE             appends them to history.jsonl
    python -m benchmarks.record --draw FILE.svg  draws each figure over the commits
    python -m benchmarks.record                  prints each figure's last values
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import textwrap
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HISTORY = Path(__file__).with_name("history.jsonl")
COLUMNS = 3
"""Of the drawing."""


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes
    ----------
    what : str
        Its name, the same in each run.
    value, low, high : float
        With the ends of its interval, NaN where there is none.
    predicted : float
        NaN where nothing was.
    least, most : float
        What is wanted, NaN for no limit.
    """

    what: str
    value: float
    low: float = math.nan
    high: float = math.nan
    predicted: float = math.nan
    least: float = math.nan
    most: float = math.nan

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
        spread = f"({self.low:.2f} to {self.high:.2f})" if self.low == self.low else ""
        model = f"predicted {self.predicted:.2f}" if self.predicted > 0 else ""
        row = f"{self.what:76} {self.value:6.2f} {spread:16} {model:15} {self.wanted}"
        return row.rstrip()


def write_figures(figures: Iterable[Figure], path: Path | None) -> None:
    """Print figures as they come, and append them to a file as JSON lines."""
    for figure in figures:
        print(figure, flush=True)
        if path:
            fields = {k: v for k, v in asdict(figure).items() if v == v}
            numbers = {k: float(f"{v:.4g}") for k, v in fields.items() if k != "what"}
            with path.open("a") as file:
                file.write(json.dumps({"what": figure.what, **numbers}) + "\n")


def read_lines(path: Path, keys: Iterable[str]) -> list[dict[str, Any]]:
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


def stamp() -> dict[str, str]:
    """Return when and where figures were measured, and the commit."""
    # A "+" after the commit: files were changed since.
    words = ("git", "describe", "--always", "--dirty=+", "--exclude=*")
    done = subprocess.run(
        words, cwd=HISTORY.parent, check=True, stdout=subprocess.PIPE, text=True
    )
    return {
        "commit": done.stdout.strip(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def append(source: Path, history: Path) -> int:
    """Append a script's figures to the history and return how many there are."""
    figures = read_lines(source, ("what", "value"))
    mark = stamp()
    with history.open("a") as file:
        file.writelines(json.dumps({**mark, **figure}) + "\n" for figure in figures)
    return len(figures)


def series(history: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the entries of each figure in order of time, by name and machine."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in read_lines(history, ("what", "value", "commit", "time", "machine")):
        found.setdefault(f"{entry['what']} [{entry['machine']}]", []).append(entry)
    return found


def quote(entry: dict[str, Any]) -> str:
    """Return an entry as README.md and docs/figures.md have it: a ratio."""
    if "low" not in entry:
        return f"{entry['value']:.2f}x"
    return f"{entry['value']:.2f}x ({entry['low']:.2f} to {entry['high']:.2f})"


def draw(history: Path, target: Path) -> None:
    """Draw each figure over the commits, with its interval and what is wanted."""
    from matplotlib.figure import Figure as Drawing

    found = series(history)
    rows = math.ceil(len(found) / COLUMNS)
    drawing = Drawing((5 * COLUMNS, 2.4 * rows), layout="constrained")
    all_axes = drawing.subplots(rows, COLUMNS, squeeze=False).flat
    for (name, entries), axes in zip(found.items(), all_axes, strict=False):
        values = [entry["value"] for entry in entries]
        ends = [
            [entry["value"] - entry.get("low", entry["value"]) for entry in entries],
            [entry.get("high", entry["value"]) - entry["value"] for entry in entries],
        ]
        axes.errorbar(range(len(values)), values, ends, fmt="o-", capsize=3)
        for key in ("least", "most"):
            if key in entries[-1]:
                axes.axhline(entries[-1][key], linestyle=":", color="gray")
        axes.set_xticks(range(len(values)), [entry["commit"] for entry in entries])
        axes.set_title("\n".join(textwrap.wrap(name, 60)), fontsize=7)
        axes.tick_params(labelsize=6)
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
    for axes in all_axes:
        axes.remove()
    drawing.savefig(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="?", type=Path, help="to append")
    parser.add_argument("--draw", type=Path, help="file for the drawing")
    parser.add_argument("--history", type=Path, default=HISTORY)
    options = parser.parse_args()
    if options.figures:
        print(f"{append(options.figures, options.history)} figures appended")
    elif options.draw:
        draw(options.history, options.draw)
    else:
        for name, entries in series(options.history).items():
            before = " ".join(f"{entry['value']:.2f}" for entry in entries[-8:-1])
            print(f"{name:100} {before} {quote(entries[-1])}  {entries[-1]['commit']}")


if __name__ == "__main__":
    main()
