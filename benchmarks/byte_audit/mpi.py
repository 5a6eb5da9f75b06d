"""Call collectives of MPI and count what each call sends.

    mpirun ... python mpi.py CASES

Settings are control variables of the library (MPI_T) and their values.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from counting import Call, Job, Unavailable
from mpi4py import MPI

LIBRARY = MPI.Get_library_version()
VERSION = re.sub(r"[,\n].*|Version:\s+|\bv(?=\d)", "", LIBRARY, flags=re.DOTALL)
LONGEST = 1 << 14
"""Bytes of a description of a variable, at most."""


class Variable:
    """A control variable of the library (MPI 4.1, section 15.3)."""

    def __init__(self, name: str) -> None:
        # Through mpi4py, so that it is the library that mpi4py uses.
        self._library = ctypes.CDLL(MPI.__file__)
        self._name = name
        self._index, self._handle = ctypes.c_int(), ctypes.c_void_p()
        level, count = ctypes.c_int(), ctypes.c_int()
        self._call("init_thread", MPI.THREAD_SINGLE, ctypes.byref(level))
        self._call("cvar_get_index", name.encode(), ctypes.byref(self._index))
        place = (ctypes.byref(self._handle), ctypes.byref(count))
        self._call("cvar_handle_alloc", self._index, None, *place)

    def _call(self, function: str, *arguments: Any) -> None:
        if code := getattr(self._library, f"MPI_T_{function}")(*arguments):
            raise Unavailable(f"MPI_T_{function} of {self._name} failed: {code}")

    @property
    def value(self) -> int:
        """Its number."""
        number = ctypes.c_int()
        self._call("cvar_read", self._handle, ctypes.byref(number))
        return number.value

    @value.setter
    def value(self, number: int) -> None:
        self._call("cvar_write", self._handle, ctypes.byref(ctypes.c_int(number)))

    def number(self, word: str) -> int:
        """Return the number of a word: its place in MPICH's description."""
        text = ctypes.create_string_buffer(LONGEST)
        length, skipped = ctypes.c_int(LONGEST), ctypes.c_int()
        ignored = [ctypes.byref(ctypes.c_void_p()) for _ in range(2)]
        self._call(
            *("cvar_get_info", self._index, None, ctypes.byref(skipped)),
            *(ctypes.byref(skipped), *ignored, text, ctypes.byref(length)),
            *(ctypes.byref(skipped), ctypes.byref(skipped)),
        )
        # MPICH 4.0 leaves the line breaks out.
        pattern = r"(?:^|algorithm|Allgather|Tree|\))\s*(\w+) +- "
        words = re.findall(pattern, text.value.decode(), re.MULTILINE)
        if word not in words:
            raise Unavailable(f"{self._name} has no {word!r} (known: {words})")
        return words.index(word)


@contextlib.contextmanager
def settings(wanted: dict[str, int | str]) -> Iterator[None]:
    """Set control variables, by number or word, for the body of ``with``."""
    variables = {Variable(name): value for name, value in wanted.items()}
    before = {variable: variable.value for variable in variables}
    try:
        for variable, value in variables.items():
            variable.value = value if isinstance(value, int) else variable.number(value)
        yield
    finally:
        for variable, number in before.items():
            variable.value = number


def collective(comm: MPI.Intracomm, name: str, size: int, root: int) -> Call:
    """Return a function that calls a collective once; `size` is the full vector."""
    whole = np.ones(max(size // 4, 1), np.float32)
    other = np.empty_like(whole)
    part = np.ones(max(size // 4 // comm.size, 1), np.float32)
    calls: dict[str, Call] = {
        "allgather": lambda: comm.Allgather(part, other),
        "allreduce": lambda: comm.Allreduce(whole, other),
        "alltoall": lambda: comm.Alltoall(whole, other),
        "barrier": comm.Barrier,
        "bcast": lambda: comm.Bcast(whole, root),
        "reduce": lambda: comm.Reduce(whole, other, root=root),
        "reduce_scatter": lambda: comm.Reduce_scatter(whole, part),
        "reduce_scatter_block": lambda: comm.Reduce_scatter_block(whole, part),
    }
    return calls[name]


@contextlib.contextmanager
def prepare(case: dict[str, Any]) -> Iterator[Call]:
    """Give the call of a case while its settings hold."""
    world = MPI.COMM_WORLD
    with settings(case["settings"]):
        # Open MPI looks at its variables when a communicator is made, MPICH at
        # every call: those too that make a communicator.
        comm = world.Dup() if "Open MPI" in VERSION else world
        yield collective(comm, case["call"], case["size"], case["root"])
    if comm != world:
        comm.Free()


def leave() -> None:
    """End this process without ``MPI_Finalize`` where that can hang.

    Until 4.1 a rank of MPICH that has closed its connections by UCX waits for
    the others without answering them (pull request 6596 of pmodels/mpich).
    """
    if re.match(r"MPICH (3|4\.[01])\b", VERSION):
        MPI.COMM_WORLD.Barrier()
        # What is printed was flushed.
        os._exit(0)


if __name__ == "__main__":
    WORLD = MPI.COMM_WORLD
    Job(WORLD.rank, WORLD.allgather, WORLD.Barrier, prepare).run(VERSION)
    leave()
