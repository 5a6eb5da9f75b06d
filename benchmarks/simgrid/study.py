"""Run MPI programs on platforms of 64 to 1024 hosts, in six orders, under SMPI.

SMPI (Degomme et al. 2017) runs real programs, `collectives.c` and `stencil.c`, one
process for all ranks, and takes their time from SimGrid's network (CM02, as in
`check.py`). Orders: as dealt, sorted by name, another deal, group by group as the
platform has them, and what `cloudcoll.solve` makes of the platform's fabric where the
first of these was given, or the last. Each run is a row of a JSON lines file; what has
a row is not run again, so that the whole study (some 45 minutes of CPU, half of it the
ring of 1024 hosts; 3 GiB) can be done in parts. `--write` makes docs/scale-study.md
and its plot of all rows, `--flows` judges how the stencil is predicted.

Needs `apt-get install libsimgrid-dev g++`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # when it is run by its path

from benchmarks.record import Figure, json_option, write_figures
from benchmarks.simgrid.platforms import Platform, platform
from benchmarks.simgrid.replay import PINNED
from benchmarks.simgrid.tables import ORDERS, read, write
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.engine import library
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.contention import replay_of
from cloudcoll.model.cost import CostModel
from cloudcoll.solve import solve
from cloudcoll.solve.finalists import replayed_seconds

HERE = Path(__file__).parent
PLATFORMS = ("2:1", "4:1", "8:1", "fat-tree", "dragonfly")
BYTES = 1 << 20
EDGE = 256
"""Points along a side of a rank's part of the stencil."""
ITERATIONS = 3
COLLECTIVES = {
    "ring allreduce": ("allreduce", "lr", "ring"),
    "Rabenseifner allreduce": ("allreduce", "rab", "rabenseifner"),
    "recursive doubling allreduce": ("allreduce", "rdb", "recursive_doubling"),
    "Bruck allgather": ("allgather", "bruck", "bruck"),
}
"""Name -> MPI's collective, SMPI's algorithm, ours."""
PROGRAMS = (*COLLECTIVES, "stencil")
CONFIG = (
    *PINNED,
    "--cfg=smpi/simulate-computation:no",
    "--log=root.thres:warning",
)


