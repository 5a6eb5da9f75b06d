"""What a bench by mpi4py measures more than the same one in C: ranks of one machine.

Jobs of both take turns. A line for each size: microseconds of an allreduce, the
median of the jobs' medians, and what mpi4py adds, with the least and the most.

    python -m benchmarks.bench_backends [--ranks 2] [--jobs 7]
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from typing import Any

import numpy as np

from cloudcoll.bench.job import BenchPlan, run_bench
from cloudcoll.bench.native import mpi_program

SIZES = (8, 1 << 10, 16 << 10, 256 << 10)
BACKENDS = ("mpi4py", "c")


def medians(backend: str, ranks: int) -> list[float]:
    """Return microseconds of each size in a job of its own."""
    mpirun = shutil.which("mpirun") or "mpirun"
    argv = (mpirun, "-n", str(ranks), *mpi_program(backend, mpirun, os.environ))
    spec: dict[str, Any] = {
        "op": "allreduce", "orders": {"given": list(range(ranks))},
        "sizes": list(SIZES), "reference": "", "repeats": 9, "least": 9,
        "seconds": 60.0, "min_seconds": 0.02, "narrow": 0.0,
    }  # fmt: skip
    plan = BenchPlan(argv, spec, (socket.gethostname(),) * ranks, 0)
    rows = run_bench(plan, os.environ, 60.0).rows
    return [
        float(np.median([row["time_us"] for row in rows if row["bytes"] == size]))
        for size in SIZES
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=7, help="of each")
    options = parser.parse_args()
    found = np.array(
        [[medians(one, options.ranks) for one in BACKENDS] for _ in range(options.jobs)]
    )
    print(f"{'bytes':>8} {'mpi4py':>9} {'C':>9} {'added us':>22}")
    added = found[:, 0] - found[:, 1]
    for i, size in enumerate(SIZES):
        times = "".join(f" {time:>9.2f}" for time in np.median(found[:, :, i], axis=0))
        least, most = added[:, i].min(), added[:, i].max()
        spread = f"{np.median(added[:, i]):.2f} ({least:.2f} to {most:.2f})"
        print(f"{size:>8}{times} {spread:>22}")


if __name__ == "__main__":
    main()
