"""A whole bench: solve, plan, run, and put predicted next to measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cloudcoll import __version__
from cloudcoll.bench.orders import NamedOrder, named_orders
from cloudcoll.bench.plan import BenchPlan, Pace, plan_bench
from cloudcoll.bench.result import BenchRun
from cloudcoll.bench.runner import JobOutput, Row, run_bench
from cloudcoll.cost import CostModel
from cloudcoll.fabric.links import Pairs
from cloudcoll.fabric.tree import Fabric
from cloudcoll.launch import LaunchRequest
from cloudcoll.schedule import Schedule, build_schedule
from cloudcoll.selection import Selection
from cloudcoll.snapshot import NetworkSnapshot
from cloudcoll.solve import fabric_of, solve
from cloudcoll.solve.pairs import shrunk_pairs


def compare_orders(
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    *,
    orders: str,
    collective: str,
    chosen: Mapping[int, Selection],
    pace: Pace,
    seed: int = 0,
    free_rank0: bool = False,
    timeout: float = 1800.0,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
) -> BenchRun:
    """Measure a collective in several orders of the hosts of a launch.

    Parameters
    ----------
    request : LaunchRequest
        Of a `bench_command` or a `torch_command`.
    snapshot : NetworkSnapshot
        With all hosts of the request.
    orders : str
        Names, see `named_orders`.
    collective : str
        A key of `OPERATIONS`.
    chosen : mapping of int to Selection
        Bytes, ascending -> the algorithm that the job runs; the order is solved
        for the largest.
    pace, seed, free_rank0
        See `plan_bench` and `solve`.
    timeout : float
        Seconds for the whole job.
    on_row : callable
        See `run_bench`.

    Returns
    -------
    BenchRun
        It says so if the job failed on the way, or an order was left out.

    Raises
    ------
    CloudcollError
        The hosts don't fit the snapshot, or nothing could be measured.
    """
    fabric = fabric_of(snapshot).restrict(request.used)
    ranks, sizes = sum(request.slots), list(chosen)
    schedules = {
        size: build_schedule(collective, one.algorithm, ranks, size, **one.parameters)
        for size, one in chosen.items()
    }
    rank_map = solve(
        snapshot,
        schedules[max(sizes)],
        given=request.used,
        slots=request.slots,
        seed=seed,
        free_rank0=free_rank0,
    )
    named = named_orders(orders, request.used, fabric, rank_map, seed)
    plan = plan_bench(request, named, collective=collective, sizes=sizes, pace=pace)
    start = time.time()
    job = run_bench(plan, os.environ, timeout, on_row)
    kept = [order for order in named if order.name not in job.left_out]
    return BenchRun(
        metadata={
            **_asked(request, plan, collective, chosen),
            **_told(job, named),
            "snapshot": snapshot.digest,
            "seed": seed,
            "start_time": start,
            "end_time": time.time(),
        },
        orders={order.name: order.hosts for order in kept},
        same_as={alias: order.name for order in kept for alias in order.same_as},
        rows=job.rows,
        predicted=_predicted(
            request, fabric, shrunk_pairs(snapshot, fabric), kept, schedules
        ),
    )


def _asked(
    request: LaunchRequest,
    plan: BenchPlan,
    collective: str,
    chosen: Mapping[int, Selection],
) -> dict[str, Any]:
    """Return what was to be measured, as a result keeps it."""
    return {
        "version": __version__,
        "args": list(plan.argv),
        "collective": collective,
        "algorithm": ", ".join(dict.fromkeys(c.algorithm for c in chosen.values())),
        "choices": list(dict.fromkeys(map(str, chosen.values()))),
        "ranks": len(plan.placement),
        "hosts": list(request.used),
        "placement": list(plan.placement),
    }


def _told(job: JobOutput, named: Sequence[NamedOrder]) -> dict[str, Any]:
    """Return what a job told besides its rows, as a result keeps it."""
    return {
        "library": job.hello["library"],
        "failure": job.failure,
        "left_out": {
            " = ".join((order.name, *order.same_as)): job.left_out[order.name]
            for order in named
            if order.name in job.left_out
        },
    }


def _predicted(
    request: LaunchRequest,
    fabric: Fabric,
    pairs: Pairs | None,
    orders: Sequence[NamedOrder],
    schedules: Mapping[int, Schedule],
) -> dict[str, dict[str, float]]:
    """Return seconds by order, by bytes as text, as the cost model has them.

    Empty where ranks are dealt over the hosts in turn, or all on one.
    """
    if request.cyclic or len(request.used) == 1:
        # The model knows hosts that hold consecutive ranks only, and nothing inside.
        return {}
    slots = dict(zip(request.used, request.slots, strict=True))
    counts = [slots[name] for name in fabric.hosts]
    predicted = {}
    for size, schedule in schedules.items():
        model = CostModel(schedule, fabric, counts, pairs)
        predicted[str(size)] = {
            order.name: model.seconds(
                np.array([fabric.position(name) for name in order.hosts])
            )
            for order in orders
        }
    return predicted
