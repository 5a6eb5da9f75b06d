"""Time MPI_Allreduce in several rank orders, interleaved, in one MPI job.

Every order is a communicator split from MPI_COMM_WORLD with a key per rank,
so that orders take turns within milliseconds and drift hits them alike.

Rank 0 reads one line of JSON from stdin::

    {"orders": {NAME: [key of rank 0, key of rank 1, ...]},
     "sizes": [BYTES, ...], "repeats": N, "min_seconds": S}

and writes JSON lines to stdout: first ``{"library", "hosts"}`` (host name of
each rank), then one row per measurement with ``op bytes order repeat time_us
wrong``. Times are the slowest rank's, averaged over the calls that fit into
``min_seconds``.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

MAX_CALLS = 200


def expected_sum(ranks: int, dtype: np.dtype[Any]) -> Any:
    """Return the sum of what all ranks contribute; exact in float32."""
    return dtype.type(sum(rank % 7 + 1 for rank in range(ranks)))


def timed_calls(comm: MPI.Comm, send: Any, recv: Any, calls: int) -> float:
    """Return seconds of one call, averaged, on the slowest rank."""
    comm.Barrier()
    start = time.perf_counter()
    for _ in range(calls):
        comm.Allreduce(send, recv, op=MPI.SUM)
    elapsed = (time.perf_counter() - start) / calls
    return float(comm.allreduce(elapsed, op=MPI.MAX))


def measure(
    world: MPI.Intracomm,
    comms: dict[str, MPI.Comm],
    size: int,
    spec: dict[str, Any],
    write: Callable[..., None],
) -> None:
    """Warm up, then time every order once per repeat, in a rotating order."""
    dtype = np.dtype(np.float32)
    send = np.full(max(size // dtype.itemsize, 1), world.rank % 7 + 1, dtype)
    recv = np.empty_like(send)
    expected = expected_sum(world.size, dtype)
    names = list(comms)
    calls = {}
    for name in names:
        seconds = timed_calls(comms[name], send, recv, 1)
        wanted = int(spec["min_seconds"] / max(seconds, 1e-9))
        # Rank 0 of the world decides, so that all ranks count alike.
        calls[name] = world.bcast(max(1, min(wanted, MAX_CALLS)))
    for repeat in range(spec["repeats"]):
        shift = repeat % len(names)
        for name in names[shift:] + names[:shift]:
            recv.fill(-1)
            seconds = timed_calls(comms[name], send, recv, calls[name])
            wrong = world.allreduce(int(np.count_nonzero(recv != expected)))
            write(
                op="allreduce",
                bytes=send.nbytes,
                order=name,
                repeat=repeat,
                time_us=seconds * 1e6,
                calls=calls[name],
                wrong=wrong,
            )


def main() -> None:
    """Run the job that rank 0 reads from stdin."""
    world = MPI.COMM_WORLD
    # One line: mpirun does not always pass the end of its input on.
    spec = json.loads(sys.stdin.readline()) if world.rank == 0 else None
    spec = world.bcast(spec)

    def write(**row: Any) -> None:
        if world.rank == 0:
            print(json.dumps(row), flush=True)

    hosts = world.gather(socket.gethostname())
    write(library=MPI.Get_library_version().split("\n")[0].split(",")[0], hosts=hosts)
    comms = {
        name: world.Split(0, keys[world.rank]) for name, keys in spec["orders"].items()
    }
    for size in spec["sizes"]:
        measure(world, comms, size, spec, write)
    for comm in comms.values():
        comm.Free()


if __name__ == "__main__":
    main()
