"""How communicators come and go: checks, and cases that end a job."""

from __future__ import annotations

import ctypes
import sys
from threading import Thread
from typing import Any

import numpy as np
from nccl_members import (
    FIRST,
    GIVEN,
    IN_PROGRESS,
    LIBRARY,
    LOCAL,
    MAX,
    REMOTE_ERROR,
    SIZE,
    SUM,
    Config,
    Count,
    Crew,
    Member,
    allreduce,
    call,
    case,
    check,
    data,
    destroy,
    finish,
    grouped,
    next_id,
    parted,
    reordered,
    sums,
    traced,
    world,
)


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
    good &= all(ranks == [0, 1, 2] for _, ranks in traced())
    destroy(alone, *crews)
    return good


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
    ways = [reordered(ranks) for ranks in members]
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
    good &= all(ranks == reordered(GIVEN[::-1]) for _, ranks in traced())
    destroy(turned, second, first)
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


@case
def an_allreduce() -> bool:
    crew = world()
    good = sums(crew) and all(ranks == reordered(GIVEN) for _, ranks in traced())
    destroy(crew)
    return good and LIBRARY.standinAlive() == 0


@case
def roots_stay() -> bool:
    crew = world()
    sent = data(FIRST, 4)
    at = (Count(4), 8, SIZE - 1, crew[0].comm, crew[0].stream)
    call("Bcast", sent, *at)
    finish(crew)
    good = traced() == [("Broadcast", GIVEN)]
    destroy(crew)
    return good and bool((sent == data(SIZE - 1, 4)).all())


@case
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


@case
def an_abort_of_both() -> bool:
    call("CommAbort", stuck()[0].comm)
    return bool(LIBRARY.standinAlive() == 0)


@case
def a_revocation_of_both() -> bool:
    crew = stuck()
    call("CommRevoke", crew[0].comm, 0)
    destroy(crew)
    return bool(LIBRARY.standinAlive() == 0)


@case
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


@case
def an_error_of_the_shadow() -> bool:
    crew, state = world(), 0
    if not FIRST:
        kept = queued(crew, "AllReduce")
        while not (state := crew[0].ready()):
            assert not kept.any()
    call("CommAbort", crew[0].comm)
    return state == (0 if FIRST else REMOTE_ERROR)
