"""The ranks of this process, on the library that stands for NCCL.

What a check needs to call it as a program does that is linked with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

FIRST = int(os.environ["FIRST"])
LOCAL = int(os.environ["LOCAL"])
SIZE = int(os.environ["SIZE"])
PLACES = json.loads(os.environ.get("PLACES", "[]"))
GIVEN = list(range(SIZE))
KNOWN = "CLOUDCOLL_SHIM_ROLL" in os.environ
"""Whether the shim knows where all ranks are, so that roots can be translated."""
SUM, PROD, MAX, MIN, AVG = range(5)
TYPES = {"int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float32": 7, "float64": 8}
REMOTE_ERROR, IN_PROGRESS = 6, 7
Count = ctypes.c_size_t

ctypes.CDLL(os.environ["STANDIN"], mode=ctypes.RTLD_GLOBAL)
# What the loader would give a program that is linked with the library.
LIBRARY = ctypes.CDLL(None)
LIBRARY.standinStream.restype = ctypes.c_void_p
LIBRARY.standinEndCapture.restype = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    ]


def call(name: str, *arguments: Any, allowed: int = 0) -> int:
    """Call a function of the library; `allowed` is one more code that may come."""
    plain = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else a
             for a in arguments]  # fmt: skip
    code = int(getattr(LIBRARY, "nccl" + name)(*plain))
    if code not in (0, allowed):
        raise RuntimeError(f"nccl{name} returned {code}")
    return code


@contextlib.contextmanager
def grouped() -> Iterator[None]:
    call("GroupStart")
    yield
    call("GroupEnd", allowed=IN_PROGRESS)


_ids = itertools.count()


def next_id() -> UniqueId:
    """Return an id that all processes make alike, as long as they make as many."""
    return UniqueId(f"{os.environ['JOB']}-{next(_ids)}".encode())


class Member:
    """One rank of a communicator in this process, with a stream of its own."""

    def __init__(self, comm: ctypes.c_void_p) -> None:
        self.comm = comm
        self.stream = ctypes.c_void_p(LIBRARY.standinStream())
        rank, size = ctypes.c_int(-1), ctypes.c_int(-1)
        call("CommUserRank", comm, ctypes.byref(rank))
        call("CommCount", comm, ctypes.byref(size))
        self.rank, self.size = rank.value, size.value

    def ready(self) -> int:
        """Return the state that the library tells."""
        state = ctypes.c_int(-1)
        call("CommGetAsyncError", self.comm, ctypes.byref(state))
        return state.value


Crew = list[Member]


def reordered(ranks: list[int]) -> list[int]:
    """Return members of the world as an allreduce of them should run."""
    return sorted(ranks, key=PLACES.__getitem__) if PLACES else ranks


def world(init: str = "Rank") -> Crew:
    """Return a communicator of all ranks, made in one of the ways there are."""
    comms = [ctypes.c_void_p() for _ in range(LOCAL)]
    unique = next_id()
    with grouped():
        for index, comm in enumerate(comms):
            rank = FIRST + index
            at: tuple[Any, ...]
            if init == "Scalable":
                ids = (UniqueId * 1)(unique)
                at = (ctypes.byref(comm), SIZE, rank, 1, ids, None)
                call("CommInitRankScalable", *at)
            elif init == "Config":
                at = (ctypes.byref(comm), SIZE, unique, rank, None)
                call("CommInitRankConfig", *at)
            else:
                call("CommInitRank", ctypes.byref(comm), SIZE, unique, rank)
    return [Member(comm) for comm in comms]


def parted(crew: Crew, colors: Callable[[int], int], turned: bool = False) -> Crew:
    """Split; with `turned` the ranks of the parts are in reverse."""
    comms = [ctypes.c_void_p() for _ in crew]
    with grouped():
        for member, comm in zip(crew, comms, strict=True):
            key = -member.rank if turned else 0
            at = (member.comm, colors(member.rank), key, ctypes.byref(comm), None)
            call("CommSplit", *at)
    return [Member(comm) for comm in comms if comm]


def destroy(*crews: Crew) -> None:
    for crew in crews:
        for member in crew:
            call("CommDestroy", member.comm)


def finish(crew: Crew) -> None:
    for member in crew:
        LIBRARY.standinSynchronize(member.stream)


def traced() -> list[tuple[str, list[int]]]:
    """Return what was called since the last time, with its order of ranks."""
    text = ctypes.create_string_buffer(1 << 16)
    LIBRARY.standinTrace(text, Count(len(text)))
    lines = [line.split() for line in text.value.decode().splitlines()]
    return [(name, [int(r) for r in ranks.split(",")]) for name, ranks in lines]


def data(rank: int, count: int, dtype: str = "float64") -> Any:
    return (np.arange(count) % 5 + rank + 1).astype(dtype)


def stacked(size: int, count: int, dtype: str = "float64") -> Any:
    return np.array([data(rank, count, dtype) for rank in range(size)])


def allreduce(
    crew: Crew, count: int = 100, dtype: str = "float64", op: int = SUM
) -> list[Any]:
    outs = [np.zeros(count, dtype) for _ in crew]
    ins = [data(member.rank, count, dtype) for member in crew]
    with grouped():
        for member, mine, out in zip(crew, ins, outs, strict=True):
            at = (Count(count), TYPES[dtype], op, member.comm, member.stream)
            call("AllReduce", mine, out, *at)
    finish(crew)
    return outs


def sums(crew: Crew) -> bool:
    """Return whether an allreduce of doubles is right."""
    size = crew[0].size
    return all((o == stacked(size, 100).sum(axis=0)).all() for o in allreduce(crew))


def every_root(crew: Crew) -> bool:
    """Return whether whatever has a root is right with each of them."""
    size, good = crew[0].size, True
    at: tuple[Any, ...]
    for root in range(size):
        sent = [data(member.rank, 6000) for member in crew]
        kept, outs = [b.copy() for b in sent], [np.zeros(6000) for _ in crew]
        with grouped():
            for member, buffer, out in zip(crew, sent, outs, strict=True):
                at = (Count(6000), 8, root, member.comm, member.stream)
                call("Broadcast", buffer, out, *at)
        finish(crew)
        good &= all((out == data(root, 6000)).all() for out in outs)
        with grouped():
            for member, buffer in zip(crew, sent, strict=True):
                at = (Count(6000), 8, root, member.comm, member.stream)
                call("Bcast", buffer, *at)
        finish(crew)
        good &= all((buffer == data(root, 6000)).all() for buffer in sent)
        with grouped():
            for member, buffer, out in zip(crew, kept, outs, strict=True):
                at = (Count(6000), 8, SUM, root, member.comm, member.stream)
                call("Reduce", buffer, out, *at)
        finish(crew)
        total = stacked(size, 6000).sum(axis=0)
        good &= all((out == total).all() for m, out in zip(crew, outs, strict=True)
                    if m.rank == root)  # fmt: skip
    return good


Check = Callable[[], bool]
CHECKS: list[Check] = []
CASES: dict[str, Check] = {}
"""All checks, and what runs only where it is asked for by name."""


def check(function: Check) -> Check:
    CHECKS.append(function)
    return case(function)


def case(function: Check) -> Check:
    CASES[function.__name__] = function
    return function
