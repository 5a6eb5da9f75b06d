"""``cloudcoll bench``: a collective in several orders of hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cloudcoll import units
from cloudcoll.cli.output import TERMINAL, print_json, print_lines, print_text, say
from cloudcoll.cli.params import FILE, SIZE, Finite, algorithm_option, collective_option
from cloudcoll.errors import UsageError
from cloudcoll.files import check_writable
from cloudcoll.work.request import BACKENDS, ORDERS, CompareOptions, OrderRequest
from cloudcoll.work.sent import AUTO

BACKEND_HELP = (
    "mpi4py, or c, which your mpicc compiles; with --via torch, gloo or nccl.  "
    "[default: mpi4py, or c without it; gloo]"
)
MOST = "Most measurements of each order."
FACTOR = "Factor from one size to the next."
NARROW = "Stop once all ratios are known to this many per cent."
OUTPUT_HELP = "File to write: JSON, which 'report' reads, or CSV (.csv)."


@click.command("bench", context_settings={"allow_interspersed_args": False})
@click.option("--orders", default=ORDERS, show_default=True, help="Orders to compare.")
@collective_option
@algorithm_option
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
    "--snapshot", type=FILE, help="Snapshot to solve from, if not the latest."
)
@click.option(
    "--no-probe", "probe", flag_value=False, default=True, help="Never probe."
)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("-o", "--output", type=FILE, help=OUTPUT_HELP)
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
    mpi4py, C, or torch (with Gloo or NCCL). The one in C needs no
    Python on the hosts. It is compiled by MPICC, or by the mpicc beside the
    launcher, into CloudColl's folder, which the hosts have to share.

    Collectives are allgather, allreduce, alltoall, bcast, reduce and
    reduce_scatter. Orders are given, sorted, natural, grouped, random[:COUNT],
    cloudcoll, or a file that lists the hosts.

    What messages cost the library's ranks is measured first, in a job of some
    seconds, and kept in the snapshot's file: predictions need it.

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
        command_words,
        run_doubts,
        table_lines,
        verdict_words,
    )
    from cloudcoll.work.compare import compare

    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other: -o FILE takes the other")
    if output:
        check_writable(output)
    wanted = OrderRequest(snapshot_path=snapshot, probe=probe, free_rank0=free_rank0)
    run = compare(launcher, wanted, CompareOptions(**options), TERMINAL)
    try:
        if as_json:
            print_json(json.loads(run.to_json()))
        elif as_csv:
            print_text(run.to_csv())
        else:
            lines = bench_lines if verbose else table_lines
            asked = _asked_of_run(wanted, CompareOptions(**options))
            next_step = command_words(run, launcher, asked)
            print_lines([*lines(run), "", verdict_words(run), next_step])
    finally:
        # Minutes of measuring must not end in a full disk or a closed pipe.
        if output:
            run.save(output)
    for doubt in run_doubts(run):
        say(doubt)
    return int(bool(run_doubts(run)))


def _asked_of_run(wanted: OrderRequest, options: CompareOptions) -> list[str]:
    """Return the options of `run` that ask for the same order."""
    asked = []
    if wanted.snapshot_path:
        asked += ["--snapshot", str(wanted.snapshot_path)]
    for name, value, usual in (
        ("--collective", options.collective, "allreduce"),
        ("--algorithm", options.algorithm, AUTO),
        ("--library", options.backend or "gloo" if options.via == "torch" else "", ""),
        ("--bytes", units.size(options.last).replace(" ", ""), "16MiB"),
    ):
        asked += [name, value] if value != usual else []
    return [*asked, *(["--free-rank0"] if wanted.free_rank0 else [])]
