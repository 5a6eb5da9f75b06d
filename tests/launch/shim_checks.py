"""A program for ranks that pose as hosts: what MPI promises, checked one by one.

Every check compares with what the standard says the result is, so it says the
same with and without the shim. Rank 0 prints a line per check that failed and
how many there were; the exit code is not zero if any failed anywhere.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

Check = Callable[[MPI.Intracomm], bool]
CHECKS: list[tuple[str, Check]] = []


def check(function: Check) -> Check:
    CHECKS.append((function.__name__, function))
    return function


def ramp(rank: int, count: int, dtype: Any = np.int64) -> Any:
    return (np.arange(count) * 7 + rank * rank + 3).astype(dtype)


def stacked(comm: MPI.Comm, count: int, dtype: Any = np.int64) -> Any:
    return np.array([ramp(rank, count, dtype) for rank in range(comm.size)])


# --- allreduce ---------------------------------------------------------------

OPERATIONS: dict[str, tuple[MPI.Op, Any]] = {
    "sum": (MPI.SUM, np.add),
    "prod": (MPI.PROD, np.multiply),
    "max": (MPI.MAX, np.maximum),
    "min": (MPI.MIN, np.minimum),
    "band": (MPI.BAND, np.bitwise_and),
    "bor": (MPI.BOR, np.bitwise_or),
    "bxor": (MPI.BXOR, np.bitwise_xor),
}


def allreduces(name: str, dtype: Any) -> Check:
    op, ufunc = OPERATIONS[name]

    def run(comm: MPI.Intracomm) -> bool:
        good = True
        for count in (0, 1, 3, 1000, 40000):
            out = np.empty(count, dtype)
            comm.Allreduce(ramp(comm.rank, count, dtype), out, op)
            good &= bool(
                (out == ufunc.reduce(stacked(comm, count, dtype), dtype=dtype)).all()
            )
        return good

    return run


for _name in OPERATIONS:
    for _dtype in (np.int32, np.uint64):
        CHECKS.append(
            (f"allreduce_{_name}_{_dtype.__name__}", allreduces(_name, _dtype))
        )


@check
def allreduce_float_max_is_bitwise(comm: MPI.Intracomm) -> bool:
    data = np.sqrt(stacked(comm, 999, np.float64))
    out = np.empty(999)
    comm.Allreduce(data[comm.rank], out, MPI.MAX)
    return bool(out.tobytes() == data.max(axis=0).tobytes())


@check
def allreduce_float_sum_is_close(comm: MPI.Intracomm) -> bool:
    data = np.sqrt(stacked(comm, 999, np.float64))
    out = np.empty(999)
    comm.Allreduce(data[comm.rank], out)
    return bool(np.allclose(out, data.sum(axis=0), rtol=1e-14))


@check
def allreduce_same_bits_everywhere(comm: MPI.Intracomm) -> bool:
    out = np.empty(5000)
    comm.Allreduce(np.sqrt(ramp(comm.rank, 5000, np.float64)), out)
    return len(set(comm.allgather(out.tobytes()))) == 1


@check
def allreduce_in_place(comm: MPI.Intracomm) -> bool:
    data = ramp(comm.rank, 777)
    comm.Allreduce(MPI.IN_PLACE, data)
    return bool((data == stacked(comm, 777).sum(axis=0)).all())


@check
def allreduce_maxloc(comm: MPI.Intracomm) -> bool:
    value, where = comm.allreduce((comm.rank % 3, comm.rank), MPI.MAXLOC)
    best = max(rank % 3 for rank in range(comm.size))
    return bool((value, where) == (best, best))


@check
def allreduce_complex(comm: MPI.Intracomm) -> bool:
    out = np.empty(9, np.complex128)
    comm.Allreduce(ramp(comm.rank, 9, np.complex128) * 1j, out)
    return bool((out == stacked(comm, 9, np.complex128).sum(axis=0) * 1j).all())


def then(a: Any, b: Any, datatype: MPI.Datatype) -> None:
    """Compose x -> a1 x + a0 with the next one: associative, not commutative."""
    left = np.frombuffer(a, np.int64).reshape(-1, 2)
    right = np.frombuffer(b, np.int64).reshape(-1, 2)
    high = (left[:, 0] * right[:, 0]) % 10007
    low = (left[:, 1] * right[:, 0] + right[:, 1]) % 10007
    right[:, 0], right[:, 1] = high, low


def composed(size: int, count: int) -> Any:
    total = np.array([ramp(0, 2 * count) % 10007]).reshape(-1, 2)
    for rank in range(1, size):
        step = (ramp(rank, 2 * count) % 10007).reshape(-1, 2)
        then(total.tobytes(), step, MPI.INT64_T)
        total = step
    return total.reshape(-1)


def pairs(comm: MPI.Intracomm, reduce: Callable[..., Any], root: int | None) -> bool:
    # One element is a pair, so that no algorithm cuts through one.
    pair = MPI.INT64_T.Create_contiguous(2).Commit()
    op = MPI.Op.Create(then, commute=False)
    out = np.zeros(2 * 50, np.int64)
    mine = ramp(comm.rank, 100) % 10007
    reduce([mine, 50, pair], [out, 50, pair], op)
    op.Free()
    pair.Free()
    return root not in (None, comm.rank) or bool((out == composed(comm.size, 50)).all())


@check
def allreduce_non_commutative(comm: MPI.Intracomm) -> bool:
    return pairs(comm, comm.Allreduce, None)


@check
def reduce_non_commutative(comm: MPI.Intracomm) -> bool:
    root = comm.size - 1
    return pairs(comm, lambda a, b, op: comm.Reduce(a, b, op, root), root)


@check
def allreduce_own_commutative(comm: MPI.Intracomm) -> bool:
    def modular(a: Any, b: Any, datatype: MPI.Datatype) -> None:
        left, right = np.frombuffer(a, np.int64), np.frombuffer(b, np.int64)
        right[:] = (left + right) % 1009

    op = MPI.Op.Create(modular, commute=True)
    out = np.empty(333, np.int64)
    comm.Allreduce(ramp(comm.rank, 333), out, op)
    op.Free()
    expected = stacked(comm, 333).sum(axis=0) % 1009
    return bool((out % 1009 == expected).all())


# --- rooted ------------------------------------------------------------------


@check
def bcast_from_every_root(comm: MPI.Intracomm) -> bool:
    good = True
    for root in range(comm.size):
        for count in (0, 1, 5000):
            data = ramp(root if comm.rank == root else 99, count)
            comm.Bcast(data, root)
            good &= bool((data == ramp(root, count)).all())
    return good


@check
def bcast_of_objects(comm: MPI.Intracomm) -> bool:
    roots = range(comm.size)
    return all(comm.bcast({"from": comm.rank}, r) == {"from": r} for r in roots)


@check
def bcast_of_a_strided_type(comm: MPI.Intracomm) -> bool:
    column = MPI.INT32_T.Create_vector(10, 1, 4).Commit()
    data = np.full((10, 4), comm.rank, np.int32)
    root = comm.size // 2
    comm.Bcast([data, 1, column], root)
    column.Free()
    return bool((data[:, 0] == root).all() and (data[:, 1:] == comm.rank).all())


@check
def bcast_with_types_of_two_shapes(comm: MPI.Intracomm) -> bool:
    four = MPI.INT32_T.Create_contiguous(4).Commit()
    data = np.full(8, comm.rank, np.int32)
    spec = [data, 2, four] if comm.rank % 2 else [data, 8, MPI.INT32_T]
    comm.Bcast(spec, 0)
    four.Free()
    return bool((data == 0).all())


@check
def reduce_to_every_root(comm: MPI.Intracomm) -> bool:
    good = True
    for root in range(comm.size):
        out = np.full(100, -1)
        comm.Reduce(ramp(comm.rank, 100), out, root=root)
        expected = stacked(comm, 100).sum(axis=0) if root == comm.rank else -1
        good &= bool((out == expected).all())
    return good


@check
def reduce_in_place_at_root(comm: MPI.Intracomm) -> bool:
    root, data = comm.size - 1, ramp(comm.rank, 64)
    if comm.rank == root:
        comm.Reduce(MPI.IN_PLACE, data, MPI.SUM, root)
        return bool((data == stacked(comm, 64).sum(axis=0)).all())
    comm.Reduce(data, None, MPI.SUM, root)
    return bool((data == ramp(comm.rank, 64)).all())


# --- allgather ---------------------------------------------------------------


@check
def allgather_in_order(comm: MPI.Intracomm) -> bool:
    good = True
    for count in (0, 1, 100, 9000):
        out = np.full((comm.size, count), -1)
        comm.Allgather(ramp(comm.rank, count), out)
        good &= bool((out == stacked(comm, count)).all())
    return good


@check
def allgather_in_place(comm: MPI.Intracomm) -> bool:
    out = np.full((comm.size, 30), -1)
    out[comm.rank] = ramp(comm.rank, 30)
    comm.Allgather(MPI.IN_PLACE, out)
    return bool((out == stacked(comm, 30)).all())


@check
def allgather_with_types_of_two_shapes(comm: MPI.Intracomm) -> bool:
    three = MPI.INT64_T.Create_contiguous(3).Commit()
    out = np.full((comm.size, 6), -1)
    spec = [out, 2, three] if comm.rank % 2 else [out, 6, MPI.INT64_T]
    comm.Allgather(ramp(comm.rank, 6), spec)
    three.Free()
    return bool((out == stacked(comm, 6)).all())


@check
def allgather_of_a_resized_type(comm: MPI.Intracomm) -> bool:
    wide = MPI.INT64_T.Create_resized(0, 24).Commit()
    out = np.full((comm.size, 2, 3), -1)
    comm.Allgather(ramp(comm.rank, 2), [out, 2, wide])
    wide.Free()
    right = (out[:, :, 0] == stacked(comm, 2)).all()
    return bool(right and (out[:, :, 1:] == -1).all())


@check
def allgather_of_objects(comm: MPI.Intracomm) -> bool:
    return comm.allgather("x" * comm.rank) == ["x" * r for r in range(comm.size)]


def ragged(comm: MPI.Intracomm, gaps: int) -> tuple[list[int], list[int], Any]:
    counts = [(3 * r) % 5 for r in range(comm.size)]
    # Last rank's block first, with holes between.
    places = [0] * comm.size
    end = 0
    for r in reversed(range(comm.size)):
        places[r], end = end, end + counts[r] + gaps
    expected = np.full(end + 1, -1)
    for r in range(comm.size):
        expected[places[r] : places[r] + counts[r]] = ramp(r, counts[r])
    return counts, places, expected


@check
def allgatherv_with_gaps(comm: MPI.Intracomm) -> bool:
    counts, places, expected = ragged(comm, 2)
    out = np.full(expected.size, -1)
    mine = ramp(comm.rank, counts[comm.rank])
    comm.Allgatherv(mine, [out, counts, places, MPI.INT64_T])
    return bool((out == expected).all())


@check
def allgatherv_in_place(comm: MPI.Intracomm) -> bool:
    counts, places, expected = ragged(comm, 0)
    out = np.full(expected.size, -1)
    at, count = places[comm.rank], counts[comm.rank]
    out[at : at + count] = ramp(comm.rank, count)
    comm.Allgatherv(MPI.IN_PLACE, [out, counts, places, MPI.INT64_T])
    return bool((out == expected).all())


# --- what is left alone --------------------------------------------------------


@check
def ranks_keep_their_numbers(comm: MPI.Intracomm) -> bool:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    status = MPI.Status()
    got = comm.sendrecv(comm.rank, right, source=left, status=status)
    return bool(got == left == status.Get_source())


@check
def reduce_scatter_block(comm: MPI.Intracomm) -> bool:
    out = np.empty(5, np.int64)
    data = np.arange(5 * comm.size) + comm.rank
    comm.Reduce_scatter_block(data, out)
    base = np.arange(5) + 5 * comm.rank
    return bool((out == base * comm.size + sum(range(comm.size))).all())


@check
def scans(comm: MPI.Intracomm) -> bool:
    upto = sum(range(comm.rank + 1))
    return bool(comm.scan(comm.rank) == upto)


@check
def alltoall(comm: MPI.Intracomm) -> bool:
    sent = [comm.rank * 100 + r for r in range(comm.size)]
    return comm.alltoall(sent) == [r * 100 + comm.rank for r in range(comm.size)]


@check
def gather_and_scatter(comm: MPI.Intracomm) -> bool:
    root = comm.size - 1
    all_ranks = comm.gather(comm.rank, root)
    return bool(comm.scatter(all_ranks, root) == comm.rank)


@check
def attributes_and_names(comm: MPI.Intracomm) -> bool:
    key = MPI.Comm.Create_keyval()
    comm.Set_attr(key, "mine")
    kept = comm.Get_attr(key) == "mine"
    comm.Delete_attr(key)
    MPI.Comm.Free_keyval(key)
    bound = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    return kept and bound is not None


# --- communicators -------------------------------------------------------------


def works(comm: MPI.Comm) -> bool:
    out = np.empty(20, np.int64)
    comm.Allreduce(ramp(comm.rank, 20), out)
    blocks = np.empty((comm.size, 4), np.int64)
    comm.Allgather(ramp(comm.rank, 4), blocks)
    data = ramp(comm.rank, 3)
    comm.Bcast(data, comm.size - 1)
    comm.Barrier()
    right = (out == stacked(comm, 20).sum(axis=0)).all()
    right &= (blocks == stacked(comm, 4)).all()
    return bool(right and (data == ramp(comm.size - 1, 3)).all())


def derived(comm: MPI.Intracomm, make: Callable[[], Any]) -> bool:
    new = make()
    good = works(new) and works(new)
    new.Free()
    return good


@check
def dup(comm: MPI.Intracomm) -> bool:
    return derived(comm, comm.Dup)


@check
def dup_of_dup(comm: MPI.Intracomm) -> bool:
    first = comm.Dup()
    good = works(first)
    second = first.Dup()
    first.Free()
    good &= works(second)
    second.Free()
    return good


@check
def idup(comm: MPI.Intracomm) -> bool:
    new, request = comm.Idup()
    request.Wait()
    good = works(new)
    new.Free()
    return good


@check
def split_reversed(comm: MPI.Intracomm) -> bool:
    return derived(comm, lambda: comm.Split(0, -comm.rank))


@check
def split_in_halves(comm: MPI.Intracomm) -> bool:
    return derived(comm, lambda: comm.Split(comm.rank % 2, comm.rank))


@check
def split_to_single_ranks(comm: MPI.Intracomm) -> bool:
    return derived(comm, lambda: comm.Split(comm.rank, 0))


@check
def split_leaving_some_out(comm: MPI.Intracomm) -> bool:
    new = comm.Split(MPI.UNDEFINED if comm.rank == 0 else 0, comm.rank)
    if new == MPI.COMM_NULL:
        return comm.rank == 0
    good = works(new)
    new.Free()
    return good


@check
def split_shared(comm: MPI.Intracomm) -> bool:
    return derived(comm, lambda: comm.Split_type(MPI.COMM_TYPE_SHARED))


@check
def create_from_group(comm: MPI.Intracomm) -> bool:
    group = comm.Get_group()
    turned = group.Incl(list(reversed(range(comm.size))))
    good = derived(comm, lambda: comm.Create(turned))
    group.Free()
    turned.Free()
    return good


@check
def cartesian(comm: MPI.Intracomm) -> bool:
    return derived(comm, lambda: comm.Create_cart([comm.size], [True]))


@check
def world_and_self(comm: MPI.Intracomm) -> bool:
    return works(MPI.COMM_WORLD) and works(MPI.COMM_SELF)


@check
def many_made_and_freed(comm: MPI.Intracomm) -> bool:
    return all(derived(comm, comm.Dup) for _ in range(40))


@check
def many_alive(comm: MPI.Intracomm) -> bool:
    alive = [comm.Dup() for _ in range(12)]
    good = all(works(one) for one in alive) and all(works(one) for one in alive[::-1])
    for one in alive[::2] + alive[1::2]:
        one.Free()
    return good


@check
def freed_after_a_nonblocking_operation(comm: MPI.Intracomm) -> bool:
    new = comm.Dup()
    good = works(new)
    out = np.empty(9, np.int64)
    mine = ramp(comm.rank, 9)
    request = new.Iallreduce(mine, out)
    request.Wait()
    new.Free()
    return bool(good and (out == stacked(comm, 9).sum(axis=0)).all())


@check
def intercommunicator(comm: MPI.Intracomm) -> bool:
    if comm.size < 2:
        return True
    side = comm.rank % 2
    local = MPI.Intracomm(comm.Split(side, comm.rank))
    inter = local.Create_intercomm(0, comm, 1 - side)
    out = np.empty(5, np.int64)
    inter.Allreduce(ramp(comm.rank, 5), out)
    others = [r for r in range(comm.size) if r % 2 != side]
    good = (out == sum(ramp(r, 5) for r in others)).all()
    data = ramp(42, 3)
    root = MPI.ROOT if local.rank == 0 else MPI.PROC_NULL
    inter.Bcast(data, root if side == 0 else 0)
    inter.Barrier()
    inter.Free()
    local.Free()
    return bool(good and (data == ramp(42, 3)).all())


# --- nonblocking, persistent -----------------------------------------------------


@check
def nonblocking_comes_first(comm: MPI.Intracomm) -> bool:
    new = comm.Dup()
    out = np.empty(50, np.int64)
    mine = ramp(comm.rank, 50)
    request = new.Iallreduce(mine, out)
    good = works(new)  # makes the shadow while the other is on its way
    request.Wait()
    good &= bool((out == stacked(comm, 50).sum(axis=0)).all())
    new.Free()
    return good


@check
def nonblocking_overlap(comm: MPI.Intracomm) -> bool:
    outs = [np.empty(200, np.int64) for _ in range(6)]
    mine = ramp(comm.rank, 200)
    requests = [comm.Iallreduce(mine, out) for out in outs]
    roots = [0, comm.size - 1]
    data = [ramp(comm.rank, 10) for _ in roots]
    requests += [comm.Ibcast(d, r) for d, r in zip(data, roots, strict=True)]
    good = works(comm)
    requests.append(comm.Ibarrier())
    sums = np.empty(7, np.int64)
    requests.append(comm.Ireduce(mine[:7], sums, root=comm.size - 1))
    blocks = np.empty((comm.size, 2), np.int64)
    requests.append(comm.Iallgather(mine[:2], blocks))
    MPI.Request.Waitall(requests[::-1])
    good &= all((out == stacked(comm, 200).sum(axis=0)).all() for out in outs)
    good &= all((d == ramp(r, 10)).all() for d, r in zip(data, roots, strict=True))
    good &= comm.rank != roots[1] or (sums == stacked(comm, 7).sum(axis=0)).all()
    return bool(good and (blocks == stacked(comm, 2)).all())


@check
def nonblocking_in_place(comm: MPI.Intracomm) -> bool:
    data = ramp(comm.rank, 12)
    comm.Iallreduce(MPI.IN_PLACE, data).Wait()
    return bool((data == stacked(comm, 12).sum(axis=0)).all())


@check
def persistent(comm: MPI.Intracomm) -> bool:
    out, mine = np.empty(8, np.int64), ramp(comm.rank, 8)
    try:
        request = comm.Allreduce_init(mine, out)
    except NotImplementedError:
        return True
    good = True
    for _ in range(3):
        request.Start()
        request.Wait()
        good &= bool((out == stacked(comm, 8).sum(axis=0)).all())
    request.Free()
    return good


# --- errors ---------------------------------------------------------------------


def error_class(call: Callable[[], Any]) -> int:
    try:
        call()
    except MPI.Exception as error:
        return error.Get_error_class()
    return MPI.SUCCESS


@check
def root_out_of_range(comm: MPI.Intracomm) -> bool:
    data = np.zeros(2)
    calls = [functools.partial(comm.Bcast, data, root) for root in (comm.size, -7)]
    return {error_class(call) for call in calls} == {MPI.ERR_ROOT}


@check
def operation_that_does_not_fit(comm: MPI.Intracomm) -> bool:
    data, out = np.zeros(2), np.zeros(2)
    return error_class(lambda: comm.Allreduce(data, out, MPI.BXOR)) == MPI.ERR_OP


@check
def null_operation(comm: MPI.Intracomm) -> bool:
    data, out = np.zeros(2), np.zeros(2)
    return error_class(lambda: comm.Allreduce(data, out, MPI.OP_NULL)) == MPI.ERR_OP


@check
def null_communicator(comm: MPI.Intracomm) -> bool:
    return error_class(MPI.COMM_NULL.Barrier) == MPI.ERR_COMM


@check
def null_datatype(comm: MPI.Intracomm) -> bool:
    data = np.zeros(2)
    call = error_class(lambda: comm.Bcast([data, 1, MPI.DATATYPE_NULL], 0))
    return call == MPI.ERR_TYPE


@check
def handlers_see_the_communicator(comm: MPI.Intracomm) -> bool:
    new, seen = comm.Dup(), []
    good = works(new)
    handler = MPI.Comm.Create_errhandler(lambda at, code: seen.append(at == new))
    new.Set_errhandler(handler)
    data, out = np.zeros(2), np.zeros(2)
    error_class(lambda: new.Allreduce(data, out, MPI.BXOR))
    handler.Free()
    good &= works(new)
    new.Free()
    return good and seen == [True]


# --- threads --------------------------------------------------------------------


def in_threads(tasks: list[Callable[[], bool]]) -> bool:
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        return True
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda run=task: results.append(run()))
        for task in tasks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(results) == len(tasks) and all(results)


def works_often(comm: MPI.Comm) -> bool:
    return all(works(comm) for _ in range(10))


@check
def first_calls_in_opposite_orders(comm: MPI.Intracomm) -> bool:
    news = [comm.Dup() for _ in range(3)]
    turned = news if comm.rank % 2 else news[::-1]
    good = in_threads([functools.partial(works, one) for one in turned])
    for one in news:
        one.Free()
    return good


@check
def threads_with_their_own(comm: MPI.Intracomm) -> bool:
    news = [comm.Dup() for _ in range(3)]
    good = in_threads([functools.partial(works_often, one) for one in news])
    for one in news:
        one.Free()
    return good


# --- Fortran ----------------------------------------------------------------------


def fortran(name: str, *arguments: Any) -> int:
    """Call a routine as a Fortran program does, by the name found first."""
    ierr = ctypes.c_int(-1)
    given = [
        ctypes.byref(ctypes.c_int(argument))
        if isinstance(argument, int)
        else argument.ctypes.data_as(ctypes.c_void_p)
        for argument in arguments
    ]
    getattr(ctypes.CDLL(None), name)(*given, ctypes.byref(ierr))
    return ierr.value


def has_fortran() -> bool:
    """Return whether Open MPI's Fortran library is here, and have it loaded."""
    maps = Path("/proc/self/maps").read_text().split()
    mine = [Path(word) for word in maps if "/libmpi.so" in word]
    beside = [path.with_name("libmpi_mpifh.so.40") for path in mine]
    if "Open MPI" not in MPI.Get_library_version() or not beside[0].exists():
        return False
    ctypes.CDLL(str(beside[0]), ctypes.RTLD_GLOBAL)
    return True


