"""What the shim costs and gains.

Prints nanoseconds that it adds to a call on a communicator of one rank, and
counted for a profile; milliseconds that it adds to the start of a program, and
the roll call to MPI_Init; microseconds of a communicator with a shadow; what
copying blocks adds to a reduce_scatter_block; and the time of that and of a
ring allreduce in an emulated 4:1 data centre whose launcher gives a bad order:
as it is, under the shim, and with the ranks placed at launch. Both
sides of each comparison take turns in one run; medians, and in brackets the
least and most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cloudcoll import lab as labs
from cloudcoll.launch.shim import LIBRARY, ORDER, PROFILE

SOURCE = Path(__file__).with_suffix(".c")
CLOUDCOLL = [sys.executable, "-m", "cloudcoll.cli"]
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


def spread(values: Sequence[float], unit: str) -> str:
    """Return the median with its range."""
    middle = statistics.median(values)
    return f"{middle:.4g} {unit} ({min(values):.4g} to {max(values):.4g})"


def calls(program: str, runs: int) -> Iterator[str]:
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
    yield f"a call on one rank   {spread(plain, 'ns')}"
    for name, values in seen.items():
        added = [b - a for a, b in zip(plain, values, strict=True)]
        yield f"{name:20} {spread(values, 'ns')}: added {spread(added, 'ns')}"


def communicators(program: str, runs: int, ranks: int) -> Iterator[str]:
    """Yield what it costs to duplicate, use and free one, without and with a shadow."""
    names = [f"h{rank}" for rank in range(ranks)]
    order = ",".join([names[0], *reversed(names[1:])])
    pose = 'CLOUDCOLL_HOST="h$OMPI_COMM_WORLD_RANK" LD_PRELOAD="$1" exec "$2" "$3" 200'
    seen: dict[str, list[float]] = {"": [], str(LIBRARY): []}
    for _ in range(runs):
        for preload, values in seen.items():
            job = [*JOB, "-n", str(ranks), "sh", "-c", pose, "sh", preload, program]
            values += map(
                float, output([*job, "communicators"], {ORDER: order}).split()
            )
    without, under = seen.values()
    yield f"a communicator, {ranks} ranks: {spread(without, 'us')}, "
    yield f"                     with a shadow {spread(under, 'us')}"


def copies(program: str, runs: int, ranks: int) -> Iterator[str]:
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
                values.append(1e3 * statistics.median(map(float, took)))
        without, under = seen.values()
        yield f"reduce_scatter_block, {ranks} ranks, {size >> 10} KiB: "
        yield f"    {spread(without, 'ms')}, by copies {spread(under, 'ms')}"


OUR_OWN = rf"at 0x\w+: [mc]alloc .*\n==\d+==    by 0x\w+: .*/{LIBRARY.name}\)"
"""In a record of valgrind: memory that the library asked for itself."""


def leaks(program: str, ranks: int) -> Iterator[str]:
    """Yield what valgrind finds lost, of 10 and of 1000 communicators."""
    for count in (10, 1000):
        logs = watched(program, ranks, count)
        # A blank line of valgrind's ends a record.
        records = [one for log in logs for one in re.split(r"\n==\d+== \n", log)]
        lost = [one for one in records if "lost in loss record" in one]
        ours = sum(bool(re.search(OUR_OWN, one)) for one in lost)
        sizes = [re.search(r"definitely lost: ([\d,]+) bytes", log) for log in logs]
        most = max(int(size[1].replace(",", "")) for size in sizes if size)
        yield (
            f"{count:4} communicators, {ranks} ranks: at most {most} bytes lost; "
            f"{ours} of {len(lost)} losses were allocated by the library"
        )


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


def beginnings(program: str, runs: int, ranks: int) -> Iterator[str]:
    """Yield what the roll call adds to MPI_Init, in a job of several ranks."""
    job = [*JOB, "-n", str(ranks), program, "init"]
    with tempfile.TemporaryDirectory() as folder:
        profile = ["--inject", "none", "--profile", f"{folder}/p.json"]
        ways = {"": [], "with the roll call": profile}
        seen: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(runs):
            for name, options in ways.items():
                run = [*CLOUDCOLL, "run", *options] if options else []
                seen[name] += map(float, output([*run, *job], {}).split())
    plain, called = seen.values()
    yield f"MPI_Init, {ranks:2} ranks   {spread(plain, 'ms')}, with the roll call "
    yield f"                     {spread(called, 'ms')}"


def starts(runs: int) -> Iterator[str]:
    """Yield what the start of a program without MPI costs."""
    took: dict[str, list[float]] = {"": [], str(LIBRARY): []}
    for _ in range(runs):
        for preload, seen in took.items():
            begin = time.perf_counter()
            output(["true"], {"LD_PRELOAD": preload})
            seen.append((time.perf_counter() - begin) * 1e3)
    without, under = took.values()
    added = [b - a for a, b in zip(without, under, strict=True)]
    yield f"a start without MPI  {spread(without, 'ms')}: added {spread(added, 'ms')}"


def gains(program: str, rounds: int, repeats: int) -> Iterator[str]:
    """Yield the seconds of both reductions in the lab, three ways."""
    lab = labs.up(
        labs.quick((4, 4, 4, 4), nic=50e6, uplink=50e6, rtt=200e-6, seed=1), NAME
    )
    try:
        for call in ("allreduce", "reduce_scatter_block"):
            yield from _gains(lab, [program, call], rounds, repeats)
    finally:
        labs.down(NAME)


def _gains(lab: labs.Lab, call: list[str], rounds: int, repeats: int) -> Iterator[str]:
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
        yield f"{call[1]}, 16 MiB, {name:17} {spread(values, 's')}"
    placed, shim = (statistics.median(seen[n]) for n in ("placed at launch", "shim"))
    yield f"the shim takes {shim / placed:.3f} times as long as placing at launch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["cost", "copy", "gain", "leaks"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "shim")
        subprocess.run(["mpicc", "-O2", "-o", program, SOURCE], check=True)
        if arguments.only == "leaks":
            print(*leaks(program, 3), sep="\n", flush=True)
        if arguments.only in (None, "cost"):
            print(*calls(program, arguments.runs), sep="\n", flush=True)
            print(*starts(arguments.runs * 10), sep="\n", flush=True)
            print(*beginnings(program, arguments.runs, 4), sep="\n", flush=True)
            print(*communicators(program, arguments.runs, 4), sep="\n", flush=True)
        if arguments.only in (None, "copy"):
            print(*copies(program, 3, 2), sep="\n", flush=True)
        if arguments.only in (None, "gain"):
            for line in gains(program, arguments.rounds, arguments.repeats):
                print(line)


if __name__ == "__main__":
    main()
