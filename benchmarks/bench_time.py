"""How long a bench with its defaults takes on 16 hosts of a lab, and what it finds.

A standard probe, then one bench for each collective: seconds from start to end,
measurements of each order at the largest size, and the ratios there; *grouped* are the
racks that the probe has found.

    python -m benchmarks.bench_time [--collectives allreduce,allgather] [--via torch]
"""

from __future__ import annotations

import argparse
import time

from benchmarks.emulated import emulated, ratio_figures
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.result import BenchRun


def show(collective: str, run: BenchRun, seconds: float) -> None:
    """Print a line of what was found at the largest size."""
    size = run.sizes[-1]
    repeats = min(len(run.times(size, order)) for order in run.orders)
    ratios = "  ".join(
        f"{r.baseline} {r.ratio:.2f}x ({r.low:.2f} to {r.high:.2f})"
        for r in run.ratios()
        if r.bytes == size
    )
    print(
        f"{collective:>14} {run.metadata['algorithm']:>20} {seconds:>8.0f} "
        f"{repeats:>8} {run.wrong:>6}  {ratios}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collectives", default="allreduce")
    parser.add_argument("--racks", default="5,3,6,2")
    parser.add_argument("--rate", default="400mbit")
    parser.add_argument("--via", default="mpi")
    json_option(parser)
    options = parser.parse_args()
    with emulated("bench-time", options.racks, options.rate) as cluster:
        result = cluster.home / "result.json"
        print(
            f"{'collective':>14} {'algorithm':>20} {'seconds':>8} {'repeats':>8} "
            f"{'#wrong':>6}  ratios"
        )
        for collective in options.collectives.split(","):
            start = time.monotonic()
            cluster.inside(
                "bench", "--snapshot", str(cluster.snapshot),
                "--collective", collective, "--via", options.via,
                "-o", str(result), "mpirun", "--hostfile", str(cluster.hostfile),
            )  # fmt: skip
            seconds = time.monotonic() - start
            run = BenchRun.from_json(result.read_text())
            show(collective, run, seconds)
            what = f"bench of {collective} by {options.via}"
            whole = Figure(f"{what}: whole command", seconds, unit="s")
            write_figures([whole, *ratio_figures(what, run)], options.json)


if __name__ == "__main__":
    main()