@check
def fortran_routines(comm: MPI.Intracomm) -> bool:
    if not has_fortran():
        return True
    at, number, total = comm.py2f(), MPI.INT64_T.py2f(), MPI.SUM.py2f()
    mine, out = ramp(comm.rank, 30), np.empty(30, np.int64)
    good = fortran("mpi_allreduce_", mine, out, 30, number, total, at) == 0
    good &= bool((out == stacked(comm, 30).sum(axis=0)).all())
    root = comm.size - 1
    good &= fortran("mpi_reduce_", mine, out, 30, number, total, root, at) == 0
    data = ramp(comm.rank, 5)
    good &= fortran("mpi_bcast_", data, 5, number, root, at) == 0
    good &= bool((data == ramp(root, 5)).all())
    blocks = np.empty((comm.size, 30), np.int64)
    where = (mine, 30, number, blocks, 30, number, at)
    good &= fortran("mpi_allgather_", *where) == 0
    good &= bool((blocks == stacked(comm, 30)).all())
    counts, places, expected = ragged(comm, 1)
    rows = np.full(expected.size, -1)
    ours = ramp(comm.rank, counts[comm.rank])
    sizes = np.array(counts, np.int32), np.array(places, np.int32)
    spread = (ours, ours.size, number, rows, *sizes, number, at)
    good &= fortran("mpi_allgatherv_", *spread) == 0
    good &= bool((rows == expected).all())
    return good and fortran("mpi_barrier_", at) == 0


