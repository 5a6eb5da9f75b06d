"""Kill ranks while they end, and look at the profile that they write then.

Says how often the file was the one from before, the new one, or neither; ends in
1 if that happened. MPI takes a second to start, so that one process of it forks
the ranks. Needs cloudcoll[mpi]:

    python tests/soak/profile_kills.py
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from cloudcoll.errors import CloudcollError
from cloudcoll.launch.shim import LIBRARY
from cloudcoll.profile import load_profile

EARLIEST_S, LATEST_S = 0.001, 0.002
"""Seconds from a rank's line to its kill: it writes its profile some 1.5 ms after."""
RANKS = """
import os, sys, time
import numpy as np
from mpi4py import MPI
for size in range(1, 300):
    MPI.COMM_WORLD.Allreduce(np.ones(size), np.empty(size))
for _ in sys.stdin:
    rank = os.fork()
    if not rank:
        print(os.getpid(), flush=True)
        time.sleep(0.001)
        MPI.Finalize()
        os._exit(0)
    os.waitpid(rank, 0)
    print("gone", flush=True)
os._exit(0)
"""


def show_profile(points: int) -> int:
    """Kill ranks while they end; return how often a profile was not whole."""
    source, seen = random.Random(0), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "CLOUDCOLL_PROFILE": str(path)}
        with subprocess.Popen(
            [sys.executable, "-c", RANKS],
            env=env,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as job:
            assert job.stdin is not None
            assert job.stdout is not None
            for _ in range(points):
                path.write_text("old")
                job.stdin.write(b"\n")
                rank = int(job.stdout.readline())
                time.sleep(source.uniform(EARLIEST_S, LATEST_S))
                os.kill(rank, signal.SIGKILL)
                job.stdout.readline()
                seen[_profile_at(path)] += 1
            job.stdin.close()
        left = len(list(Path(folder).iterdir())) - 1
    print(f"{points} kills: {dict(seen)}; in the middle of writing: {left}")
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
