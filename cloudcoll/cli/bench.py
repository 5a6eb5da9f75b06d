"""``cloudcoll bench``: a collective in several orders of hosts."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.algorithm import ALGORITHM_HELP, AUTO
from cloudcoll.cli.order_request import Wish
from cloudcoll.cli.ordering import own_algorithm
from cloudcoll.cli.output import (
    print_json,
    print_lines,
    print_text,
    progress_wanted,
    say,
)
from cloudcoll.cli.params import SIZE, Finite
from cloudcoll.cli.snapshots import usable_snapshot
from cloudcoll.errors import UsageError
from cloudcoll.report import units

if TYPE_CHECKING:
    from cloudcoll.bench.result import BenchRun
    from cloudcoll.bench.runner import Row
    from cloudcoll.launch import LaunchRequest

ORDERS = "given,sorted,grouped,random:5,cloudcoll"
BACKENDS = {"mpi": ("mpi4py", "c"), "torch": ("gloo", "nccl")}
BACKEND_HELP = (
    "mpi4py, or c, which your mpicc compiles; with --via torch, gloo or nccl.  "
    "[default: mpi4py, or c without it; gloo]"
)
MOST = "Most measurements of each order."
LEAST = 5
"""Measurements of each order at each size, at least: fewer make no good interval."""
FACTOR = "Factor from one size to the next."
NARROW = "Stop once all ratios are known to this many per cent."
OUTPUT_HELP = "File to write: JSON, which 'report' reads, or CSV (.csv)."


@dataclass(frozen=True)
class _Options:
    orders: str
    collective: str
    algorithm: str
    via: str
    backend: str | None
    first: int
    last: int
    factor: int
    repeats: int
    seconds: float
    narrow: float
    seed: int
    timeout: float


@click.command("bench", context_settings={"allow_interspersed_args": False})
@click.option("--orders", default=ORDERS, show_default=True, help="Orders to compare.")
@click.option("--collective", default="allreduce", show_default=True)
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option(
    "--via",
    type=click.Choice(list(BACKENDS)),
    default="mpi",
    show_default=True,
    help="Library whose collectives are timed.",
)
@click.option("--backend", metavar="NAME", help=BACKEND_HELP)
@click.option(
    "-b", "first", type=SIZE, default="1M", show_default=True, help="Smallest size."
)
@click.option(
    "-e", "last", type=SIZE, default="16M", show_default=True, help="Largest size."
)
@click.option(
    "-f", "factor", type=click.IntRange(2), default=4, show_default=True, help=FACTOR
)
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=20, show_default=True, help=MOST
)
@click.option(
    "--seconds",
    type=Finite(0),
    default=140.0,
    show_default=True,
    help="Seconds for all, from the search for the order (and a probe, if there is no "
    "snapshot) to the job's end. Orders and sizes that do not fit are left out.",
)
@click.option("--narrow", type=Finite(0), default=1.0, show_default=True, help=NARROW)
@click.option("--seed", default=0, show_default=True, help="Seed of the random orders.")
@click.option(
    "--timeout",
    type=Finite(1),
    default=1800.0,
    show_default=True,
    help="Seconds after which the job is killed.",
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="Snapshot to solve from, if not the latest.",
)
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=OUTPUT_HELP)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print each size of each order, and ratios."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    launcher: tuple[str, ...],
    snapshot: Path | None,
    probe: bool,
    free_rank0: bool,
    output: Path | None,
    verbose: bool,
    as_json: bool,
    as_csv: bool,
    **options: Any,
) -> int:
    r"""Measure a collective in several orders of hosts, taking turns in one job.

    LAUNCHER is a command line without a program; CloudColl brings its own, in
    mpi4py, C, or torch (with Gloo or, not tried yet, NCCL). The one in C needs no
    Python on the hosts. It is compiled by MPICC, or by the mpicc beside the
    launcher, into CloudColl's folder, which the hosts have to share.

    Collectives are allgather, allreduce, alltoall, bcast, reduce and
    reduce_scatter. Orders are given, sorted, natural, grouped, random[:COUNT],
    cloudcoll, or a file that lists the hosts.

    Exit code: 1 if the job failed on the way, an order could not be started or
    results were wrong.

    \b
    cloudcoll bench mpirun --hostfile hosts
    cloudcoll bench -b 64K -e 64M --algorithm rabenseifner -o result.json \
        mpirun --hostfile hosts -np 16
    cloudcoll bench --via torch --collective allgather mpirun --hostfile hosts
    """
    from cloudcoll.report.bench import (
        bench_lines,
        run_doubts,
        table_lines,
    )
    from cloudcoll.report.verdict import command_words, verdict_words

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: -o FILE takes the other")
    wish = Wish(snapshot_path=snapshot, probe=probe, free_rank0=free_rank0)
    run = _bench(launcher, wish, _Options(**options))
    try:
        if as_json:
            print_json(json.loads(run.to_json()))
        elif as_csv:
            print_text(run.to_csv())
        else:
            lines = bench_lines if verbose else table_lines
            asked = _asked_of_run(wish, _Options(**options))
            next_step = command_words(run, launcher, asked)
            print_lines([*lines(run), "", verdict_words(run), next_step])
    finally:
        # Minutes of measuring must not end in a full disk or a closed pipe.
        if output:
            run.save(output)
    for doubt in run_doubts(run):
        say(doubt)
    return int(bool(run_doubts(run)))


def _asked_of_run(wish: Wish, options: _Options) -> list[str]:
    """Return the options of `run` that ask for the same order."""
    asked = []
    if wish.snapshot_path:
        asked += ["--snapshot", str(wish.snapshot_path)]
    for name, value, usual in (
        ("--collective", options.collective, "allreduce"),
        ("--algorithm", options.algorithm, AUTO),
        ("--library", options.backend or "gloo" if options.via == "torch" else "", ""),
        ("--bytes", units.size(options.last).replace(" ", ""), "16MiB"),
    ):
        asked += [name, value] if value != usual else []
    return [*asked, *(["--free-rank0"] if wish.free_rank0 else [])]


def _bench(launcher: tuple[str, ...], wish: Wish, options: _Options) -> BenchRun:
    """Solve, plan and measure."""
    from cloudcoll.bench.compare import compare_orders
    from cloudcoll.bench.operations import operation_name
    from cloudcoll.bench.plan import Pace

    begun = time.monotonic()
    collective = operation_name(options.collective)
    request, wish = _request(launcher, replace(wish, collective=collective), options)
    snapshot = usable_snapshot(request, wish)
    chosen = {
        size: own_algorithm(request, replace(wish, size=size))
        for size in _sizes(options, collective, sum(request.counts))
    }
    pace = Pace(
        options.repeats,
        least=min(options.repeats, LEAST),
        seconds=options.seconds,
        narrow=options.narrow / 100,
    )
    with measuring_progress() as on_row:
        run = compare_orders(
            request,
            snapshot,
            orders=options.orders,
            collective=collective,
            chosen=chosen,
            pace=pace,
            seed=options.seed,
            free_rank0=wish.free_rank0,
            timeout=options.timeout,
            on_row=on_row,
            begun=begun,
        )
    from cloudcoll.snapshot import latest_path

    path = wish.snapshot_path or latest_path(request.hosts)
    return replace(run, metadata={**run.metadata, "snapshot_file": str(path.resolve())})


def _request(
    launcher: tuple[str, ...], wish: Wish, options: _Options
) -> tuple[LaunchRequest, Wish]:
    """Return the launch of our program, and what to solve for it."""
    from cloudcoll.bench.native import mpi_program
    from cloudcoll.bench.plan import bench_command, torch_command
    from cloudcoll.launch import parse_launch

    known = BACKENDS[options.via]
    if options.backend not in (None, *known):
        raise UsageError(
            f"--via {options.via} has no backend {options.backend!r} (known: "
            f"{', '.join(known)})"
        )
    force = (wish.collective, options.algorithm)
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
        return replace(request, argv=bench_command(launcher, *force, program)), wish
    if options.algorithm != AUTO:
        raise UsageError("torch lets its library choose: leave out --algorithm")
    backend = options.backend or known[0]
    argv = torch_command(launcher, _address(request), os.environ, backend)
    return parse_launch(argv, os.environ), replace(wish, library=backend)


def _address(request: LaunchRequest) -> str:
    """Return the address of the first host that has a rank."""
    return next(host.address for host in request.hosts if host.name == request.used[0])


def _sizes(options: _Options, collective: str, ranks: int) -> list[int]:
    """Return the bytes to measure, whole blocks for each rank."""
    from cloudcoll.bench.operations import OPERATIONS

    if not 4 <= options.first <= options.last:
        raise UsageError("sizes go from -b (at least 4 bytes) up to -e")
    sizes = [options.first]
    while sizes[-1] * options.factor <= options.last:
        sizes.append(sizes[-1] * options.factor)
    operation = OPERATIONS[collective]
    return sorted({operation.round_down(size, ranks) for size in sizes})


@contextlib.contextmanager
def measuring_progress() -> Iterator[Callable[[Row, float], None]]:
    """Show how far it is, and the time left, on stderr, if someone watches it."""
    if not progress_wanted():
        yield lambda row, left: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("measuring"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("warming up", total=None)
        start = time.monotonic()

        def show(row: Row, left: float) -> None:
            done = time.monotonic() - start
            words = f"{units.size(row['bytes'])}, {left:.0f} s left"
            bar.update(task, completed=done, total=done + left, description=words)

        yield show
