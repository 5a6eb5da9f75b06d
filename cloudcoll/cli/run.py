"""``cloudcoll run``: a prefix that puts the best order in force."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click

from cloudcoll import units
from cloudcoll.cli.output import TERMINAL, print_lines
from cloudcoll.cli.params import (
    DURATION,
    FILE,
    LIBRARIES,
    Prefix,
    algorithm_option,
    collective_option,
    constraint_options,
    size_option,
    workload_options,
)
from cloudcoll.launch import LaunchPlan
from cloudcoll.rankmap import RankMap
from cloudcoll.report.gains import gap_words, tuning_lines
from cloudcoll.work.request import OrderRequest
from cloudcoll.work.start import INJECT, StartOptions, prepare, start


@click.command("run", cls=Prefix)
@click.option(
    "--snapshot",
    "snapshot_path",
    type=FILE,
    help="Snapshot to solve from, if not the latest.",
)
@click.option("--map", "map_path", type=FILE, help="Rank map to follow.")
@click.option("--dry-run", is_flag=True, help="Print the command line, start nothing.")
@click.option("--strict", is_flag=True, help="Exit 125 rather than run unchanged.")
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option(
    "--max-age",
    type=DURATION,
    help="Oldest snapshot to use.  [default: 1h, then probe if that is possible]",
)
@collective_option
@algorithm_option
@click.option(
    "--library",
    shell_complete=LIBRARIES,
    default="",
    help="Library, if not the launcher's: nccl, gloo, ....",
)
@size_option
@workload_options
@constraint_options
@click.option(
    "--inject",
    type=click.Choice(INJECT),
    default="auto",
    show_default=True,
    help="Reorder by the launcher, inside MPI or NCCL (shim), or not at all.",
)
@click.option("--profile", type=FILE, help="File for what the job calls of MPI.")
@click.option(
    "--tune",
    is_flag=True,
    help="Choose algorithms, too: the map's, or by the model.",
)
@click.option("--take", is_flag=True, help="Choose the best of all hosts listed.")
@click.option(
    "--validate", is_flag=True, help="Load both orders for 5 s, take the faster."
)
@click.option("-v", "--verbose", is_flag=True, help="Say what was done.")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    launcher: tuple[str, ...],
    dry_run: bool,
    strict: bool,
    validate: bool,
    verbose: bool,
    inject: str,
    profile: Path | None,
    max_age: float | None,
    **options: object,
) -> int:
    r"""Start the job of LAUNCHER in the order of hosts that the network favours.

    Only which host gets which ranks changes. Where no order can be decided,
    the command runs as typed and one line says why.

    \b
    cloudcoll run mpirun --hostfile hosts ./app
    cloudcoll run --dry-run mpirun -n 64 --hostfile hosts ./app
    cloudcoll run --parallel tp=4,dp=16 --same-rack tp mpirun --hostfile hosts ./app
    cloudcoll run --validate mpirun --hostfile hosts ./app
    cloudcoll run --take mpirun -n 48 --hostfile all-hosts ./app
    cloudcoll run --tune mpirun --hostfile hosts ./app
    cloudcoll run --profile calls.json mpirun --hostfile hosts ./app
    """
    if max_age is not None:
        options |= {"max_age": max_age, "too_old": max_age}
    wanted = OrderRequest(**options)  # type: ignore[arg-type]
    wanted.check()
    how = StartOptions(inject, strict, validate, profile, verbose, take_over=True)
    if dry_run:
        becomes = prepare(launcher, wanted, how, TERMINAL, dry_run=True)
        print_lines(describe(becomes.plan, becomes.rank_map))
        return 0
    return _leave(start(launcher, wanted, how, TERMINAL))


def _leave(code: int) -> NoReturn:
    """End now: the job has, and freeing all modules takes a tenth of a start."""
    # What can't be written any more is no reason for another exit code.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def describe(plan: LaunchPlan, rank_map: RankMap | None) -> Iterator[str]:
    """Yield the command line and, as comments, what belongs to it."""
    setting = [f"{name}={shlex.quote(value)}" for name, value in plan.env.items()]
    yield " ".join([*setting, shlex.join(plan.argv)])
    for path, text in plan.files.items():
        yield f"# {path}:"
        yield from (f"#   {line}" for line in text.splitlines())
    if rank_map:
        yield f"# order: {' '.join(rank_map.order)}"
        if rank_map.dropped:
            yield f"# left out: {' '.join(rank_map.dropped)}"
        if rank_map.tuning:
            yield from (f"# {line}" for line in tuning_lines(rank_map.tuning))
        if rank_map.assumption:
            yield f"# {rank_map.assumption}"
        if words := gap_words(rank_map):
            yield f"# {words}"
        for name, seconds in rank_map.predicted.items():
            yield f"# predicted, {name}: {units.seconds(seconds)}"
