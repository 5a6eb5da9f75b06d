"""A program for processes that pose as hosts: what NCCL promises, one by one.

Every check compares with what nccl.h says the result is, so it says the same
with and without the shim. It also compares the order of ranks that allreduces run
in with ``PLACES``: of each rank's host in the map. The exit code is 1 if any failed.
"""

from __future__ import annotations

import ctypes
import itertools
import sys

import nccl_lives  # noqa: F401 -- its checks are among CHECKS
import numpy as np
from nccl_members import (
    AVG,
    CASES,
    CHECKS,
    FIRST,
    GIVEN,
    KNOWN,
    LIBRARY,
    MAX,
    MIN,
    PROD,
    SIZE,
    SUM,
    TYPES,
    Count,
    allreduce,
    call,
    check,
    data,
    destroy,
    every_root,
    finish,
    grouped,
    parted,
    reordered,
    stacked,
    sums,
    traced,
    world,
)


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
def roots_of_the_world() -> bool:
    crew = world()
    good = every_root(crew)
    way = reordered(GIVEN) if KNOWN else GIVEN
    good &= all(ranks == way for _, ranks in traced())
    destroy(crew)
    return good


@check
def roots_of_a_part() -> bool:
    crew = world()
    turned = parted(crew, lambda rank: 3, turned=True)
    good = every_root(turned)
    way = reordered(GIVEN[::-1]) if KNOWN else GIVEN[::-1]
    good &= all(ranks == way for _, ranks in traced())
    destroy(turned, crew)
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
def nothing_is_left() -> bool:
    return bool(LIBRARY.standinAlive() == 0)


def main(names: list[str]) -> int:
    """Run all checks, or some; print those that failed and how many there were."""
    chosen = [CASES[name] for name in names] or CHECKS
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