def grid(ranks: int) -> tuple[int, int]:
    """Return rows and columns of the stencil's ranks."""
    rows = 2 ** (int(math.log2(ranks)) // 2)
    return rows, ranks // rows


def stencil(ranks: int) -> Workload:
    """Return what an iteration of `stencil.c` sends."""
    rows, columns = grid(ranks)
    number = np.arange(ranks).reshape(rows, columns)
    operations = []
    for along, places in (("rows", number), ("columns", number.T)):
        for begin in (0, 1):
            cut = places[:, begin:]
            pairs = cut[:, : cut.shape[1] // 2 * 2].reshape(-1, 2)
            alone = np.setdiff1d(number, pairs).reshape(-1, 1)
            name = f"{along} {begin}"
            groups = [*pairs, *alone]
            halo = Operation("sendrecv", "both", 8 * EDGE, groups, where=name)
            operations.append(halo)
    world = [np.arange(ranks)]
    total = Operation("allreduce", "recursive_doubling", 8, world)
    return Workload("stencil", ranks, (*operations, total, total))


def sent_by(program: str, ranks: int) -> Schedule | Workload:
    """Return what one call or iteration sends; SMPI's messages take no turns."""
    if program == "stencil":
        return stencil(ranks)
    collective, _, algorithm = COLLECTIVES[program]
    return replace(build_schedule(collective, algorithm, ranks, BYTES), turns=np.inf)


def unsolved(known: Platform) -> list[list[str]]:
    """Return the first of `ORDERS`, those that nobody works out, as host names."""
    names, groups = sorted(known.fabric.hosts), list(known.fabric.hosts)
    deal = np.random.default_rng(len(names) + 1)
    given, random = deal.permutation(names).tolist(), deal.permutation(names).tolist()
    return [given, names, random, groups]


def orders_of(known: Platform, sent: Schedule | Workload) -> dict[str, list[str]]:
    """Return orders of host names, those of `ORDERS`."""
    given, names, random, groups = unsolved(known)
    snapshot = NetworkSnapshot(tuple(map(Host, names)), fabric=known.fabric)
    orders = [given, names, random, groups]
    orders += [list(solve(snapshot, sent, given=had).order) for had in (given, groups)]
    return dict(zip(ORDERS, orders, strict=True))


def off(rows: Path, folder: Path) -> np.ndarray:
    """Return errors of the stencil's seconds on trees, as flows and by load, as shares.

    Shape (runs, 2).
    """
    if (engine := library()) is None:
        raise SystemExit("the engine was not built: python setup.py build_ext")
    found = []
    for (hosts, kind, program), had in read(rows).items():
        if program != "stencil" or ":" not in kind:
            continue
        known = platform(kind, hosts, folder)
        model = CostModel(stencil(hosts), known.fabric, [1] * hosts)
        for name, order in zip(ORDERS, unsolved(known), strict=False):
            replay = replay_of(model, [*map(known.fabric.position, order)])
            seconds = replayed_seconds(engine, replay), had[name]["predicted"]
            found.append(np.array(seconds) / had[name]["seconds"] - 1)
    return abs(np.array(found))


def command_of(program: str, ranks: int, folder: Path) -> list[str]:
    """Return the program's words and SMPI's choice of an algorithm."""
    if program == "stencil":
        sides = [str(number) for number in (*grid(ranks), EDGE, ITERATIONS)]
        return ["--cfg=smpi/allreduce:rdb", str(folder / "stencil"), *sides]
    collective, algorithm, _ = COLLECTIVES[program]
    choice = f"--cfg=smpi/{collective}:{algorithm}"
    return [choice, str(folder / "collectives"), collective, str(BYTES), "1"]


def simulated(
    known: Platform,
    program: str,
    order: Sequence[str],
    folder: Path,
    limit_s: float,
) -> float:
    """Return SMPI's seconds of a call or iteration."""
    hostfile = folder / "hostfile"
    hostfile.write_text("\n".join(known.node[name] for name in order) + "\n")
    place = ["-platform", str(known.file), "-hostfile", str(hostfile)]
    done = subprocess.run(
        [
            *("smpirun", *place, "-np", str(len(order)), *CONFIG),
            *command_of(program, len(order), folder),
        ],
        env={**os.environ, "TREE": known.tree},
        stdout=subprocess.PIPE,
        text=True,
        timeout=limit_s,
        check=True,
    )
    return float(done.stdout.split()[-1])


def compiled(folder: Path) -> None:
    """Build the two programs and the platform's library."""
    shared = ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "tree.cpp", "-lsimgrid"]
    builds = [[*shared, "-o", str(folder / "tree.so")]]
    for name in ("collectives", "stencil"):
        builds.append(["smpicc", "-O2", f"{name}.c", "-o", str(folder / name)])
    for build in builds:
        subprocess.run(build, check=True, timeout=120, cwd=HERE)


def runs(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each run that has none."""
    done, wanted = read(options.rows), options.orders.split(",")
    cells = itertools.product(
        map(int, options.hosts.split(",")),
        options.platforms.split(","),
        options.programs.split(","),
    )
    todo = [cell for cell in cells if not done.get(cell, {}).keys() >= set(wanted)]
    if todo:
        compiled(folder)
    for hosts, kind, program in todo:
        had = done.get((hosts, kind, program), {})
        missing = [name for name in wanted if name not in had]
        known, sent = platform(kind, hosts, folder), sent_by(program, hosts)
        model = CostModel(sent, known.fabric, [1] * hosts)
        orders = orders_of(known, sent)
        taken = {tuple(orders[name]): run["seconds"] for name, run in had.items()}
        for name in missing:
            order = tuple(orders[name])
            if order not in taken:
                taken[order] = simulated(known, program, order, folder, options.limit)
            yield {
                "hosts": hosts,
                "program": program,
                "platform": kind,
                "order": name,
                "seconds": taken[order],
                "predicted": model.seconds([*map(known.fabric.position, order)]),
            }


def run(options: argparse.Namespace) -> None:
    """Add a row for each run, as long as there is time."""
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as name:
        for found in runs(options, Path(name)):
            line = json.dumps(found)
            print(line, file=sys.stderr)
            with options.rows.open("a") as file:
                file.write(line + "\n")
            if time.monotonic() > end:
                print("time is up: start again for the rest", file=sys.stderr)
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="64,256,1024")
    parser.add_argument("--platforms", default=",".join(PLATFORMS))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--rows", type=Path, default=HERE / "study.jsonl")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a run")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="starts no run after these"
    )
    parser.add_argument("--write", action="store_true", help="the page, of all rows")
    parser.add_argument("--flows", action="store_true", help="errors of predictions")
    json_option(parser)
    options = parser.parse_args()
    if options.write:
        write(options.rows, HERE.parents[1] / "docs")
    elif options.flows:
        with tempfile.TemporaryDirectory() as name:
            errors = off(options.rows, Path(name)).T
        for kind, own in zip(("flows", "cost model"), 100 * errors, strict=True):
            what = f"stencil on trees: error of seconds by {kind}"
            figures = [
                Figure(f"{what}, median", float(np.median(own)), unit="%"),
                Figure(f"{what}, worst of {len(own)}", max(own), unit="%"),
            ]
            write_figures(figures, options.json)
    else:
        run(options)


if __name__ == "__main__":
    main()
