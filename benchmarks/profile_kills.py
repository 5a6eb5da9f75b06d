"""Kill ranks while they end, and look at the profile that they write then.

Says how often the file was the one from before, the new one, or neither; ends in
1 if that happened. Needs cloudcoll[mpi]; a kill takes a second, since MPI starts:

    python benchmarks/profile_kills.py
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cloudcoll.errors import CloudcollError
from cloudcoll.launch.shim import LIBRARY
from cloudcoll.profile import load_profile

EARLIEST_S, LATEST_S = 0.0190, 0.0225
"""Seconds of a kill: a rank writes its profile some 20 ms after its line."""
RANK = """
import time
import numpy as np
from mpi4py import MPI
for size in range(1, 300):
    MPI.COMM_WORLD.Allreduce(np.ones(size), np.empty(size))
print("ends", flush=True)
time.sleep(0.02)
MPI.Finalize()
"""


def show_profile(points: int) -> int:
    """Kill a rank while it ends; return how often its profile was not whole."""
    source, seen = random.Random(0), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "CLOUDCOLL_PROFILE": str(path)}
        for _ in range(points):
            path.write_text("old")
            with subprocess.Popen(
                [sys.executable, "-c", RANK], env=env, stdout=subprocess.PIPE
            ) as rank:
                assert rank.stdout is not None
                rank.stdout.readline()
                time.sleep(source.uniform(EARLIEST_S, LATEST_S))
                rank.kill()
            seen[_profile_at(path)] += 1
        left = len(list(Path(folder).iterdir())) - 1
    print(f"{points} kills: {dict(seen)}; temporary files left: {left}")
    return seen["neither"]


def _profile_at(path: Path) -> str:
    if path.read_text() == "old":
        return "old"
    try:
        return "new" if load_profile(path).calls else "neither"
    except CloudcollError:
        return "neither"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=500)
    return int(show_profile(parser.parse_args().points) > 0)


if __name__ == "__main__":
    sys.exit(main())