@check
def fortran_in_place(comm: MPI.Intracomm) -> bool:
    if not has_fortran():
        return True
    here = (ctypes.c_int * 1).in_dll(ctypes.CDLL(None), "mpi_fortran_in_place_")
    place = np.ctypeslib.as_array(here)
    data = ramp(comm.rank, 8)
    number, total = MPI.INT64_T.py2f(), MPI.SUM.py2f()
    code = fortran("mpi_allreduce_", place, data, 8, number, total, comm.py2f())
    return code == 0 and bool((data == stacked(comm, 8).sum(axis=0)).all())


@check
def fortran_errors(comm: MPI.Intracomm) -> bool:
    if not has_fortran():
        return True
    data, number = np.zeros(2, np.int64), MPI.INT64_T.py2f()
    return fortran("mpi_bcast_", data, 1, number, comm.size, comm.py2f()) != 0


def failures(comm: MPI.Intracomm) -> Iterator[str]:
    for name, run in CHECKS:
        try:
            good = run(comm)
        except Exception as error:
            good = False
            name = f"{name} ({type(error).__name__}: {error})"
        ranks = [r for r, fine in enumerate(comm.allgather(good)) if not fine]
        if ranks or not good:
            yield f"{name} on ranks {ranks}"


def main() -> int:
    comm = MPI.COMM_WORLD
    failed = list(failures(comm))
    if comm.rank == 0:
        print(*failed, f"{len(CHECKS)} checks, {len(failed)} failed", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
