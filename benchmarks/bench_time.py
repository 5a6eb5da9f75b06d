"""How long a bench with its defaults takes on 16 hosts of a lab, and what it finds.

A standard probe, then one bench for each collective: seconds from start to end,
measurements of each order at the largest size, and the ratios there.

    python benchmarks/bench_time.py [--collectives allreduce,allgather] [--via torch]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cloudcoll.bench.result import BenchRun

LAB = "bench-time"
CLOUDCOLL = [sys.executable, "-m", "cloudcoll.cli"]


def cloudcoll(home: Path, *arguments: str, good: int = 0) -> None:
    """Run a command whose output does not matter."""
    env = {**os.environ, "CLOUDCOLL_HOME": str(home)}
    done = subprocess.run([*CLOUDCOLL, *arguments], env=env, stdout=subprocess.PIPE)
    if not 0 <= done.returncode <= good:
        done.check_returncode()


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
    parser.add_argument("--via", default="mpi")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        snapshot, result = home / "network.snap", home / "result.json"
        hosts = home / "lab" / LAB / "hosts"
        cloudcoll(home, "lab", "up", "--name", LAB, "--racks", options.racks)
        try:
            # 1: some pairs gave no result, as may be on a busy machine.
            cloudcoll(home, "probe", "--lab", LAB, "-o", str(snapshot), good=1)
            inside = ("lab", "exec", "--name", LAB, "--", *CLOUDCOLL)
            print(
                f"{'collective':>14} {'algorithm':>20} {'seconds':>8} {'repeats':>8} "
                f"{'#wrong':>6}  ratios"
            )
            for collective in options.collectives.split(","):
                start = time.monotonic()
                cloudcoll(
                    home, *inside, "bench", "--snapshot", str(snapshot),
                    "--collective", collective, "--via", options.via,
                    "-o", str(result), "mpirun", "--hostfile", str(hosts),
                )  # fmt: skip
                seconds = time.monotonic() - start
                show(collective, BenchRun.from_json(result.read_text()), seconds)
        finally:
            cloudcoll(home, "lab", "down", "--name", LAB)


if __name__ == "__main__":
    main()
