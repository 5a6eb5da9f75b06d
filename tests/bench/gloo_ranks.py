"""Ranks of ``probes/torch_bench.py`` for one job after another.

Started with the folder of ``probes``; reads a line for each job and writes what its
ranks print. torch takes seconds to import: one process does, and forks the ranks.
"""

from __future__ import annotations

import os
import sys

sys.path[:1] = [sys.argv[1], os.path.join(sys.argv[1], "tests")]

from ports import own_port  # noqa: E402

from probes import torch_bench  # noqa: E402

RANKS = 3


def become(rank: int, port: int, read: int) -> None:
    """Be one rank of a job, in a process of its own."""
    place = {"RANK": rank, "SIZE": RANKS, "LOCAL_RANK": rank}
    os.environ.update({f"OMPI_COMM_WORLD_{name}": str(n) for name, n in place.items()})
    sys.stdin = os.fdopen(read)
    sys.argv[1:] = [f"127.0.0.1:{port}", "gloo"]
    torch_bench.main()
    sys.stdout.flush()


def main() -> None:
    """Do the jobs; end with the status of the first that fails."""
    for line in sys.stdin:
        port = own_port()
        ranks = []
        for rank in range(RANKS):
            read, write = os.pipe()
            os.write(write, line.encode())
            os.close(write)
            if pid := os.fork():
                ranks.append(pid)
                os.close(read)
                continue
            become(rank, port, read)
            os._exit(0)
        for pid in ranks:
            if status := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
                sys.exit(status)


if __name__ == "__main__":
    main()
