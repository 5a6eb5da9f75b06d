"""A program for processes that pose as hosts: what NCCL promises, one by one.

Every check compares with what nccl.h says the result is, so it says the same
with and without the shim. It also compares the order of ranks that allreduces run
in with ``PLACES``: of each rank's host in the map. The exit code is 1 if any failed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import numpy as np

FIRST = int(os.environ["FIRST"])
LOCAL = int(os.environ["LOCAL"])
SIZE = int(os.environ["SIZE"])
PLACES = json.loads(os.environ.get("PLACES", "[]"))
GIVEN = list(range(SIZE))
KNOWN = "CLOUDCOLL_SHIM_RANKS" in os.environ
"""Whether roots can be translated. The world turned round may then stay so."""
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


Check = Callable[[], bool]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


@check
def every_type_and_operation() -> bool:
    crew, good = world(), True
    fold = {SUM: np.add, PROD: np.multiply, MAX: np.maximum, MIN: np.minimum}
    for (op, ufunc), dtype in itertools.product(fold.items(), TYPES):
        for count in (0, 1, 3000):
            expected = ufunc.reduce(stacked(SIZE, count, dtype), dtype=dtype)
            outs = allreduce(crew, count, dtype, op)
            good &= all((out == expected).all() for out in outs)
    good &= all((out == stacked(SIZE, 9).mean(axis=0)).all()
                for out in allreduce(crew, 9, op=AVG))  # fmt: skip
    good &= all(ranks == reordered(GIVEN) for _, ranks in traced())
    destroy(crew)
    return good


@check
def in_place() -> bool:
    crew = world()
    buffers = [data(member.rank, 50) for member in crew]
    with grouped():
        for member, buffer in zip(crew, buffers, strict=True):
            at = (Count(50), 8, SUM, member.comm, member.stream)
            call("AllReduce", buffer, buffer, *at)
    finish(crew)
    destroy(crew)
    return all((b == stacked(SIZE, 50).sum(axis=0)).all() for b in buffers)


@check
def operations_of_the_application() -> bool:
    crew, factor = world(), ctypes.c_double(2.0)
    outs = [np.zeros(20) for _ in crew]
    ins = [data(member.rank, 20) for member in crew]
    with grouped():
        for member, mine, out in zip(crew, ins, outs, strict=True):
            op = ctypes.c_int(-1)
            call("RedOpCreatePreMulSum", ctypes.byref(op), ctypes.byref(factor), 8, 1,
                 member.comm)  # fmt: skip
            at = (Count(20), 8, op.value, member.comm, member.stream)
            call("AllReduce", mine, out, *at)
    finish(crew)
    good = all((o == 2 * stacked(SIZE, 20).sum(axis=0)).all() for o in outs)
    good &= all(ranks == GIVEN for _, ranks in traced())
    destroy(crew)
    return good


@check
def every_root() -> bool:
    crew, good = world(), True
    at: tuple[Any, ...]
    for root in range(SIZE):
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
        total = stacked(SIZE, 6000).sum(axis=0)
        good &= all((out == total).all() for m, out in zip(crew, outs, strict=True)
                    if m.rank == root)  # fmt: skip
    way = reordered(GIVEN) if KNOWN else GIVEN
    good &= all(ranks == way for _, ranks in traced())
    destroy(crew)
    return good


@check
def blocks_stay_with_their_ranks() -> bool:
    crew, good = world(), True
    outs = [np.zeros(10 * SIZE) for _ in crew]
    parts = [np.zeros(10) for _ in crew]
    heard = [np.zeros(10) for _ in crew]
    mine = [data(member.rank, 10) for member in crew]
    whole = [data(member.rank, 10 * SIZE) for member in crew]
    with grouped():
        for i, member in enumerate(crew):
            count, comm = Count(10), (member.comm, member.stream)
            call("AllGather", mine[i], outs[i], count, 8, *comm)
            call("ReduceScatter", whole[i], parts[i], count, 8, SUM, *comm)
            call("Send", mine[i], count, 8, (member.rank + 1) % SIZE, *comm)
            call("Recv", heard[i], count, 8, (member.rank - 1) % SIZE, *comm)
    finish(crew)
    total = stacked(SIZE, 10 * SIZE).sum(axis=0)
    for i, member in enumerate(crew):
        good &= bool((outs[i] == stacked(SIZE, 10).ravel()).all())
        good &= bool((parts[i] == total[10 * member.rank :][:10]).all())
        good &= bool((heard[i] == data((member.rank - 1) % SIZE, 10)).all())
    good &= all(ranks == GIVEN for _, ranks in traced())
    destroy(crew)
    return good


@check
def a_group_of_several_operations() -> bool:
    crew = world()
    total = [np.zeros(8) for _ in crew]
    most = [np.zeros(8) for _ in crew]
    mine = [data(member.rank, 8) for member in crew]
    all_of = [np.zeros(8 * SIZE) for _ in crew]
    with grouped(), grouped():
        for i, member in enumerate(crew):
            count, comm = Count(8), (member.comm, member.stream)
            call("AllReduce", mine[i], total[i], count, 8, SUM, *comm)
            call("AllGather", mine[i], all_of[i], count, 8, *comm)
            call("AllReduce", mine[i], most[i], count, 8, MAX, *comm)
    finish(crew)
    destroy(crew)
    good = all((t == stacked(SIZE, 8).sum(axis=0)).all() for t in total)
    good &= all((t == stacked(SIZE, 8).max(axis=0)).all() for t in most)
    return good and all((a == stacked(SIZE, 8).ravel()).all() for a in all_of)


@check
def every_way_to_begin() -> bool:
    crews = [world("Config"), world("Scalable")]
    good = all(sums(crew) for crew in crews)
    good &= [m.rank for m in crews[0]] == list(range(FIRST, FIRST + LOCAL))
    good &= all(ranks == reordered(GIVEN) for _, ranks in traced())
    comms = (ctypes.c_void_p * 3)()
    call("CommInitAll", comms, 3, None)
    alone = [Member(ctypes.c_void_p(comm)) for comm in comms]
    good &= [member.rank for member in alone] == [0, 1, 2] and sums(alone)
    destroy(alone, *crews)
    return good


def parted(crew: Crew, colors: Callable[[int], int], turned: bool = False) -> Crew:
    """Split; with `turned` the ranks of the parts are in reverse."""
    comms = [ctypes.c_void_p() for _ in crew]
    with grouped():
        for member, comm in zip(crew, comms, strict=True):
            key = -member.rank if turned else 0
            at = (member.comm, colors(member.rank), key, ctypes.byref(comm), None)
            call("CommSplit", *at)
    return [Member(comm) for comm in comms if comm]


@check
def communicators_of_the_application() -> bool:
    crew = world()
    halves = parted(crew, lambda rank: rank % 2)
    good = sums(halves) if halves else True
    turned = parted(crew, lambda rank: 3, turned=True)
    good &= [m.rank for m in turned] == [SIZE - 1 - m.rank for m in crew]
    good &= sums(turned)
    some = parted(crew, lambda rank: 0 if rank else -1)
    good &= len(some) == sum(member.rank > 0 for member in crew)
    good &= sums(some) if some else True
    members = [GIVEN[1::2], GIVEN[::2], GIVEN[::-1], GIVEN[1:]]
    ways = [reordered(ranks) for ranks in members] + [GIVEN[::-1]] * KNOWN
    good &= all(ranks in ways for _, ranks in traced())
    destroy(some, turned, halves, crew)
    return good


@check
def several_at_a_time() -> bool:
    crews, good = [world() for _ in range(3)], True
    for _ in range(5):
        for crew in crews:
            good &= sums(crew)
    destroy(crews[1])
    crews[1] = world()
    good &= all(sums(crew) for crew in crews)
    destroy(*crews)
    return good


@check
def a_captured_graph() -> bool:
    crew = world()
    outs = [np.zeros(100) for _ in crew]
    ins = [data(member.rank, 100) for member in crew]
    for member in crew:
        LIBRARY.standinBeginCapture(member.stream)
    with grouped():
        for member, mine, out in zip(crew, ins, outs, strict=True):
            at = (Count(100), 8, SUM, member.comm, member.stream)
            call("AllReduce", mine, out, *at)
    graphs = [ctypes.c_void_p(LIBRARY.standinEndCapture(m.stream)) for m in crew]
    good = all((out == 0).all() for out in outs)
    for _ in range(3):
        for member, graph in zip(crew, graphs, strict=True):
            LIBRARY.standinLaunch(graph, member.stream)
    finish(crew)
    destroy(crew)
    return good and all((out == stacked(SIZE, 100).sum(axis=0)).all() for out in outs)


def wait(crew: Crew) -> None:
    """Ask until the library has done what it has begun."""
    while any(member.ready() for member in crew):
        pass


def at_once(crew_size: int = LOCAL) -> Crew:
    """Return the world, made without waiting."""
    comms = [ctypes.c_void_p() for _ in range(crew_size)]
    config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 23007, 0)
    unique = next_id()
    with grouped():
        for index, comm in enumerate(comms):
            call("CommInitRankConfig", ctypes.byref(comm), SIZE, unique, FIRST + index,
                 ctypes.byref(config), allowed=IN_PROGRESS)  # fmt: skip
    state = ctypes.c_int(IN_PROGRESS)
    for comm in comms:
        while state.value == IN_PROGRESS:
            call("CommGetAsyncError", comm, ctypes.byref(state))
        state.value = IN_PROGRESS
    return [Member(comm) for comm in comms]


@check
def without_waiting() -> bool:
    first, second = at_once(), at_once()
    good = sums(first) and sums(second)
    comms = [ctypes.c_void_p() for _ in first]
    with grouped():
        for member, comm in zip(first, comms, strict=True):
            at = (member.comm, 1, -member.rank, ctypes.byref(comm), None)
            call("CommSplit", *at, allowed=IN_PROGRESS)
    wait(first)
    turned = [Member(comm) for comm in comms]
    good &= [m.rank for m in turned] == [SIZE - 1 - m.rank for m in first]
    good &= all(ranks == reordered(GIVEN) for _, ranks in traced())
    good &= sums(turned)
    ways = [reordered(GIVEN[::-1])] + [GIVEN[::-1]] * KNOWN
    good &= all(ranks in ways for _, ranks in traced())
    destroy(turned, second, first)
    return good


@check
def a_window_stays_where_it_is() -> bool:
    crew, window = world(), ctypes.c_void_p()
    good = sums(crew)
    for member in crew:
        at = (member.comm, None, Count(0), ctypes.byref(window), 1)
        call("CommWindowRegister", *at)
    traced()
    good &= sums(crew) and all(ranks == GIVEN for _, ranks in traced())
    destroy(crew)
    return good


@check
def a_world_without_one() -> bool:
    crew = world()
    left = [member for member in crew if member.rank != SIZE - 1]
    comms = [ctypes.c_void_p() for _ in left]
    gone = (ctypes.c_int * 1)(SIZE - 1)
    if SIZE > 1:
        with grouped():
            for member, comm in zip(left, comms, strict=True):
                at = (member.comm, gone, 1, ctypes.byref(comm), None, 0)
                call("CommShrink", *at)
    rest = [Member(comm) for comm in comms if comm]
    good = sums(rest) if rest else SIZE == 1 or not left
    good &= all(ranks == reordered(GIVEN[:-1]) for _, ranks in traced())
    destroy(rest, crew)
    return good


@check
def a_pause() -> bool:
    crew = world()
    for member in crew:
        call("CommSuspend", member.comm, 1)
    at = (Count(1), 8, SUM, crew[0].comm, crew[0].stream)
    refused = call("AllReduce", data(0, 1), data(0, 1), *at, allowed=4) == 4
    for member in crew:
        call("CommResume", member.comm)
    with_all = sums(crew)
    for member in crew:
        call("CommFinalize", member.comm)
    destroy(crew)
    return refused and with_all


@check
def a_group_that_is_only_simulated() -> bool:
    crew = world()
    out = np.zeros(8)
    call("GroupStart")
    at = (Count(8), 8, SUM, crew[0].comm, crew[0].stream)
    call("AllReduce", data(0, 8), out, *at)
    call("GroupSimulateEnd", None)
    good = sums(crew) and sums(again := world()) and not out.any()
    destroy(again, crew)
    return good


@check
def a_thread_per_rank() -> bool:
    unique, good = next_id(), []

    def one(rank: int) -> None:
        comm = ctypes.c_void_p()
        call("CommInitRank", ctypes.byref(comm), SIZE, unique, rank)
        crew = [Member(comm)]
        good.append(sums(crew))
        destroy(crew)

    threads = [Thread(target=one, args=(FIRST + i,)) for i in range(LOCAL)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return good == [True] * LOCAL


@check
def nothing_is_left() -> bool:
    return bool(LIBRARY.standinAlive() == 0)


# --- only where the command line names them ----------------------------------


def an_allreduce() -> bool:
    crew = world()
    good = sums(crew) and all(ranks == reordered(GIVEN) for _, ranks in traced())
    destroy(crew)
    return good and LIBRARY.standinAlive() == 0


def roots_stay() -> bool:
    crew = world()
    sent = data(FIRST, 4)
    at = (Count(4), 8, SIZE - 1, crew[0].comm, crew[0].stream)
    call("Bcast", sent, *at)
    finish(crew)
    good = traced() == [("Broadcast", GIVEN)]
    destroy(crew)
    return good and bool((sent == data(SIZE - 1, 4)).all())


def sums_of_floats_stay() -> bool:
    crew = world()
    allreduce(crew)
    allreduce(crew, op=MAX)
    allreduce(crew, dtype="int64")
    orders = [ranks for _, ranks in traced()][:: len(crew)]
    destroy(crew)
    return orders == [GIVEN, reordered(GIVEN), reordered(GIVEN)]


def queued(crew: Crew, name: str) -> Any:
    """Return a buffer that an operation of rank 0 alone will never fill."""
    out = np.zeros(8 * SIZE)
    op = [SUM] if name == "AllReduce" else []
    at = (Count(8), 8, *op, crew[0].comm, crew[0].stream)
    call(name, data(0, 8), out, *at)
    return out


def stuck() -> Crew:
    """Return a world in which rank 0 alone has called, on both communicators."""
    crew = world()
    if FIRST:
        sys.stdin.read()  # until rank 0 has ended
    else:
        kept = [queued(crew, name) for name in ("AllGather", "AllReduce")]
        assert [ranks for _, ranks in traced()] == [GIVEN, reordered(GIVEN)], kept
    return crew


def an_abort_of_both() -> bool:
    call("CommAbort", stuck()[0].comm)
    return bool(LIBRARY.standinAlive() == 0)


def a_revocation_of_both() -> bool:
    crew = stuck()
    call("CommRevoke", crew[0].comm, 0)
    destroy(crew)
    return bool(LIBRARY.standinAlive() == 0)


def a_survivor() -> bool:
    crew = stuck()
    if FIRST:
        call("CommAbort", crew[0].comm)
        return True
    comm, gone = ctypes.c_void_p(), (ctypes.c_int * 1)(1)
    call("CommShrink", crew[0].comm, gone, 1, ctypes.byref(comm), None, 1)
    alone = [Member(comm)]
    good = sums(alone) and alone[0].size == 1
    destroy(alone, crew)
    return good and LIBRARY.standinAlive() == 0


def an_error_of_the_shadow() -> bool:
    crew, state = world(), 0
    if not FIRST:
        kept = queued(crew, "AllReduce")
        while not (state := crew[0].ready()):
            assert not kept.any()
    call("CommAbort", crew[0].comm)
    return state == (0 if FIRST else REMOTE_ERROR)


def main(names: list[str]) -> int:
    """Run all checks, or some; print those that failed and how many there were."""
    chosen = [globals()[name] for name in names] or CHECKS
    failed = []
    for function in chosen:
        traced()
        if not function():
            failed.append(function.__name__)
    for name in failed:
        print(f"rank {FIRST}: {name} failed")
    print(f"{len(chosen)} checks, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
