"""What a bench will run: one MPI job, with a communicator for each order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from cloudcoll.bench.orders import NamedOrder
from cloudcoll.launch.plan import LaunchRequest

ALGORITHMS = {"recursive_doubling": 3, "ring": 4, "rabenseifner": 6}
"""Allreduce algorithm -> its number in Open MPI's ``coll_tuned`` (5.0)."""


@dataclass(frozen=True)
class BenchPlan:
    """One MPI job that times every order.

    Attributes
    ----------
    argv : tuple of str
        The launcher's command line, with our program as the application.
    spec : mapping
        What rank 0 reads from stdin; see ``probes/allreduce.py``.
    placement : tuple of str
        The host of each rank, as the launcher is expected to place them.
    rows : int
        Measurements that the job will print.
    """

    argv: tuple[str, ...]
    spec: dict[str, Any]
    placement: tuple[str, ...]
    rows: int


def plan_bench(
    request: LaunchRequest,
    orders: Sequence[NamedOrder],
    *,
    algorithm: str,
    sizes: Sequence[int],
    repeats: int,
    min_seconds: float = 0.05,
) -> BenchPlan:
    """Return the plan of a bench; nothing is executed.

    Parameters
    ----------
    request : LaunchRequest
        The user's command line; its ranks stay where the launcher puts them.
    orders : sequence of NamedOrder
    algorithm : str
        A key of `ALGORITHMS`; forced through ``coll_tuned``.
    sizes : sequence of int
        Bytes.
    repeats : int
        Measurements of each order at each size.
    min_seconds : float
        Calls are repeated to fill this long, small ones that is.
    """
    placement = request.place(request.used)
    forced = (
        "--mca",
        "coll_tuned_use_dynamic_rules",
        "1",
        "--mca",
        "coll_tuned_allreduce_algorithm",
        str(ALGORITHMS[algorithm]),
    )
    program = str(files("cloudcoll._probes") / "allreduce.py")
    return BenchPlan(
        argv=(*request.argv[: request.start], *forced, sys.executable, program),
        spec={
            "orders": {
                order.name: split_keys(placement, request.place(order.hosts))
                for order in orders
            },
            "sizes": list(sizes),
            "repeats": repeats,
            "min_seconds": min_seconds,
        },
        placement=placement,
        rows=len(orders) * len(sizes) * repeats,
    )


def split_keys(placement: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return for each rank the key that puts it in its place of another order.

    Parameters
    ----------
    placement : sequence of str
        The host of each rank of the world.
    wanted : sequence of str
        The host of each rank of the communicator to make; as many ranks on
        each host. A host's ranks keep their order.
    """
    places: dict[str, list[int]] = {}
    for key, host in enumerate(wanted):
        places.setdefault(host, []).append(key)
    return [places[host].pop(0) for host in placement]
