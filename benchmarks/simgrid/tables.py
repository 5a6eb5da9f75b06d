"""The page of the scale study: a table for each number of hosts, and a plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ORDERS = ("given", "sorted", "random", "grouped", "cloudcoll", "regrouped")
HEAD = """# Scale study

Two MPI programs on simulated networks:
`benchmarks/simgrid/study.py` runs them under SMPI, once in each order of hosts.
Milliseconds of a call (of 1 MiB) or of an iteration of the stencil, without
computation; the last columns are those over CloudColl's.

* *2:1*, *4:1*, *8:1*: racks of 5 to 11 hosts, eight of whose cards can send that many
  times what the rack's uplink carries; pods of four racks at 2:1. CloudColl has this
  very tree.
* *fat-tree*: leaf switches at 2:1; each destination has its spine (D-mod-k).
  *dragonfly*: minimal routes over single cables. CloudColl has a tree with the sum of a
  group's cables as its uplink, which is not how a single route sees them.
* Names have nothing to do with places: *given*, *sorted* and *random* are three deals.
"""


Runs = dict[str, dict[str, float]]
"""Order -> `seconds` and `predicted`."""
Cases = dict[tuple[int, str, str], Runs]
"""Hosts, program, platform -> runs."""


def read(rows: Path) -> Cases:
    """Return what a JSON lines file has, nothing if it is not there."""
    cases: Cases = {}
    for line in rows.read_text().splitlines() if rows.exists() else ():
        row = json.loads(line)
        case = cases.setdefault((row["hosts"], row["program"], row["platform"]), {})
        case[row["order"]] = {key: row[key] for key in ("seconds", "predicted")}
    return cases


def write(rows: Path, docs: Path) -> None:
    """Write scale-study.md and scale-study.svg; a later row of a case counts."""
    cases: dict[tuple[int, str, str], dict[str, Any]] = {}
    for line in rows.read_text().splitlines():
        case = json.loads(line)
        cases[case["hosts"], case["program"], case["platform"]] = case
    parts = [HEAD, "![Gains over the order given](scale-study.svg)\n"]
    for hosts in sorted({key[0] for key in cases}):
        mine = [case for key, case in cases.items() if key[0] == hosts]
        parts.append(f"## {hosts} hosts\n\n{table(mine)}\n")
    (docs / "scale-study.md").write_text("\n".join(parts))
    draw(list(cases.values()), docs / "scale-study.svg")


def table(cases: list[dict[str, Any]]) -> str:
    head = ["program", "network", *ORDERS, *(f"{name} /" for name in ORDERS[:3])]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * 7]
    for case in sorted(cases, key=lambda case: case["program"]):
        seconds = [case["seconds"][name] for name in ORDERS]
        times = [f"{1e3 * taken:.3g}" for taken in seconds]
        gains = [f"{taken / seconds[3]:.2f}x" for taken in seconds[:3]]
        words = [case["program"], case["platform"], *times, *gains]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def draw(cases: list[dict[str, Any]], path: Path) -> None:
    """Draw the gain over the order given, a panel for each program."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "scale study"
    programs = sorted({case["program"] for case in cases})
    kinds = list(dict.fromkeys(case["platform"] for case in cases))
    figure = Figure(figsize=(2.6 * len(programs), 3.2), layout="constrained")
    panels = figure.subplots(1, len(programs), sharey=True, squeeze=False)[0]
    for panel, program in zip(panels, programs, strict=True):
        for kind in kinds:
            mine = [
                c for c in cases if (c["program"], c["platform"]) == (program, kind)
            ]
            mine.sort(key=lambda case: case["hosts"])
            gains = [c["seconds"]["given"] / c["seconds"]["cloudcoll"] for c in mine]
            panel.plot([c["hosts"] for c in mine], gains, "o-", label=kind)
        panel.axhline(1.0, color="grey", linewidth=0.8)
        panel.set_xscale("log", base=2)
        panel.set_title(program, fontsize=9)
        panel.set_xlabel("hosts")
    panels[0].set_ylabel("order given / CloudColl's")
    panels[0].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})
