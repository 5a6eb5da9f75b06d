"""Collectives put together from others: in parts, and in two levels.

Which parts Open MPI takes follows from its own rules for these; here they are
parameters, by the library's numbers.

Two levels are inside each host, and between one rank of each. Ranks fill host after
host, `local` on each; MPICH's last host may have fewer. What crosses no network is
only drawn: inside a host a binomial tree, or direct messages, stand for whatever the
library takes there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import (
    broadcasts,
    doubling,
    exchanges,
    reductions,
    ring,
    trees,
)
from cloudcoll.collectives.steps import Flow, Step, pipelined, place, refine, send
from cloudcoll.errors import UsageError

Build = Callable[..., Flow]

REDUCE: dict[int, Build] = {
    1: reductions.linear,
    2: reductions.chain,
    3: reductions.pipeline,
    4: reductions.binary,
    5: reductions.binomial,
    6: reductions.in_order_binary,
    7: reductions.rabenseifner,
    8: reductions.knomial,
}
"""Open MPI's reductions by ``coll_tuned_reduce_algorithm``."""

BCAST: dict[int, Build] = {
    1: broadcasts.linear,
    2: broadcasts.chain,
    3: broadcasts.pipeline,
    4: broadcasts.split_binary_tree,
    5: broadcasts.binary_tree,
    6: broadcasts.binomial,
    7: broadcasts.knomial,
    8: broadcasts.scatter_allgather,
    9: broadcasts.scatter_allgather_ring,
}
"""Open MPI's broadcasts by ``coll_tuned_bcast_algorithm``."""

BARRIER: dict[int, Build] = {
    1: exchanges.linear_barrier,
    2: exchanges.double_ring_barrier,
    3: exchanges.recursive_doubling_barrier,
    4: exchanges.bruck_barrier,
    5: exchanges.recursive_doubling_barrier,
    6: exchanges.tree_barrier,
}
"""Open MPI's barriers by ``coll_tuned_barrier_algorithm``; 5 is of two ranks."""


def basic_linear(ranks: int, size: int) -> Flow:
    """Return Open MPI's allreduce 1: all to rank 0, and back to all."""
    return trees.both_ways(trees.star(ranks), size)


def nonoverlapping(ranks: int, size: int, reduce: int = 5, bcast: int = 6) -> Flow:
    """Return Open MPI's allreduce 2: a reduction to rank 0, then a broadcast."""
    return _then(REDUCE[reduce](ranks, size), BCAST[bcast](ranks, size))


def allgather_reduce(ranks: int, size: int, allgather: int = 3) -> Flow:
    """Return Open MPI's allreduce 7: everyone gets and adds up all vectors."""
    return ALLGATHER[allgather](ranks, size * ranks)


def gather_bcast(ranks: int, size: int, gather: int = 1, bcast: int = 6) -> Flow:
    """Return Open MPI's allgather 1: a gather to rank 0, then a broadcast.

    Of the gathers, 2 is binomial, 1 and 3 are linear.
    """
    block, src = size / ranks, np.arange(1, ranks)
    steps = [send(src, 0, block, src)]
    if gather == 2:
        steps = [
            _turned(step) for step in reversed(broadcasts.scatter(ranks, block, 0))
        ]
    return _then(Flow(steps, ranks), BCAST[bcast](ranks, size))


def reduce_scatterv(ranks: int, size: int, reduce: int = 5) -> Flow:
    """Return Open MPI's reduce_scatter 1: a reduction, then a linear scatter."""
    return reduce_scatter_block(ranks, size, reduce)


def reduce_scatter_block(
    ranks: int, size: int, reduce: int = 5, scatter: int = 1
) -> Flow:
    """Return Open MPI's reduce_scatter_block 1: a reduction, then a scatter.

    Of the scatters, 2 is binomial, 1 and 3 are linear.
    """
    block, dst = size / ranks, np.arange(1, ranks)
    steps = [send(0, dst, block, dst)]
    if scatter == 2:
        steps = broadcasts.scatter(ranks, block, 0)
    return _then(REDUCE[reduce](ranks, size), Flow(steps, ranks))


ALLGATHER: dict[int, Build] = {
    1: gather_bcast,
    2: exchanges.bruck_allgather,
    3: doubling.open_mpi_allgather,
    4: ring.allgather,
    5: exchanges.neighbor_exchange,
    6: exchanges.linear_allgather,
    7: exchanges.sparbit,
    8: exchanges.linear_allgather,
}
"""Open MPI's allgathers by ``coll_tuned_allgather_algorithm``; 6 is of two ranks."""


