"""The page of the scale study: what it found, a table for each size, and a plot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

ORDERS = ("given", "sorted", "random", "grouped", "cloudcoll", "regrouped")
DEALS = ORDERS[:3]
GREY = "#808080"
SLOWER = 0.97
"""Of a gain: what is named."""
HEAD = """# Scale study

MPI programs on simulated networks of 64, 256 and 1024 hosts, with one rank per host.
`benchmarks/simgrid/study.py` runs each under SMPI (SimGrid 3.32), once in each order.
`collectives.c` makes one call of 1 MiB in all. `stencil.c` is a solver by conjugate
gradients; three of its iterations are timed (edges of 2 KiB, two sums of 8 bytes).

* *2:1*, *4:1*, *8:1* are trees of racks of 5 to 11 hosts. Eight cards can send that
  many times what their rack's uplink carries. Pods of four racks are at 2:1.
* *fat-tree* has leaf switches at 2:1, and a fixed spine for each destination (D-mod-k).
  *dragonfly* has minimal routes over single cables.
* *given*, *sorted* and *random* are three random deals, since names have nothing to do
  with places. *grouped* is the order of someone who knows the cables, group by group.
* *cloudcoll* is what `solve` makes of the order given, *from grouped* what it makes of
  grouped. No probe is involved: `solve` has the very tree of the first three networks,
  and for the others a tree whose uplinks are the sums of a group's cables. A tree can't
  say which way a message takes.

All figures here are of the rows in `benchmarks/simgrid/study.jsonl`, and a test
compares them. They are simulated, so they are the same on any machine.

Not simulated are computation, the time software takes for a message, TCP's windows and
losses, adaptive routes, and other jobs.
"""
TAIL = """## Where CloudColl's order was slower

* *fat-tree*, recursive doubling: with D-mod-k, ranks numbered like leaves never meet
  at a spine. CloudColl spreads what leaves a leaf evenly over steps, so that the leaf's
  cables together are never short; but each message has its fixed cable, and single
  cables are. Where routes are fixed, `run --validate` measures both orders and takes
  the faster.
* *dragonfly*, recursive doubling: in a step all hosts of a group may talk to one other
  group, to which four cables lead, while the tree's uplink stands for the cables to all
  groups. A random deal spreads these messages; at 1024 hosts each deal is faster. Here,
  too, `--validate` finds out.

