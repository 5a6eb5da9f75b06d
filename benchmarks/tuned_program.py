"""What a program gains by an order of its hosts, and by tuning on top of it.

Conjugate gradients (mpi4py, Open MPI 5) for a matrix whose rows are spread over the
ranks and whose columns are anywhere, so that each iteration gathers the whole vector.
All is done as a user would: its calls are profiled in one run, `tune` is given the
profile, and then the program is started in turns as typed, by `run` with the profile,
and with what `tune` chose. Each run times its own iterations.

    python -m benchmarks.tuned_program [--racks 5,3,6,2] [--turns 6] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.emulated import CLOUDCOLL, Emulated, emulated
from benchmarks.record import ROOT, Figure, json_option, median_of, write_figures
from benchmarks.workloads.stencil import gradients

POINTS = 1 << 16
"""Of the vector, on each rank: 512 KiB, 8 MiB on all of 16."""
ITERATIONS = 6
DIAGONAL = 4.0
"""More than twice the other two entries of a row: the matrix is positive definite."""
KINDS = ("given", "ordered", "tuned")
WHAT = "conjugate gradients, tuned"


def solve_system() -> None:
    """Be a rank: solve the system and let rank 0 print seconds and the rest."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    ranks, rank = comm.size, comm.rank
    own = slice(rank * POINTS, (rank + 1) * POINTS)
    column = np.random.default_rng(1).permutation(ranks * POINTS)
    there, back = column[own], np.argsort(column)[own]
    whole = np.empty(ranks * POINTS)

    def times(vector: np.ndarray) -> np.ndarray:
        comm.Allgather(vector, whole)
        return DIAGONAL * vector - whole[there] - whole[back]

    def dot(left: np.ndarray, right: np.ndarray) -> float:
        return float(comm.allreduce(np.vdot(left, right)))

    guesses = gradients(times, dot, np.random.default_rng(2 + rank).random(POINTS))
    next(guesses)
    comm.Barrier()
    begin = time.perf_counter()
    *_, (_, square) = islice(guesses, ITERATIONS)
    seconds = comm.allreduce(time.perf_counter() - begin, MPI.MAX)
    if rank == 0:
        print(json.dumps({"seconds": seconds, "rest": square}))


def run(cluster: Emulated, *prefix: str) -> dict[str, float]:
    """Run the program in the lab, perhaps by CloudColl; return what it prints."""
    words = ("mpirun", "--hostfile", str(cluster.hostfile), "--bind-to", "none")
    program = (sys.executable, "-m", "mpi4py", str(Path(__file__)), "--inside")
    within = ("lab", "exec", "--name", cluster.name, "--", "env", f"PYTHONPATH={ROOT}")
    told = cluster.cloudcoll(*within, *prefix, *words, *program)
    (line,) = (line for line in told.splitlines() if line.startswith("{"))
    return dict(json.loads(line))


def in_turns(
    cluster: Emulated,
    run: Callable[..., dict[str, float]],
    launcher: Sequence[str],
    turns: int,
) -> tuple[list[dict[str, dict[str, float]]], float]:
    """Profile a program, tune for the profile, and start the program in turns.

    Parameters
    ----------
    run : callable
        Runs the program behind a prefix, and returns what it measured.
    launcher : sequence of str
        What it starts the program by, for `tune`.

    Returns
    -------
    rows : list of dict
        What the program measured in each turn, by `KINDS`.
    seconds : float
        That `tune` took.
    """
    calls, tuned = cluster.home / "calls.json", cluster.home / "tuned.json"
    run(*CLOUDCOLL, "run", "--inject", "none", "--profile", str(calls))
    of_job = ("--workload", str(calls), "--snapshot", str(cluster.snapshot))
    begin = time.monotonic()
    cluster.inside("tune", *of_job, "-o", str(tuned), *launcher)
    took = time.monotonic() - begin
    prefixes = {
        "given": (),
        "ordered": (*CLOUDCOLL, "run", "--strict", *of_job),
        "tuned": (*CLOUDCOLL, "run", "--strict", "--tune", "--map", str(tuned)),
    }
    rows = [{kind: run(*prefixes[kind]) for kind in KINDS} for _ in range(turns)]
    return rows, took


def figures(racks: str, turns: int) -> Iterator[Figure]:
    """Yield how much longer the program takes as typed, and in the order alone."""
    with emulated("tuned", racks) as cluster:
        launcher = ("mpirun", "--hostfile", str(cluster.hostfile))
        rows, took = in_turns(cluster, partial(run, cluster), launcher, turns)
    rests = [row[kind]["rest"] for row in rows for kind in KINDS]
    of = {kind: np.array([row[kind]["seconds"] for row in rows]) for kind in KINDS}
    yield median_of(f"{WHAT}: as typed", of["given"].tolist(), "s")
    for slower, faster in (
        ("given", "ordered"),
        ("given", "tuned"),
        ("ordered", "tuned"),
    ):
        ratios = (of[slower] / of[faster]).tolist()
        yield median_of(f"{WHAT}: {slower} over {faster}", ratios, "x")
    yield Figure(f"{WHAT}: tuning took", took, unit="s", most=60.0)
    off = float(np.ptp(rests) / np.mean(rests))
    yield Figure(f"{WHAT}: rests differ by", off, unit="relative", most=1e-9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", default="5,3,6,2")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.inside:
        solve_system()
    else:
        write_figures(figures(options.racks, options.turns), options.json)


if __name__ == "__main__":
    main()
