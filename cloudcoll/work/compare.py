"""Measure a collective in several orders of hosts: what ``bench`` does."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from cloudcoll.bench.compare import compare_orders
from cloudcoll.bench.job import BenchPace, bench_command, torch_command
from cloudcoll.bench.native import mpi_program
from cloudcoll.bench.result import OPERATIONS, BenchRun, operation_name
from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.launch import LaunchRequest, parse_launch
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path
from cloudcoll.work import SILENT, Reporter
from cloudcoll.work.message_costs import with_costs_of_launch
from cloudcoll.work.order import own_algorithm
from cloudcoll.work.request import BACKENDS, CompareOptions, OrderRequest
from cloudcoll.work.sent import AUTO
from cloudcoll.work.snapshots import usable_snapshot

LEAST = 5
"""Measurements of each order at each size, at least: fewer make no good interval."""


def compare(
    launcher: Sequence[str],
    wanted: OrderRequest | None = None,
    options: CompareOptions | None = None,
    reporter: Reporter = SILENT,
) -> BenchRun:
    """Measure a collective in several orders of hosts, taking turns in one job.

    Parameters
    ----------
    launcher : sequence of str
        A command line without a program, as in ``mpirun --hostfile hosts``.
    wanted : OrderRequest, optional
        Where the snapshot is from, and whether the host of rank 0 may move.
    options : CompareOptions, optional
    reporter : Reporter, optional

    Returns
    -------
    BenchRun
        Raw seconds, ratios with intervals, predictions; it says so if the job failed
        on the way, or an order was left out.

    Raises
    ------
    CloudcollError
        No usable measurement of these hosts, or nothing could be measured.
    """
    wanted, options = wanted or OrderRequest(), options or CompareOptions()
    begun = time.monotonic()
    collective = operation_name(options.collective)
    request, wanted = _request(
        tuple(launcher), replace(wanted, collective=collective), options
    )
    snapshot = usable_snapshot(request, wanted, reporter)
    path = wanted.snapshot_path or latest_path(request.hosts)

    def with_costs(known: NetworkSnapshot) -> NetworkSnapshot:
        if options.via != "mpi":
            return known
        until = begun + options.seconds
        try:
            return with_costs_of_launch(known, launcher, request, path, until)
        except CloudcollError as error:
            reporter.say(f"what a message costs was not measured: {error}")
            return known

    chosen = {
        size: own_algorithm(request, replace(wanted, size=size))
        for size in _sizes(options, collective, sum(request.counts))
    }
    pace = BenchPace(
        options.repeats,
        least=min(options.repeats, LEAST),
        seconds=options.seconds,
        narrow=options.narrow / 100,
    )
    with reporter.measuring(options.seconds) as on_row:
        run = compare_orders(
            request,
            snapshot,
            orders=options.orders,
            collective=collective,
            chosen=chosen,
            pace=pace,
            seed=options.seed,
            free_rank0=wanted.free_rank0,
            timeout=options.timeout,
            on_row=on_row,
            begun=begun,
            with_costs=with_costs,
        )
    return replace(run, metadata={**run.metadata, "snapshot_file": str(path.resolve())})


def _request(
    launcher: tuple[str, ...], wanted: OrderRequest, options: CompareOptions
) -> tuple[LaunchRequest, OrderRequest]:
    """Return the launch of our program, and what to solve for it."""
    known = BACKENDS[options.via]
    if options.backend not in (None, *known):
        raise UsageError(
            f"--via {options.via} has no backend {options.backend!r} (known: "
            f"{', '.join(known)})"
        )
    force = (wanted.collective, options.algorithm)
    argv = bench_command(launcher, *force)
    request = parse_launch(argv, os.environ)
    if request.start < len(launcher):
        raise UsageError(
            f"bench brings its own program: leave out {argv[request.start]!r} and what "
            "follows"
        )
    # What is forced is among the launcher's settings, segments and all.
    if options.via == "mpi":
        program = mpi_program(options.backend, launcher[0], os.environ)
        return replace(request, argv=bench_command(launcher, *force, program)), wanted
    if options.algorithm != AUTO:
        raise UsageError("torch lets its library choose: leave out --algorithm")
    backend = options.backend or known[0]
    argv = torch_command(launcher, _address(request), os.environ, backend)
    return parse_launch(argv, os.environ), replace(wanted, library=backend)


def _address(request: LaunchRequest) -> str:
    """Return the address of the first host that has a rank."""
    return next(host.address for host in request.hosts if host.name == request.used[0])


def _sizes(options: CompareOptions, collective: str, ranks: int) -> list[int]:
    """Return the bytes to measure, whole blocks for each rank."""
    if not 4 <= options.first <= options.last:
        raise UsageError("sizes go from -b (at least 4 bytes) up to -e")
    sizes = [options.first]
    while sizes[-1] * options.factor <= options.last:
        sizes.append(sizes[-1] * options.factor)
    operation = OPERATIONS[collective]
    return sorted({operation.round_down(size, ranks) for size in sizes})
