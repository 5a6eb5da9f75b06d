"""What a bench will run: one MPI job, with a communicator for each order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from cloudcoll.bench.orders import NamedOrder
from cloudcoll.errors import UsageError
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


def bench_command(argv: Sequence[str], algorithm: str) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program.

    Parameters
    ----------
    argv : sequence of str
        Launcher and its options, without a program.
    algorithm : str
        A key of `ALGORITHMS`, forced through ``coll_tuned``; ``auto`` forces
        nothing.

    Raises
    ------
    UsageError
        Unknown algorithm.
    """
    program = str(files("cloudcoll._probes") / "allreduce.py")
    if algorithm == "auto":
        return (*argv, sys.executable, program)
    if algorithm not in ALGORITHMS:
        known = ", ".join(["auto", *ALGORITHMS])
        raise UsageError(f"unknown algorithm {algorithm!r} (known: {known})")
    forced = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": str(ALGORITHMS[algorithm]),
        # Else HAN takes over where a host has several ranks.
        "coll_han_priority": "0",
    }
    settings = [word for pair in forced.items() for word in ("--mca", *pair)]
    return (*argv, *settings, sys.executable, program)


def plan_bench(
    request: LaunchRequest,
    orders: Sequence[NamedOrder],
    *,
    sizes: Sequence[int],
    repeats: int,
    min_seconds: float = 0.05,
) -> BenchPlan:
    """Return the plan of a bench; nothing is executed.

    Parameters
    ----------
    request : LaunchRequest
        Of a `bench_command`; its ranks stay where the launcher puts them.
    orders : sequence of NamedOrder
    sizes : sequence of int
        Bytes.
    repeats : int
        Measurements of each order at each size.
    min_seconds : float
        A measurement of a fast call is the mean of as many as fit into this.
    """
    placement = request.place(request.used)
    return BenchPlan(
        argv=request.argv,
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