def _turned(step: Step) -> Step:
    return Step(step.dst, step.src, step.size, cargo=step.cargo)


def _then(first: Flow, second: Flow) -> Flow:
    """Return one flow after another, over blocks that both can be cut into."""
    blocks = lcm(first.blocks, second.blocks)
    first, second = refine(first, blocks), refine(second, blocks)
    return Flow([*first.steps, *second.steps], blocks)


HAN_SEGMENT = 65536
"""Bytes of a segment: ``coll_han_*_segsize`` of Open MPI 4.1 and 5.0."""

FINEST = 64
"""Parts of a vector of which one is HAN's first segment, at most: where that is
less than a hundredth of the vector it does not count."""

FAR_ROOT = 2048
"""Bytes above which MPICH reduces to rank 0, which sends the result to the root
(``ch4/generic.json``, compositions beta and alpha)."""


@dataclass(frozen=True)
class MpichSmp:
    """One of MPICH's algorithms, between the first ranks of hosts.

    The compositions of ch4 (``ch4_coll_impl.h``): a reduction in each host, the
    algorithm, a broadcast in each host. A broadcast's root gives its host's first
    rank the data before, and a reduction's gets the result from it.

    Attributes
    ----------
    collective : str
        An allreduce, barrier, bcast or reduce.
    between : callable
        The algorithm, of (ranks, bytes, and the parameters it takes).
    """

    collective: str
    between: Callable[..., Flow]

    @property
    def __signature__(self) -> inspect.Signature:
        """What `between` takes, and ``local``."""
        inner = inspect.signature(self.between)
        local = inspect.Parameter("local", inspect.Parameter.KEYWORD_ONLY, default=1)
        return inner.replace(parameters=[*inner.parameters.values(), local])

    def __call__(
        self, ranks: int, size: int, local: int = 1, root: int = 0, **given: int
    ) -> Flow:
        """Return the flow among all ranks."""
        hosts = -(-ranks // local)
        call, lead = self.collective, root - root % local
        if call == "reduce" and size > FAR_ROOT:
            lead = 0
        if call in ("bcast", "reduce"):
            given["root"] = lead // local
        flow = _among(self.between, hosts, size, **given)
        inner, blocks = place(flow, np.arange(0, ranks, local)).steps, flow.blocks
        block = 0.0 if call == "barrier" else size / blocks
        up, down = _inside(ranks, local, block, blocks)
        ends = [] if lead == root else [(root, lead)]
        if call == "bcast":
            up = [send(*pair, block, 0, blocks) for pair in ends]
        if call == "reduce":
            down = [send(*pair[::-1], block, 0, blocks) for pair in ends]
        return Flow([*up, *inner, *down], blocks)


def han_allreduce(ranks: int, size: int, local: int = 1) -> Flow:
    """Return Open MPI's HAN allreduce: a reduction and a broadcast between hosts.

    Both are non-blocking ones of libnbc, for each segment of 64 KiB
    (``coll_han_allreduce.c``). Like every function here that begins with ``han``, it
    refuses hosts with different numbers of ranks, where Open MPI takes another.
    """
    hosts = _even(ranks, local)
    up = _ireduce(hosts, size, 0)
    down = refine(_ibcast(hosts, size, 0), up.blocks)
    between = place(Flow([*up.steps, *down.steps], up.blocks), _leads(ranks, local))
    before, after = _inside(ranks, local, size / up.blocks, up.blocks)
    return _segmented(Flow([*before, *between.steps, *after], up.blocks), size)


def han_reduce(ranks: int, size: int, root: int = 0, local: int = 1) -> Flow:
    """Return Open MPI's HAN reduction: in the hosts, then libnbc's between them.

    Between those of each host that have the root's number in it
    (``coll_han_reduce.c``).
    """
    flow = _ireduce(_even(ranks, local), size, root // local)
    between = place(flow, _leads(ranks, local, root))
    before, _ = _inside(ranks, local, size / flow.blocks, flow.blocks, root)
    return _segmented(Flow([*before, *between.steps], flow.blocks), size)


def han_bcast(
    ranks: int, size: int, root: int = 0, local: int = 1, bcast: int = 6
) -> Flow:
    """Return Open MPI's HAN broadcast: between hosts, then in them.

    The first segment of 64 KiB goes between hosts by the algorithm that tuned
    takes there, by its number `bcast`; libnbc sends the others
    (``coll_han_bcast.c``).
    """
    hosts, leads = _even(ranks, local), _leads(ranks, local, root)
    part = Fraction(HAN_SEGMENT, max(size, HAN_SEGMENT)).limit_denominator(FINEST)
    first = _among(BCAST[bcast], hosts, float(size * part), root=root // local)
    blocks = first.blocks * part.denominator
    head = first.blocks * part.numerator
    opening = place(Flow([*_window(first, 0, head)]), leads).steps if head else []
    _, after = _inside(ranks, local, size / blocks, blocks, root)
    if head == blocks:
        return Flow([*opening, *after], blocks)
    rest = _ibcast(hosts, float(size * (1 - part)), root // local)
    others = place(Flow([*_window(rest, head, blocks - head)]), leads).steps
    return Flow([*opening, *pipelined([*others, *after])], blocks)


def han_allgather(ranks: int, size: int, local: int = 1, allgather: int = 4) -> Flow:
    """Return Open MPI's HAN allgather: gathers, an allgather between, broadcasts.

    Between hosts it is what tuned takes there, by its number
    (``coll_han_allgather.c``).
    """
    between = _among(ALLGATHER[allgather], _even(ranks, local), size)
    blocks = lcm(between.blocks, ranks)
    each, rank = blocks // ranks, np.arange(ranks)
    others = rank[rank % local > 0]
    first = others - others % local
    gather = send(others, first, size / blocks, others * each, each)
    _, after = _inside(ranks, local, size / blocks, blocks)
    placed = place(refine(between, blocks), _leads(ranks, local))
    return Flow([gather, *placed.steps, *after], blocks)


def han_barrier(ranks: int, size: int, local: int = 1, barrier: int = 4) -> Flow:
    """Return Open MPI's HAN barrier: in the hosts, between them, in the hosts.

    Between hosts it is what tuned takes there, by its number
    (``coll_han_barrier.c``).
    """
    between = _among(BARRIER[barrier], _even(ranks, local), 0)
    before, after = _inside(ranks, local, 0.0, 1)
    return Flow([*before, *place(between, _leads(ranks, local)).steps, *after])


def _ireduce(hosts: int, size: float, root: int) -> Flow:
    """Return libnbc's reduction: of two hosts one message (``nbc_ireduce.c``)."""
    build = reductions.rabenseifner if hosts > 2 else reductions.linear
    return _among(build, hosts, size, root=root)


def _ibcast(hosts: int, size: float, root: int) -> Flow:
    """Return libnbc's broadcast: to all at once up to four hosts, else binomial.

    ``nbc_ibcast.c``, which skips its rules for large messages unless told otherwise.
    """
    build = broadcasts.binomial if hosts > 4 else broadcasts.linear
    return _among(build, hosts, size, root=root)


def _among(build: Callable[..., Flow], hosts: int, size: float, **given: int) -> Flow:
    """Return a flow among hosts; of one host there is none."""
    return build(hosts, size, **given) if hosts > 1 else Flow([])


def _even(ranks: int, local: int) -> int:
    """Return the number of hosts, which must have as many ranks each."""
    if ranks % local:
        raise UsageError(
            f"han needs the same number of ranks on each host: {ranks} are not a "
            f"multiple of {local}"
        )
    return ranks // local


def _leads(ranks: int, local: int, root: int = 0) -> Ints:
    """Return the rank of each host with the root's number in it."""
    return np.arange(root % local, ranks, local)


def _window(flow: Flow, first: int, count: int) -> Iterator[Step]:
    """Yield the steps of a flow whose data is `count` blocks of more, from `first`."""
    for step in refine(flow, count).steps:
        cargo = step.cargo
        assert cargo is not None, "every family says what its steps carry"
        for turn in range(step.repeat):
            # Rings go round within these blocks: each turn is a step of its own.
            where = first + (cargo.first + turn * cargo.shift) % count
            moved = replace(cargo, first=where, shift=0)
            yield replace(step, repeat=1, cargo=moved)


def _segmented(flow: Flow, size: int) -> Flow:
    """Return a flow through which more than one segment passes in a row."""
    return flow._replace(steps=pipelined(flow.steps)) if size > HAN_SEGMENT else flow


def _inside(
    ranks: int, local: int, block: float, blocks: int, lead: int = 0
) -> tuple[list[Step], list[Step]]:
    """Return the reductions in all hosts, and the broadcasts.

    They end and begin at the rank of each host that has the number of `lead`.
    """
    rank = np.arange(ranks)
    place, host = (rank - lead) % local, rank - rank % local
    up, down = [], []
    for bit in range((local - 1).bit_length()):
        child = rank[place & -place == 1 << bit]
        parent = host[child] + (place[child] - (1 << bit) + lead) % local
        up.append(send(child, parent, block, 0, blocks, reduces=True))
        down.append(send(parent, child, block, 0, blocks))
    return up, down[::-1]
