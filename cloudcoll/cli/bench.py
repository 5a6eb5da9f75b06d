"""``cloudcoll bench``: a collective in several orders of hosts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from cloudcoll.cli.choice import ALGORITHM_HELP, AUTO
from cloudcoll.cli.ordering import own_algorithm, usable_snapshot
from cloudcoll.cli.output import print_json, print_lines, progress_wanted
from cloudcoll.cli.params import SIZE
from cloudcoll.cli.wish import Wish
from cloudcoll.errors import UsageError

ORDERS = "given,sorted,grouped,random:5,cloudcoll"


@dataclass(frozen=True)
class _Options:
    orders: str
    algorithm: str
    first: int
    last: int
    factor: int
    repeats: int
    seed: int
    timeout: float


@click.command("bench", context_settings={"allow_interspersed_args": False})
@click.option("--orders", default=ORDERS, show_default=True, help="What to compare.")
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option("-b", "first", type=SIZE, default="1M", show_default=True, help="From.")
@click.option("-e", "last", type=SIZE, default="16M", show_default=True, help="To.")
@click.option("-f", "factor", type=click.IntRange(2), default=4, show_default=True)
@click.option("--repeats", type=click.IntRange(1, 1000), default=5, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the random orders.")
@click.option("--timeout", default=1800.0, show_default=True, help="Seconds.")
@click.option("--snapshot", type=click.Path(path_type=Path), help="Not the latest.")
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="JSON file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    launcher: tuple[str, ...],
    snapshot: Path | None,
    probe: bool,
    free_rank0: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    r"""Measure allreduce in several orders of hosts, taking turns in one job.

    LAUNCHER is a command line without a program; CloudColl brings its own
    (mpi4py). Orders: given, sorted, natural, grouped, random[:COUNT],
    cloudcoll, or a file that lists the hosts.

    \b
    cloudcoll bench mpirun --hostfile hosts
    cloudcoll bench -b 64K -e 64M --algorithm rabenseifner -o result.json \
        mpirun --hostfile hosts -np 16
    """
    from cloudcoll.report.bench import bench_lines

    wish = Wish(snapshot_path=snapshot, probe=probe, free_rank0=free_rank0)
    run = _bench(launcher, wish, _Options(**options))
    try:
        if as_json:
            print_json(json.loads(run.to_json()))
        else:
            print_lines(bench_lines(run))
    finally:
        # Minutes of measuring must not end in a full disk or a closed pipe.
        if output:
            run.save(output)


def _bench(launcher: tuple[str, ...], wish: Wish, options: _Options) -> Any:
    """Solve, plan and measure; return the `BenchRun`."""
    from cloudcoll.bench.compare import compare_orders
    from cloudcoll.bench.plan import bench_command
    from cloudcoll.launch import parse_launch

    argv = bench_command(launcher, options.algorithm)
    request = parse_launch(argv, os.environ)
    if request.start < len(argv) - 2:
        raise UsageError(
            f"bench brings its own program: leave out {argv[request.start]!r} and what "
            "follows"
        )
    snapshot = usable_snapshot(request, wish)
    wish = replace(wish, algorithm=options.algorithm)
    chosen = {
        size: own_algorithm(request, replace(wish, size=size))
        for size in _sizes(options)
    }
    with _progress() as on_row:
        return compare_orders(
            request,
            snapshot,
            orders=options.orders,
            chosen=chosen,
            repeats=options.repeats,
            seed=options.seed,
            free_rank0=wish.free_rank0,
            timeout=options.timeout,
            on_row=on_row,
        )


def _sizes(options: _Options) -> list[int]:
    if not 4 <= options.first <= options.last:
        raise UsageError("sizes go from -b (at least 4 bytes) up to -e")
    sizes = [options.first]
    while sizes[-1] * options.factor <= options.last:
        sizes.append(sizes[-1] * options.factor)
    return sizes


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show measurements done of all on stderr, if someone watches it."""
    if not progress_wanted():
        yield lambda done, planned: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)
