"""Run under mpirun: the bytes that Open MPI sends in one call of each algorithm.

    mpirun -n N --mca pml_monitoring_enable 1 ... python sent_bytes.py CASES OUT

Algorithms are forced through MPI_T between calls, and bytes are read from the
library's own monitoring: exact, per pair of ranks, without headers. CASES is a
JSON list of {"call": collective, "root": rank, "elements": of float32, "forced":
{control variable: value}, "members": of the first so many ranks, if not of all}; OUT
gets a matrix [src][dst] for each.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

PVAR_CLASS_SIZE = 2


class Tools:
    """The few functions of MPI_T needed; every error is an exception."""

    def __init__(self, comm: MPI.Comm) -> None:
        maps = Path("/proc/self/maps").read_text().splitlines()
        path = next(line.split()[-1] for line in maps if "libmpi.so" in line)
        self._lib = ctypes.CDLL(path)
        self._call("init_thread", 0, ctypes.byref(ctypes.c_int()))
        self._ranks = comm.size
        session, self._bytes = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("pvar_session_create", ctypes.byref(session))
        index, count = ctypes.c_int(), ctypes.c_int()
        name = b"pml_monitoring_messages_size"
        self._call("pvar_get_index", name, PVAR_CLASS_SIZE, ctypes.byref(index))
        self._call(
            "pvar_handle_alloc",
            session,
            index,
            ctypes.byref(ctypes.c_void_p(MPI._handleof(comm))),
            ctypes.byref(self._bytes),
            ctypes.byref(count),
        )
        assert count.value == self._ranks
        self._call("pvar_start", session, self._bytes)
        self._session = session

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._lib, f"MPI_T_{name}")(*arguments)
        if code:
            raise RuntimeError(f"MPI_T_{name} returned {code}")

    def sent(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the bytes sent to each rank so far."""
        values = (ctypes.c_size_t * self._ranks)()
        self._call("pvar_read", self._session, self._bytes, values)
        return np.array(values[:], dtype=np.int64)

    def force(self, variable: str, value: int) -> None:
        """Set a control variable, for communicators made from now on."""
        index, count, handle = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self._call("cvar_get_index", variable.encode(), ctypes.byref(index))
        self._call(
            "cvar_handle_alloc", index, None, ctypes.byref(handle), ctypes.byref(count)
        )
        self._call("cvar_write", handle, ctypes.byref(ctypes.c_int(value)))
        self._call("cvar_handle_free", ctypes.byref(handle))


def calls(comm: MPI.Comm, elements: int, root: int) -> dict[str, Callable[[], None]]:
    """Return the collectives, on a full vector of so many elements."""
    full, result = np.ones(elements, np.float32), np.zeros(elements, np.float32)
    part = np.ones(elements // comm.size, np.float32)
    counts = [len(part)] * comm.size
    return {
        "allgather": lambda: comm.Allgather(part, result),
        "allreduce": lambda: comm.Allreduce(full, result),
        "alltoall": lambda: comm.Alltoall(full, result),
        "bcast": lambda: comm.Bcast(full, root),
        "reduce": lambda: comm.Reduce(full, result, root=root),
        "reduce_scatter": lambda: comm.Reduce_scatter(full, part, counts),
        "reduce_scatter_block": lambda: comm.Reduce_scatter_block(full, part),
    }


def main(cases: Path, out: Path) -> None:
    """Run the cases and write what was sent."""
    world = MPI.COMM_WORLD
    tools = Tools(world)
    found = []
    for case in json.loads(cases.read_text()):
        for variable, value in case["forced"].items():
            tools.force(variable, value)
        members = case.get("members", world.size)
        comm = world.Split(world.rank < members)
        if world.rank >= members:
            # The others wait: what they would send is not asked for.
            comm.Free()
            world.Barrier()
            world.Barrier()
            world.gather([0] * world.size)
            continue
        call = calls(comm, case["elements"], case["root"])[case["call"]]
        world.Barrier()
        before = tools.sent()
        call()
        after = tools.sent()
        world.Barrier()
        found.append(world.gather((after - before).tolist()))
        comm.Free()
    if world.rank == 0:
        out.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
