"""Two levels: inside each host, and between one rank of each.

Ranks fill host after host, `local` on each; the last host may have less. What
crosses no network is only drawn: inside a host a binomial tree stands for
whatever the library takes there.
"""

from __future__ import annotations

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.schedule import broadcasts, rabenseifner, recursive_doubling, reductions
from cloudcoll.schedule.steps import Flow, place, refine, send

HAN_SEGMENT = 65536
"""Bytes of a segment: ``coll_han_allreduce_segsize`` of Open MPI 5.0."""


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

    Both are non-blocking ones of libnbc, for each segment of 64 KiB:
    Rabenseifner's reduction to the first host (of two hosts, one message), then
    to all at once up to four hosts, else down a binomial tree
    (``coll_han_allreduce.c``, ``nbc_ireduce.c``, ``nbc_ibcast.c`` of 5.0, which
    skips its rules for large messages unless told otherwise).

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
    up = (reductions.rabenseifner if hosts > 2 else reductions.linear)(hosts, size)
    down = (broadcasts.binomial if hosts > 4 else broadcasts.linear)(hosts, size)
    steps = [*up.steps, *refine(down, up.blocks).steps]
    flow = _inside(ranks, local, size, Flow(steps, up.blocks))
    return flow._replace(concurrent=size > HAN_SEGMENT)


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
