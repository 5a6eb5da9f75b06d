"""What a bench will run: one job, with a communicator for each order."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cloudcoll.agentfile import rank_program
from cloudcoll.bench.orders import NamedOrder
from cloudcoll.errors import UsageError
from cloudcoll.launch.plan import LaunchRequest
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS

PORT = 29500
"""Where torch's ranks meet on the first host, unless ``MASTER_PORT`` says."""
MPI_PROGRAM = (sys.executable, *rank_program("mpi_bench"))
TORCH_PROGRAM = (sys.executable, *rank_program("torch_bench"))


@dataclass(frozen=True)
class BenchPace:
    """How long to measure.

    Attributes
    ----------
    repeats : int
        Most measurements of each order at each size.
    seconds : float
        Box of time for all, warm-ups included; one measurement is made in any case.
    narrow : float
        Half width, as a share, of the ratios' intervals at which a size ends.
    least : int
        As many are made, whatever a size's share of the time, if there is any left.
    min_seconds : float
        A measurement of a fast call is the mean of as many as fit into this.
    """

    repeats: int
    seconds: float
    narrow: float
    least: int
    min_seconds: float = 0.05


@dataclass(frozen=True)
class BenchPlan:
    """One job that times every order.

    Attributes
    ----------
    argv : tuple of str
        The launcher's command line, with our program as the application.
    spec : mapping
        What rank 0 reads from stdin; see ``probes/timing.py``.
    placement : tuple of str
        The host of each rank, as the launcher is expected to place them.
    rows : int
        Most measurements that the job will print.
    """

    argv: tuple[str, ...]
    spec: dict[str, Any]
    placement: tuple[str, ...]
    rows: int


def bench_command(
    argv: Sequence[str],
    collective: str = "allreduce",
    algorithm: str = "auto",
    program: Sequence[str] = MPI_PROGRAM,
) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program of MPI.

    Parameters
    ----------
    argv : sequence of str
        Launcher and its options, without a program.
    collective : str
        A key of `OPERATIONS`.
    algorithm : str
        One of Open MPI's, forced through ``coll_tuned``; ``auto`` forces nothing.
    program : sequence of str
        Ours, of Python or of C.

    Raises
    ------
    UsageError
        Unknown algorithm.
    """
    if algorithm == "auto":
        return (*argv, *program)
    names = ALGORITHMS[collective].split()
    if algorithm not in names:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} of Open MPI "
            f"(known: auto, {', '.join(names)})"
        )
    forced = {
        "coll_tuned_use_dynamic_rules": "1",
        f"coll_tuned_{collective}_algorithm": str(names.index(algorithm) + 1),
        # Else HAN takes over where a host has several ranks.
        "coll_han_priority": "0",
    }
    settings = [word for pair in forced.items() for word in ("--mca", *pair)]
    return (*argv, *settings, *program)


def torch_command(
    argv: Sequence[str], address: str, env: Mapping[str, str], backend: str = "gloo"
) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program of torch.

    Parameters
    ----------
    argv : sequence of str
        Launcher and its options, without a program.
    address : str
        A host with a rank; ``MASTER_ADDR`` goes before it.
    env : mapping of str to str
    backend : str
        ``gloo`` or ``nccl``, which needs a GPU for each rank.
    """
    where = env.get("MASTER_ADDR", address), env.get("MASTER_PORT", PORT)
    return (*argv, *TORCH_PROGRAM, f"{where[0]}:{where[1]}", backend)


def plan_bench(
    request: LaunchRequest,
    orders: Sequence[NamedOrder],
    *,
    collective: str,
    sizes: Sequence[int],
    pace: BenchPace,
) -> BenchPlan:
    """Return the plan of a bench; nothing is executed.

    Parameters
    ----------
    request : LaunchRequest
        Of our program; its ranks stay where the launcher puts them.
    orders : sequence of NamedOrder
    collective : str
        A key of `OPERATIONS`.
    sizes : sequence of int
        Bytes, ascending.
    pace : BenchPace
    """
    placement = request.place(request.used)
    names = {n: order.name for order in orders for n in (order.name, *order.same_as)}
    return BenchPlan(
        argv=request.argv,
        spec={
            "op": collective,
            "orders": {
                order.name: split_keys(placement, request.place(order.hosts))
                for order in orders
            },
            "sizes": list(sizes),
            "reference": names.get("cloudcoll", ""),
            **asdict(pace),
        },
        placement=placement,
        rows=len(orders) * len(sizes) * pace.repeats,
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
