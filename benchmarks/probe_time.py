"""Time ``cloudcoll probe`` of an emulated data centre of 4 racks of 4 hosts.

Whole commands, start-up included, quick and standard in turn; and whether the
probe found the racks exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.record import Figure, json_option, median_of, write_figures

RUNS = 7
LAB = "probe-time"


def cloudcoll(*arguments: str, home: str, good: int = 0) -> Any:
    """Run a command with --json and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "cloudcoll.cli", *arguments, "--json"],
        env={**os.environ, "CLOUDCOLL_HOME": home},
        stdout=subprocess.PIPE,
    )
    if not 0 <= done.returncode <= good:
        done.check_returncode()
    return json.loads(done.stdout)


def main() -> None:
    """Print seconds by mode, and in how many runs the racks were exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    json_option(parser)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"quick": [], "standard": []}
    exact = dict.fromkeys(seconds, 0)
    with tempfile.TemporaryDirectory() as home:
        up = ("lab", "up", "--name", LAB, "--preset", "tuned", "--racks", "4,4,4,4")
        cloudcoll(*up, home=home)
        try:
            hosts = ("lab", "hosts", "--name", LAB, "--true-groups")
            truth = sorted(sorted(rack) for rack in cloudcoll(*hosts, home=home))
            for _ in range(RUNS):
                for mode, times in seconds.items():
                    start = time.perf_counter()
                    probe = ("probe", "--lab", LAB, f"--{mode}")
                    # 1: some pairs gave no result, as may be on a busy machine.
                    seen = cloudcoll(*probe, home=home, good=1)
                    times.append(time.perf_counter() - start)
                    groups = sorted(map(sorted, seen["levels"][0]["groups"]))
                    exact[mode] += groups == truth
        finally:
            subprocess.run(
                [sys.executable, "-m", "cloudcoll.cli", "lab", "down", "--name", LAB],
                env={**os.environ, "CLOUDCOLL_HOME": home},
                check=True,
                stdout=subprocess.DEVNULL,
            )
    figures = []
    for mode, times in seconds.items():
        what = f"{mode} probe of 16 hosts"
        figures.append(median_of(what, times, "s"))
        figures.append(Figure(f"{what}: racks exact", exact[mode], unit=f"of {RUNS}"))
    write_figures(figures, options.json)


if __name__ == "__main__":
    main()
