"""Run MPI programs on platforms of some hundred hosts, in four orders, under SMPI.

SMPI (Degomme et al. 2017) runs real programs, `collectives.c` and `stencil.c`, one
process for all ranks, and takes their time from SimGrid's network (CM02, as in
`simgrid_check.py`). Orders: as dealt, sorted by name, another deal, and what
`cloudcoll.solve` makes of the platform's fabric. Rows are added to a JSON lines file;
`--write` makes docs/scale-study.md and its plots of them.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from platforms import Platform, platform
from tables import write

from cloudcoll.hosts import Host
from cloudcoll.schedule import Schedule, build_schedule
from cloudcoll.schedule.workload import Operation, Workload
from cloudcoll.snapshot import NetworkSnapshot
from cloudcoll.solve import solve

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
    "--cfg=network/model:CM02",
    "--cfg=network/crosstraffic:0",
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
    sums = Operation("allreduce", "recursive_doubling", 8, world, calls=2)
    return Workload("stencil", ranks, (*operations, sums))


def sent_by(program: str, ranks: int) -> Schedule | Workload:
    """Return what one call or iteration sends; SMPI's messages take no turns."""
    if program == "stencil":
        return stencil(ranks)
    collective, _, algorithm = COLLECTIVES[program]
    return replace(build_schedule(collective, algorithm, ranks, BYTES), turns=np.inf)


def orders_of(known: Platform, program: str) -> tuple[dict[str, list[str]], float]:
    """Return orders of host names, and the seconds that the search took."""
    names = sorted(known.fabric.hosts)
    deal = np.random.default_rng(len(names) + 1)
    given, random = deal.permutation(names).tolist(), deal.permutation(names).tolist()
    hosts = tuple(Host(name) for name in names)
    snapshot = NetworkSnapshot(hosts, fabric=known.fabric)
    begin = time.monotonic()
    found = solve(snapshot, sent_by(program, len(names)), given=given)
    took = time.monotonic() - begin
    ours = list(found.order)
    orders = {"given": given, "sorted": names, "random": random, "cloudcoll": ours}
    return orders, took


def command_of(program: str, ranks: int, folder: Path) -> list[str | Path]:
    """Return the program's words and SMPI's choice of an algorithm."""
    if program == "stencil":
        sides = [str(number) for number in (*grid(ranks), EDGE, ITERATIONS)]
        return [folder / "stencil", *sides]
    collective, algorithm, _ = COLLECTIVES[program]
    choice = f"--cfg=smpi/{collective}:{algorithm}"
    return [choice, folder / "collectives", collective, str(BYTES), "1"]


def simulated(
    known: Platform, program: str, order: list[str], folder: Path, limit_s: float
) -> float:
    """Return SMPI's seconds of a call or iteration."""
    hostfile = folder / "hostfile"
    hostfile.write_text("\n".join(known.node[name] for name in order) + "\n")
    ranks = str(len(order))
    start = ["smpirun", "-platform", known.file, "-hostfile", hostfile, "-np", ranks]
    done = subprocess.run(
        [*start, *CONFIG, *command_of(program, len(order), folder)],
        env={**os.environ, "TREE": known.tree},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=True,
    )
    return float(done.stdout.split()[-1])


def compiled(folder: Path) -> None:
    """Build the two programs and the platform's library."""
    include = ["-std=c++17", "-O2", "-shared", "-fPIC", HERE / "tree.cpp", "-lsimgrid"]
    builds = [["g++", *include, "-o", folder / "tree.so"]]
    for name in ("collectives", "stencil"):
        builds.append(["smpicc", "-O2", HERE / f"{name}.c", "-o", folder / name])
    for build in builds:
        subprocess.run(build, check=True, timeout=120)


def row(
    kind: str, hosts: int, program: str, folder: Path, limit_s: float
) -> dict[str, Any]:
    """Return what one platform and program gave, in all orders."""
    known = platform(kind, hosts, folder)
    orders, took = orders_of(known, program)
    seconds = {
        name: simulated(known, program, order, folder, limit_s)
        for name, order in orders.items()
    }
    case = {"platform": kind, "hosts": hosts, "program": program}
    return {**case, "seconds": seconds, "search_s": took}


def run(options: argparse.Namespace) -> None:
    """Add a row for each platform and program."""
    cases = itertools.product(
        map(int, options.hosts.split(",")),
        options.platforms.split(","),
        options.programs.split(","),
    )
    with tempfile.TemporaryDirectory() as name:
        compiled(Path(name))
        for hosts, kind, program in cases:
            found = row(kind, hosts, program, Path(name), options.limit)
            print(json.dumps(found), file=sys.stderr)
            with options.rows.open("a") as file:
                file.write(json.dumps(found) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="64,256,1024")
    parser.add_argument("--platforms", default=",".join(PLATFORMS))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--rows", type=Path, default=HERE / "study.jsonl")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds of a run")
    parser.add_argument("--write", action="store_true", help="the page, of all rows")
    options = parser.parse_args()
    if options.write:
        write(options.rows, HERE.parents[1] / "docs")
    else:
        run(options)


if __name__ == "__main__":
    main()
