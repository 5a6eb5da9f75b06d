"""What the shim costs and gains.

Prints nanoseconds that it adds to a call on a communicator of one rank, and
counted for a profile; milliseconds that it adds to the start of a program, and
the roll call to MPI_Init; microseconds of a communicator with a shadow; what
copying blocks adds to a reduce_scatter_block; and the time of that and of a
ring allreduce in an emulated 4:1 data centre whose launcher gives a bad order:
as it is, under the shim, and with the ranks placed at launch. Both
sides of each comparison take turns in one run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.emulated import CLOUDCOLL
from benchmarks.record import Figure, json_option, median_of, write_figures
from cloudcoll import lab as labs
from cloudcoll.launch.shim import LIBRARY, ORDER, PROFILE

SOURCE = Path(__file__).with_suffix(".c")
ROOT_ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
RING = [
    *("--mca", "coll_tuned_use_dynamic_rules", "true"),
    *("--mca", "coll_tuned_allreduce_algorithm", "4"),
    *("--mca", "mpi_yield_when_idle", "1", "--bind-to", "none"),
]
JOB = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
NAME = "shim-gain"
DEADLINE_S = 100


def output(argv: Sequence[str], env: dict[str, str]) -> str:
    """Return what a command prints."""
    ended = subprocess.run(
        argv, env={**os.environ, **ROOT_ALLOWED, **env}, check=True,
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=DEADLINE_S,
    )  # fmt: skip
    return ended.stdout.decode()


def calls(program: str, runs: int) -> Iterator[Figure]:
    """Yield what a call costs without the shim, with it, and counted."""
    shim = {"LD_PRELOAD": str(LIBRARY), ORDER: "a,b"}
    with tempfile.NamedTemporaryFile() as profile:
        ways = {
            "": {"LD_PRELOAD": ""},
            "under the shim": shim,
            "and counted": {**shim, PROFILE: profile.name},
        }
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(runs):
            for name, env in ways.items():
                seen[name].append(float(output([program, "call", "1000000"], env)))
    plain = seen.pop("")
    yield median_of("a call on one rank", plain, "ns")
    for name, values in seen.items():
        added = [b - a for a, b in zip(plain, values, strict=True)]
        yield median_of(f"added to a call {name}", added, "ns")


def communicators(program: str, runs: int, ranks: int) -> Iterator[Figure]:
    """Yield what it costs to duplicate, use and free one, without and with a shadow."""
    names = [f"h{rank}" for rank in range(ranks)]
    order = ",".join([names[0], *reversed(names[1:])])
    pose = 'CLOUDCOLL_HOST="h$OMPI_COMM_WORLD_RANK" LD_PRELOAD="$1" exec "$2" "$3" 200'
    seen: dict[str, list[float]] = {"": [], str(LIBRARY): []}
    for _ in range(runs):
        for preload, values in seen.items():
            job = [*JOB, "-n", str(ranks), "sh", "-c", pose, "sh", preload, program]
            took = output([*job, "communicators"], {ORDER: order}).split()
            # Of one job's ranks; jobs are what is repeated.
            values.append(1e-6 * statistics.median(map(float, took)))
    without, under = seen.values()
    yield median_of(f"a communicator of {ranks} ranks", without, "s")
    yield median_of(f"a communicator of {ranks} ranks, with a shadow", under, "s")


def copies(program: str, runs: int, ranks: int) -> Iterator[Figure]:
    """Yield what a reduce_scatter_block takes where the network is memory."""
    names = [f"h{rank}" for rank in range(ranks)]
    order = ",".join(reversed(names))
    pose = 'CLOUDCOLL_HOST="h$OMPI_COMM_WORLD_RANK" LD_PRELOAD="$1"; shift; exec "$@"'
    for size in (64 << 10, 1 << 20, 16 << 20, 64 << 20):
        seen: dict[str, list[float]] = {"": [], str(LIBRARY): []}
        for _ in range(runs):
            for preload, values in seen.items():
                job = [*JOB, "-n", str(ranks), "sh", "-c", f"export {pose}", "sh"]
                call = [program, "reduce_scatter_block", str(size), "9"]
                took = output([*job, preload, *call], {ORDER: order}).split()
                values.append(statistics.median(map(float, took)))
        without, under = seen.values()
        what = f"reduce_scatter_block of {size >> 10} KiB, {ranks} ranks"
        yield median_of(what, without, "s")
        yield median_of(f"{what}, with copies", under, "s")


OUR_OWN = rf"at 0x\w+: [mc]alloc .*\n==\d+==    by 0x\w+: .*/{LIBRARY.name}\)"
"""In a record of valgrind: memory that the library asked for itself."""


def leaks(program: str, ranks: int) -> Iterator[Figure]:
    """Yield what valgrind finds lost, of 10 and of 1000 communicators."""
    for count in (10, 1000):
        logs = watched(program, ranks, count)
        # A blank line of valgrind's ends a record.
        records = [one for log in logs for one in re.split(r"\n==\d+== \n", log)]
        lost = [one for one in records if "lost in loss record" in one]
        ours = sum(bool(re.search(OUR_OWN, one)) for one in lost)
        sizes = [re.search(r"definitely lost: ([\d,]+) bytes", log) for log in logs]
        most = max(int(size[1].replace(",", "")) for size in sizes if size)
        what = f"{count} communicators of {ranks} ranks"
        yield Figure(f"{what}: bytes lost by a rank", most)
        name = f"{what}: losses of what the library allocated"
        yield Figure(name, ours, unit=f"of {len(lost)}")


def watched(program: str, ranks: int, count: int) -> list[str]:
    """Return what valgrind says of each rank of a job that makes communicators."""
    names = [f"h{rank}" for rank in range(ranks)]
    pose = 'CLOUDCOLL_HOST="h$OMPI_COMM_WORLD_RANK" LD_PRELOAD="$1"; shift; exec "$@"'
    with tempfile.TemporaryDirectory() as folder:
        env = {ORDER: ",".join(reversed(names)), PROFILE: f"{folder}/p.json"}
        watch = ["valgrind", "--leak-check=full", f"--log-file={folder}/%p.log"]
        job = [*JOB, "-n", str(ranks), "sh", "-c", f"export {pose}", "sh", str(LIBRARY)]
        output([*job, *watch, program, "communicators", str(count)], env)
        return [path.read_text() for path in Path(folder).glob("*.log")]


def beginnings(program: str, runs: int, ranks: int) -> Iterator[Figure]:
    """Yield what the roll call adds to MPI_Init, in a job of several ranks."""
    job = [*JOB, "-n", str(ranks), program, "init"]
    with tempfile.TemporaryDirectory() as folder:
        profile = ["--inject", "none", "--profile", f"{folder}/p.json"]
        ways = {"": [], "with the roll call": profile}
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(runs):
            for name, options in ways.items():
                run = [*CLOUDCOLL, "run", *options] if options else []
                took = output([*run, *job], {}).split()
                seen[name].append(1e-3 * max(map(float, took)))
    plain, called = seen.values()
    added = [b - a for a, b in zip(plain, called, strict=True)]
    yield median_of(f"MPI_Init of {ranks} ranks", plain, "s")
    yield median_of(f"added to MPI_Init of {ranks} ranks by the roll", added, "s")


def starts(runs: int) -> Iterator[Figure]:
    """Yield what the start of a program without MPI costs."""
    took: dict[str, list[float]] = {"": [], str(LIBRARY): []}
    for _ in range(runs):
        for preload, seen in took.items():
            begin = time.perf_counter()
            output(["true"], {"LD_PRELOAD": preload})
            seen.append(time.perf_counter() - begin)
    without, under = took.values()
    added = [b - a for a, b in zip(without, under, strict=True)]
    yield median_of("a start without MPI", without, "s")
    yield median_of("added to a start without MPI", added, "s")


def gains(program: str, rounds: int, repeats: int) -> Iterator[Figure]:
    """Yield the seconds of both reductions in the lab, three ways."""
    lab = labs.up(
        labs.quick(
            (4, 4, 4, 4), nic=50e6, uplink=50e6, rtt=200e-6, seed=1, preset="tuned"
        ),
        NAME,
    )
    try:
        for call in ("allreduce", "reduce_scatter_block"):
            yield from _gains(lab, [program, call], rounds, repeats)
    finally:
        labs.down(NAME)


def _gains(
    lab: labs.Lab, call: list[str], rounds: int, repeats: int
) -> Iterator[Figure]:
    groups = json.loads(
        output(
            [*CLOUDCOLL, "lab", "hosts", "--name", NAME, "--true-groups", "--json"], {}
        )
    )
    good = [name for group in groups for name in group]
    bad = [good[0], *random.Random(1).sample(good[1:], len(good) - 1)]
    files = {}
    for name, order in (("bad", bad), ("good", good)):
        files[name] = lab.directory / f"{name}.hosts"
        files[name].write_text("".join(f"{host} slots=1\n" for host in order))
    preload = ["env", f"LD_PRELOAD={LIBRARY}", f"{ORDER}={','.join(good)}"]
    ways = {
        "as given": ("bad", []),
        "shim": ("bad", preload),
        "placed at launch": ("good", []),
    }
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (hosts, before) in ways.items():
            job = ["mpirun", "--hostfile", str(files[hosts]), *RING, *before, *call]
            argv, env = labs.exec_argv(
                lab, labs.HEAD, [*job, str(16 << 20), str(repeats)]
            )
            seen[name] += map(float, output(argv, env).split())
    for name, values in seen.items():
        yield median_of(f"{call[1]} of 16 MiB, {name}", values, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["cost", "copy", "gain", "leaks"])
    json_option(parser)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "shim")
        subprocess.run(["mpicc", "-O2", "-o", program, SOURCE], check=True)
        runs = arguments.runs
        parts = {
            "cost": [
                calls(program, runs),
                starts(runs * 10),
                beginnings(program, runs, 4),
                communicators(program, runs, 4),
            ],
            "copy": [copies(program, runs, 2)],
            "gain": [gains(program, arguments.rounds, arguments.repeats)],
            "leaks": [leaks(program, 3)],
        }
        for name in [arguments.only] if arguments.only else parts:
            for part in parts[name]:
                write_figures(part, arguments.json)


if __name__ == "__main__":
    main()
