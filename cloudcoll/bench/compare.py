"""A whole bench: solve, plan, run, and put predicted next to measured."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloudcoll import __version__
from cloudcoll.bench.job import (
    BenchPace,
    BenchPlan,
    JobOutput,
    NamedOrder,
    Row,
    named_orders,
    plan_bench,
    run_bench,
)
from cloudcoll.bench.result import BenchRun
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.files import lab_origin
from cloudcoll.launch import LaunchRequest
from cloudcoll.libraries import Selection
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import fabric_of, problem_of
from cloudcoll.solve import Watch, solve
from cloudcoll.solve.search import UNWATCHED

SLACK = 1.3
"""Times longer than predicted that calls may take."""
START_S = 3.0
START_RANK_S = 0.02
"""Seconds from the launcher's start to the first call and after the last one, and what
each rank adds."""

Predicted = Mapping[str, Mapping[str, float]]
"""Seconds of a call by order, by bytes as text."""


@dataclass(frozen=True)
class Grid:
    """The orders and sizes, in bytes, ascending, that a bench measures."""

    orders: tuple[NamedOrder, ...]
    sizes: tuple[int, ...]

    def seconds(self, predicted: Predicted, pace: BenchPace) -> float:
        """Return seconds for `BenchPace.least` measurements of each and the warm-up."""

        def turn(size: int, least: float) -> float:
            known = predicted[str(size)]
            return sum(max(known[one.name] * SLACK, least) for one in self.orders)

        # One call each to connect, at the smallest size, and one to warm up.
        first = 2 * turn(self.sizes[0], 0.0)
        return first + pace.least * sum(turn(n, pace.min_seconds) for n in self.sizes)


def start_seconds(ranks: int) -> float:
    """Return what starting and ending a job takes beside its measurements."""
    return START_S + START_RANK_S * ranks


def fitted(whole: Grid, predicted: Predicted, pace: BenchPace, seconds: float) -> Grid:
    """Return the largest part of a grid that can be measured in so many seconds.

    Random orders go first, the last of them before the others, then smaller sizes,
    then all orders but the one given and CloudColl's, then the largest sizes. One size
    stays in any case. Where nothing is predicted, all stays.
    """
    if not predicted:
        return whole
    parts = list(_parts(whole))
    fitting = (part for part in parts if part.seconds(predicted, pace) <= seconds)
    return next(fitting, parts[-1])


def _parts(whole: Grid) -> Iterator[Grid]:
    """Yield a grid, and less and less of it."""
    wanted = [one for one in whole.orders if _is_wanted(one)] or [whole.orders[0]]
    random = [one for one in whole.orders if _is_random(one) and one not in wanted]
    for left in range(len(random), -1, -1):
        kept = [one for one in whole.orders if one not in random[left:]]
        yield Grid(tuple(kept), whole.sizes)
    for first in range(1, len(whole.sizes)):
        yield Grid(tuple(kept), whole.sizes[first:])
    # Two orders take so much less that smaller sizes may fit again.
    for last in range(len(whole.sizes), 0, -1):
        for first in range(last):
            yield Grid(tuple(wanted), whole.sizes[first:last])


def _is_wanted(one: NamedOrder) -> bool:
    return not {"given", "cloudcoll"}.isdisjoint((one.name, *one.same_as))


def _is_random(one: NamedOrder) -> bool:
    return all(name.startswith("random-") for name in (one.name, *one.same_as))


def whole_seconds(
    whole: Grid, predicted: Predicted, pace: BenchPace, before: float
) -> int:
    """Return how many seconds a bench of all of a grid would take, rounded up.

    Everything but measurements takes `before`.
    """
    return 10 * math.ceil((before + whole.seconds(predicted, pace)) / 10)


SEARCH = 0.25
"""Share of a bench's time that the search for its order may take."""


def compare_orders(
    request: LaunchRequest,
    snapshot: NetworkSnapshot,
    *,
    orders: str,
    collective: str,
    chosen: Mapping[int, Selection],
    pace: BenchPace,
    seed: int = 0,
    free_rank0: bool,
    timeout: float = 1800.0,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
    begun: float | None = None,
    with_costs: Callable[[NetworkSnapshot], NetworkSnapshot] = lambda known: known,
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
        The monotonic clock at which `BenchPace.seconds` began; now if not given.
        The search, the predictions and the job's start are part of them.
    with_costs : callable, optional
        Called once all is known to be right; what it makes of the snapshot is what
        orders are predicted on.

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
    ranks = sum(request.slots)
    schedules = _schedules(collective, chosen, ranks)
    limit_s = min(UNWATCHED.limit_s, max(1.0, SEARCH * pace.seconds))
    rank_map = solve(
        snapshot,
        schedules[max(chosen)],
        given=request.used,
        slots=request.slots,
        seed=seed,
        free_rank0=free_rank0,
        watch=Watch(limit_s),
    )
    fabric = fabric_of(snapshot).restrict(request.used)
    named = named_orders(orders, request.used, fabric, rank_map, seed)
    snapshot = with_costs(snapshot)
    predicted = _predicted(request, snapshot, named, schedules)
    whole = Grid(named, tuple(chosen))
    before = time.monotonic() - begun + start_seconds(ranks)
    rest = replace(pace, seconds=max(0.0, pace.seconds - before))
    part = fitted(whole, predicted, pace, rest.seconds)
    plan = plan_bench(
        request, part.orders, collective=collective, sizes=part.sizes, pace=rest
    )
    start = time.time()
    job = run_bench(plan, os.environ, timeout, on_row)
    metadata = {
        **_asked(request, plan, collective, chosen),
        **_told(job, part.orders),
        **_spared(whole, part, job, pace, predicted, before),
        "snapshot": snapshot.digest,
        "seed": seed,
        "start_time": start,
        "end_time": time.time(),
    }
    return _run_of(job, part, predicted, metadata)


def _schedules(
    collective: str, chosen: Mapping[int, Selection], ranks: int
) -> dict[int, Schedule]:
    """Return what the job sends, by bytes."""
    return {
        size: build_schedule(
            collective, one.algorithm, ranks, size, one.library, **one.parameters
        )
        for size, one in chosen.items()
    }


def _run_of(
    job: JobOutput, part: Grid, predicted: Predicted, metadata: dict[str, Any]
) -> BenchRun:
    """Return the orders that a job measured, what it took and what was predicted."""
    kept = [order for order in part.orders if order.name not in job.left_out]
    return BenchRun(
        metadata=metadata,
        orders={order.name: order.hosts for order in kept},
        same_as={alias: order.name for order in kept for alias in order.same_as},
        rows=job.rows,
        predicted={
            str(size): {one.name: predicted[str(size)][one.name] for one in kept}
            for size in part.sizes
            if predicted
        },
    )


def _spared(
    whole: Grid,
    part: Grid,
    job: JobOutput,
    pace: BenchPace,
    predicted: Predicted,
    before: float,
) -> dict[str, Any]:
    """Return what there was no time for, as a result keeps it."""
    sizes = {*whole.sizes}.difference(part.sizes) | {*job.spared}
    orders = [one.name for one in whole.orders if one not in part.orders]
    needed = whole_seconds(whole, predicted, pace, before) if predicted else None
    asked = {"seconds": pace.seconds, "orders": orders, "sizes": sorted(sizes)}
    return {"spared": {**asked, "needed": needed}} if orders or sizes else {}


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
