"""How often two ranks of Open MPI take turns when they send to each other.

In a job on 16 hosts of an emulated data centre two ranks trade 4 MiB by
MPI_Sendrecv over TCP while the others wait. Prints the times over that of one
message: 1 where both directions run at once, 2 where one waits for the other. As
the library is, and with its BTL "tcp" told not to put data at the other's request.
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
from benchmarks.record import ROOT, Figure, json_option, median_of, write_figures

SIZE = 4 << 20
REPEATS = 20
LAB = "exchange"


def rank() -> None:
    """Trade messages; rank 0 prints the times of two over that of one, as JSON."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    other = 1 - comm.rank
    out, into = np.ones(SIZE, np.uint8), np.empty(SIZE, np.uint8)

    def timed(both: bool) -> float:
        comm.Barrier()
        begin = time.perf_counter()
        if comm.rank < 2 and both:
            comm.Sendrecv(out, other, recvbuf=into, source=other)
        elif comm.rank == 0:
            comm.Send(out, other)
        elif comm.rank == 1:
            comm.Recv(into, other)
        return float(comm.allreduce(time.perf_counter() - begin, op=MPI.MAX))

    one = np.median([timed(both=False) for _ in range(REPEATS)])
    two = np.sort([timed(both=True) for _ in range(REPEATS)]) / one
    if comm.rank == 0:
        print(json.dumps(two.tolist()), flush=True)
    time.sleep(0.3)  # ranks that end at once can hang this launcher


def main() -> None:
    """Bring the hosts up, and run the ranks with either setting."""
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
        up = [*CLOUDCOLL, "lab", "up", *lab, "--preset", "tuned", "--racks", "4,4,4,4"]
        up += ["--nic", "200mbit"]
        subprocess.run(up, env=env, check=True, stdout=subprocess.DEVNULL)
        try:
            for title, settings in (
                ("as it is", []),
                ("send only", ["--mca", "btl_tcp_flags", "send,inplace"]),
            ):
                argv = [*CLOUDCOLL, "lab", "exec", *lab, "--", "mpirun", *settings]
                argv += ["--hostfile", str(hosts), sys.executable]
                argv += ["-m", "benchmarks.exchange", "--rank"]
                done = subprocess.run(
                    argv, cwd=ROOT, env=env, check=True, timeout=120,
                    stdout=subprocess.PIPE,
                )  # fmt: skip
                times = json.loads(done.stdout)
                turns = 100 * sum(time > 1.5 for time in times) / len(times)
                what = f"two ranks of Open MPI trade 4 MiB, {title}"
                figures = [
                    median_of(f"{what}: over one message", times, "x"),
                    Figure(f"{what}: took turns", turns, unit="%"),
                ]
                write_figures(figures, options.json)
        finally:
            down = [*CLOUDCOLL, "lab", "down", *lab]
            subprocess.run(down, env=env, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
