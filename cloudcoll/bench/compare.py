"""A whole bench: solve, plan, run, and put predicted next to measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudcoll import __version__
from cloudcoll.bench.grid import (
    Grid,
    fitted,
    start_seconds,
    whole_seconds,
)
from cloudcoll.bench.orders import NamedOrder, named_orders
from cloudcoll.bench.plan import BenchPlan, Pace, plan_bench
from cloudcoll.bench.result import BenchRun
from cloudcoll.bench.runner import JobOutput, Row, run_bench
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.files import lab_origin
from cloudcoll.launch import LaunchRequest
from cloudcoll.libraries import Selection
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import fabric_of, problem_of
from cloudcoll.solve import Watch, solve
from cloudcoll.solve.search import UNWATCHED

SEARCH = 0.25
"""Share of a bench's time that the search for its order may take."""


def compare_orders(
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    *,
    orders: str,
    collective: str,
    chosen: Mapping[int, Selection],
    pace: Pace,
    seed: int = 0,
    free_rank0: bool,
    timeout: float = 1800.0,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
    begun: float | None = None,
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
    begun : float, optional
        The monotonic clock at which `Pace.seconds` began; now if not given. The search,
        the predictions and the job's start are part of them.

    Returns
    -------
    BenchRun
        It says so if the job failed on the way, or an order was left out.

    Raises
    ------
    CloudcollError
        The hosts don't fit the snapshot, or nothing could be measured.
    """
    begun = time.monotonic() if begun is None else begun
    fabric = fabric_of(snapshot).restrict(request.used)
    ranks = sum(request.slots)
    schedules = {
        size: build_schedule(
            collective,
            one.algorithm,
            ranks,
            size,
            one.library,
            **one.parameters,
        )
        for size, one in chosen.items()
    }
    rank_map = solve(
        snapshot,
        schedules[max(chosen)],
        given=request.used,
        slots=request.slots,
        seed=seed,
        free_rank0=free_rank0,
        watch=Watch(min(UNWATCHED.limit_s, max(1.0, SEARCH * pace.seconds))),
    )
    named = named_orders(orders, request.used, fabric, rank_map, seed)
    predicted = _predicted(request, snapshot, named, schedules)
    whole = Grid(named, tuple(chosen))
    before = time.monotonic() - begun + start_seconds(ranks)
    rest = replace(pace, seconds=max(0.0, pace.seconds - before))
    part = fitted(whole, predicted, pace, rest.seconds)
    named, sizes = part.orders, part.sizes
    plan = plan_bench(request, named, collective=collective, sizes=sizes, pace=rest)
    start = time.time()
    job = run_bench(plan, os.environ, timeout, on_row)
    kept = [order for order in named if order.name not in job.left_out]
    return BenchRun(
        metadata={
            **_asked(request, plan, collective, chosen),
            **_told(job, named),
            **_spared(whole, part, job, pace, predicted, before),
            "snapshot": snapshot.digest,
            "seed": seed,
            "start_time": start,
            "end_time": time.time(),
        },
        orders={order.name: order.hosts for order in kept},
        same_as={alias: order.name for order in kept for alias in order.same_as},
        rows=job.rows,
        predicted={
            str(size): {one.name: predicted[str(size)][one.name] for one in kept}
            for size in sizes
            if predicted
        },
    )


def _spared(
    whole: Grid,
    part: Grid,
    job: JobOutput,
    pace: Pace,
    predicted: Mapping[str, Mapping[str, float]],
    before: float,
) -> dict[str, Any]:
    """Return what there was no time for, as a result keeps it."""
    sizes = {*whole.sizes}.difference(part.sizes) | {*job.spared}
    orders = [one.name for one in whole.orders if one not in part.orders]
    needed = whole_seconds(whole, predicted, pace, before) if predicted else None
    told = {"seconds": pace.seconds, "orders": orders, "sizes": sorted(sizes)}
    return {"spared": {**told, "needed": needed}} if orders or sizes else {}


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
        **lab_origin(),
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
    snapshot: NetworkSnapshot,
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
    predicted = {}
    for size, schedule in schedules.items():
        problem = problem_of(snapshot, schedule, slots)
        predicted[str(size)] = {
            order.name: problem.seconds(order.hosts) for order in orders
        }
    return predicted
