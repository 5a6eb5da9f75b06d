"""``cloudcoll solve --per-call``: orders that collectives have of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.errors import UsageError
from cloudcoll.rankmap import CallOrder, RankMap

REORDERED = ("allreduce", "reduce", "bcast", "barrier", "allgather")
"""What can run in another order inside MPI."""


def with_call_orders(
    rank_map: RankMap,
    sent: Schedule | Workload,
    solve: Callable[..., RankMap],
) -> RankMap:
    """Return a map with an order for each collective and size that gains by one.

    Parameters
    ----------
    rank_map : RankMap
        The best for all of it.
    sent : Schedule or Workload
    solve : callable
        Returns the best map for a workload, an order given and its slots.

    Raises
    ------
    UsageError
        It is no workload: one collective has one order.
    """
    if not isinstance(sent, Workload):
        raise UsageError("--per-call is for several collectives: add --workload W")
    alike: dict[tuple[str, int], list[Operation]] = {}
    for one in sent.operations:
        if one.collective in REORDERED:
            alike.setdefault((one.collective, one.size.bit_length()), []).append(one)
    found = []
    for (collective, digits), some in alike.items():
        if any(len(group) > 1 for one in some for group in one.groups):
            part = replace(sent, operations=tuple(some))
            # No rank moves inside MPI, so that none has to stay.
            order = solve(
                part, given=rank_map.order, slots=rank_map.slots, free_rank0=True
            ).order
            if order != rank_map.order:
                most = (1 << digits) - 1
                found.append(CallOrder(collective, (most + 1) // 2, most, order))
    return replace(rank_map, calls=tuple(found))
