"""How many bytes two ranks of Open MPI trade at once, before they take turns.

In a job on 16 hosts of an emulated data centre two ranks trade messages of some sizes
by MPI_Sendrecv over TCP while the others wait. Prints the times over that of as many
bytes of a large message one way: 1 where both directions run at once, 2 where one waits
for the other; less where a shaper lets a few bytes pass at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.emulated import CLOUDCOLL
from benchmarks.record import ROOT, json_option, median_of, write_figures

SIZES = {"192 KiB": 192 << 10, "512 KiB": 512 << 10, "4 MiB": 4 << 20}
"""By `cloudcoll.libraries.open_mpi.TURNS`, 1, 1.63 and 1.95 messages' time."""

REPEATS = 20
LAB = "exchange"


def rank() -> None:
    """Trade messages; rank 0 prints times of two over that of one, by size, as JSON."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    other = 1 - comm.rank

    def timed(size: int, both: bool) -> float:
        out, into = np.ones(size, np.uint8), np.empty(size, np.uint8)
        comm.Barrier()
        begin = time.perf_counter()
        if comm.rank < 2 and both:
            comm.Sendrecv(out, other, recvbuf=into, source=other)
        elif comm.rank == 0:
            comm.Send(out, other)
        elif comm.rank == 1:
            comm.Recv(into, other)
        return float(comm.allreduce(time.perf_counter() - begin, op=MPI.MAX))

    large = max(SIZES.values())
    alone = np.median([timed(large, both=False) for _ in range(REPEATS)]) / large
    found = {}
    for name, size in SIZES.items():
        both = np.sort([timed(size, both=True) for _ in range(REPEATS)])
        found[name] = (both / size / alone).tolist()
    if comm.rank == 0:
        print(json.dumps(found), flush=True)
    time.sleep(0.3)  # ranks that end at once can hang this launcher


def main() -> None:
    """Bring the hosts up, and run the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    json_option(parser)
    options = parser.parse_args()
    if options.rank:
        rank()
        return
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "CLOUDCOLL_HOME": folder}
        hosts = Path(folder) / "lab" / LAB / "hosts"
        lab = ("--name", LAB)
        up = [*CLOUDCOLL, "lab", "up", *lab, "--racks", "4,4,4,4", "--nic", "200mbit"]
        up += ["--queue", "20ms"]
        subprocess.run(up, env=env, check=True, stdout=subprocess.DEVNULL)
        try:
            argv = [*CLOUDCOLL, "lab", "exec", *lab, "--", "mpirun"]
            argv += ["--hostfile", str(hosts), sys.executable]
            argv += ["-m", "benchmarks.exchange", "--rank"]
            done = subprocess.run(
                argv, cwd=ROOT, env=env, check=True, timeout=120, stdout=subprocess.PIPE
            )
            what = "two ranks of Open MPI trade {}: over one way"
            figures = [
                median_of(what.format(name), times, "x")
                for name, times in json.loads(done.stdout).items()
            ]
            write_figures(figures, options.json)
        finally:
            down = [*CLOUDCOLL, "lab", "down", *lab]
            subprocess.run(down, env=env, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
