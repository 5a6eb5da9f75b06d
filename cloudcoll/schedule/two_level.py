"""Two levels: inside each host, and between one rank of each.

Ranks fill host after host, `local` on each; the last host may have less. What
crosses no network is only drawn: inside a host a binomial tree stands for
whatever the library takes there.
"""

from __future__ import annotations

from math import gcd, lcm

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.schedule import broadcasts, rabenseifner, recursive_doubling, reductions
from cloudcoll.schedule.steps import Flow, Step, place, refine, send

HAN_SEGMENT = 65536
"""Bytes: ``coll_han_allreduce_segsize`` of Open MPI 5.0."""


def mpich_smp_recursive_doubling(ranks: int, size: int, local: int = 1) -> Flow:
    """Return MPICH's smp allreduce, with recursive doubling between hosts.

    ``allreduce_intra_smp.c``: a reduction in each host, an allreduce among the
    first rank of each, a broadcast in each host.
    """
    between = recursive_doubling.recursive_doubling
    hosts = -(-ranks // local)
    return _inside(ranks, local, size, between(hosts, size))


def mpich_smp_reduce_scatter_allgather(ranks: int, size: int, local: int = 1) -> Flow:
    """Return MPICH's smp allreduce, with reduce_scatter_allgather between hosts."""
    between = rabenseifner.mpich_rabenseifner
    hosts = -(-ranks // local)
    return _inside(ranks, local, size, between(hosts, size))


def han(ranks: int, size: int, local: int = 1) -> Flow:
    """Return Open MPI's HAN allreduce: a reduction and a broadcast between hosts.

    Both are non-blocking ones of libnbc and happen for each segment of 64 KiB:
    Rabenseifner's reduction to the first host (of two hosts, one message), then
    to all at once up to four hosts, else down a chain; what is left over of
    less than a segment goes down a binomial tree (``coll_han_allreduce.c``,
    ``nbc_ireduce.c``, ``nbc_ibcast.c`` of 5.0).

    Raises
    ------
    UsageError
        Hosts with different numbers of ranks, where Open MPI takes another.
    """
    if ranks % local:
        raise UsageError(
            f"han needs as many ranks on each host: {ranks} are not a multiple "
            f"of {local}"
        )
    hosts = ranks // local
    rest = size % HAN_SEGMENT
    parts = [
        (_up_and_down(hosts, size - rest, chain=True), size - rest),
        (_up_and_down(hosts, rest, chain=False), rest),
    ]
    flow = _inside(ranks, local, size, _side_by_side(parts))
    return flow._replace(concurrent=size > HAN_SEGMENT)


def _up_and_down(hosts: int, size: int, *, chain: bool) -> Flow:
    """Return libnbc's reduction to position 0 and broadcast from there."""
    if hosts == 1:
        return Flow([])
    up = (reductions.rabenseifner if hosts > 2 else reductions.linear)(hosts, size)
    down = broadcasts.linear if hosts <= 4 else broadcasts.binomial
    if chain and hosts > 4:
        down = broadcasts.pipeline
    steps = [*up.steps, *refine(down(hosts, size), up.blocks).steps]
    return Flow(steps, up.blocks)


def _side_by_side(parts: list[tuple[Flow, int]]) -> Flow:
    """Return one flow for data of which each part of so many bytes has its own."""
    parts = [(flow, size) for flow, size in parts if size]
    if not parts:
        return Flow([])
    unit = gcd(*(size for _, size in parts))
    cuts = lcm(*(flow.blocks for flow, _ in parts))
    steps: list[Step] = []
    blocks = 0
    for flow, size in parts:
        own = cuts * size // unit
        steps += place(refine(flow, own), first=blocks).steps
        blocks += own
    return Flow(steps, blocks)


def _inside(ranks: int, local: int, size: int, between: Flow) -> Flow:
    """Return a flow between hosts with a reduction before and a broadcast after."""
    rank = np.arange(ranks)
    blocks = between.blocks
    block = size / blocks
    up, down = [], []
    for bit in range((local - 1).bit_length()):
        inner = rank[(rank % local) & -(rank % local) == 1 << bit]
        ends = inner, inner - (1 << bit)
        up.append(send(*ends, block, 0, blocks, reduces=True))
        down.append(send(*ends[::-1], block, 0, blocks))
    first = rank[::local]
    return Flow([*up, *place(between, first).steps, *reversed(down)], blocks)