*Rabenseifner* of 1024 hosts and the *stencil*, whose ranks begin the next iteration as
soon as they are done with one, were slower than grouped while the cost model alone
judged them; now flows judge them, too. How far predicted seconds of the stencil are off
is in [figures.md](figures.md#modelling-and-predicting), both ways.
"""
Runs = dict[str, dict[str, float]]
"""Order -> `seconds` and `predicted`."""
Cases = dict[tuple[int, str, str], Runs]
"""Hosts, network, program -> runs."""


def read(rows: Path) -> Cases:
    """Return what a JSON lines file has, nothing if it is not there."""
    cases: Cases = {}
    for line in rows.read_text().splitlines() if rows.exists() else ():
        row = json.loads(line)
        case = cases.setdefault((row["hosts"], row["platform"], row["program"]), {})
        case[row["order"]] = {key: row[key] for key in ("seconds", "predicted")}
    return cases


def write(rows: Path, docs: Path) -> None:
    """Write scale-study.md and scale-study.svg."""
    (docs / "scale-study.md").write_text(page(rows))
    draw(solved(rows), docs / "scale-study.svg")


def solved(rows: Path) -> Cases:
    """Return the cases for which CloudColl's order was run."""
    return {key: case for key, case in read(rows).items() if "cloudcoll" in case}


def page(rows: Path) -> str:
    """Return what scale-study.md says."""
    cases = solved(rows)
    parts = [HEAD, "![Gains over the order given](scale-study.svg)\n", found(cases)]
    kinds = len({key[1:] for key in cases})
    for hosts in sorted({key[0] for key in cases}):
        mine = {key: case for key, case in cases.items() if key[0] == hosts}
        parts.append(f"## {hosts} hosts\n\n{len(mine)} of {kinds} cases were run.")
        parts.append(f"{table(mine)}\n")
    return "\n".join([*parts, TAIL])


def gain(case: Runs, order: str, ours: str) -> float:
    """Return how many times faster ours is; NaN where one of them was not run."""
    if order in case and ours in case:
        return case[order]["seconds"] / case[ours]["seconds"]
    return np.nan


def found(cases: Cases) -> str:
    """Return the gains over all cases, and how far off predictions were."""
    lines = ["| | runs | least | median | most | slower by over 3 % |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    for order, ours in (*((name, "cloudcoll") for name in DEALS), ORDERS[3::2]):
        gains = {key: gain(case, order, ours) for key, case in cases.items()}
        known = {key: ratio for key, ratio in gains.items() if np.isfinite(ratio)}
        spread = [f"{f(list(known.values())):.2f}x" for f in (min, np.median, max)]
        slower = [
            f"{program}, {hosts}, {kind}: {ratio:.2f}x"
            for (hosts, kind, program), ratio in sorted(known.items())
            if ratio < SLOWER
        ]
        words = [f"over {order}", str(len(known)), *spread, "; ".join(slower) or "none"]
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join([*lines, "", off(cases)])


def off(cases: Cases) -> str:
    """Return by how much the cost model's seconds were off, in the median."""
    parts = []
    for words, trees in (("the trees", True), ("fat tree and dragonfly", False)):
        some = [case for key, case in cases.items() if (":" in key[1]) == trees]
        runs = [run for case in some for run in case.values()]
        errors = [abs(run["predicted"] / run["seconds"] - 1) for run in runs]
        parts.append(f"{100 * np.median(errors):.1f} % on {words} ({len(runs)} runs)")
    return f"The cost model's seconds were off in the median by {', '.join(parts)}.\n"


def table(cases: Cases) -> str:
    """Return a row for each program and network."""
    head = ["program", "network", *DEALS, "cloudcoll", "gain"]
    head += ["grouped", "from grouped", "gain"]
    lines = ["Milliseconds; *gain* over the fastest of the three deals.\n"]
    lines += [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * 8]
    for (_, kind, program), case in sorted(cases.items(), key=lambda item: item[0][2]):
        times = {
            name: f"{1e3 * case[name]['seconds']:.3g}" if name in case else ""
            for name in ORDERS
        }
        least = np.nanmin([gain(case, name, "cloudcoll") for name in DEALS])
        again = gain(case, "grouped", "regrouped")
        words = [program, kind, *(times[name] for name in DEALS), times["cloudcoll"]]
        words += [f"{least:.2f}x", times["grouped"], times["regrouped"]]
        words.append(f"{again:.2f}x" if np.isfinite(again) else "")
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines)


def draw(cases: Cases, path: Path) -> None:
    """Draw the gain over the order given, a panel for each program."""
    import matplotlib
    from matplotlib.figure import Figure

    # Grey reads on white and on black pages.
    matplotlib.rc("text", color=GREY)
    matplotlib.rc("axes", edgecolor=GREY, labelcolor=GREY)
    for axis in ("xtick", "ytick"):
        matplotlib.rc(axis, color=GREY)
    matplotlib.rc("svg", fonttype="none", hashsalt="scale study")
    programs = sorted({key[2] for key in cases})
    figure = Figure(figsize=(2.6 * len(programs), 3.2), layout="constrained")
    panels = figure.subplots(1, len(programs), sharey=True, squeeze=False)[0]
    for panel, program in zip(panels, programs, strict=True):
        for kind in dict.fromkeys(key[1] for key in sorted(cases)):
            mine = {
                k[0]: c for k, c in sorted(cases.items()) if k[1:] == (kind, program)
            }
            gains = [gain(case, "given", "cloudcoll") for case in mine.values()]
            panel.plot(list(mine), gains, "o-", label=kind)
        panel.axhline(1.0, color=GREY, linewidth=0.8)
        panel.set(title=program, xlabel="hosts", xscale="log", facecolor="none")
        panel.set_xticks([64, 256, 1024], labels=["64", "256", "1024"], minor=False)
        panel.minorticks_off()
        panel.title.set_size(9)
    panels[0].set_ylabel("order given / CloudColl's")
    panels[0].legend(fontsize=7, framealpha=0.0)
    figure.savefig(path, metadata={"Date": None}, transparent=True)
