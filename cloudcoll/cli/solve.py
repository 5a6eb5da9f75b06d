"""``cloudcoll solve``: from a snapshot to a rank map."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from cloudcoll.cli.output import (
    TERMINAL,
    print_json,
    print_lines,
    print_picture,
)
from cloudcoll.cli.params import (
    FILE,
    LIBRARIES,
    LIBRARY_HELP,
    SOLVERS,
    Finite,
    algorithm_option,
    collective_option,
    constraint_options,
    size_option,
    workload_options,
)
from cloudcoll.files import check_writable


@click.command("solve", short_help="find the order in which a collective runs fastest")
@click.argument("snapshot_path", metavar="SNAP", type=FILE)
@click.option("--hostfile", type=FILE, help="Host list: order and slots.")
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@collective_option
@algorithm_option
@click.option("--library", shell_complete=LIBRARIES, default="", help=LIBRARY_HELP)
@size_option
@workload_options
@constraint_options
@click.option("--take", type=click.IntRange(1), help="Use only the best so many hosts.")
@click.option(
    "--per-call", is_flag=True, help="Also an order for each collective, for the shim."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--solver",
    shell_complete=SOLVERS,
    help="exact or local.  [default: by number of hosts]",
)
@click.option(
    "--time",
    "limit_s",
    type=Finite(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Most seconds of a local search, which counts its moves and may end earlier.",
)
@click.option("-o", "--output", type=FILE, help="Write the map.")
@click.option(
    "--picture/--no-picture",
    default=None,
    help="Draw the order's way through the racks; the default on a terminal.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
def command(
    snapshot_path: Path,
    hostfile: Path | None,
    names: str | None,
    keep_below: float | None,
    output: Path | None,
    picture: bool | None,
    as_json: bool,
    **asked: Any,
) -> None:
    r"""Find the order of hosts in which a collective runs fastest.

    Rank 0 stays on the host that has it. The order given and the orders sorted
    by name and by group are always candidates, so the answer is never predicted
    to be slower than any of them with that host in front.

    A workload is several collectives, each in groups of ranks. It is a JSON
    file or ready-made (ddp, dlrm, fsdp, megatron, towers, each with parameters
    of its own). The order is the best for one step of the whole workload.

    Constraints can keep a rank on a host, hold groups of ranks in one rack each,
    leave out the worst of the hosts, or keep the order given where there is
    little to gain.

    \b
    cloudcoll solve cluster.snap -o map.json
    cloudcoll solve cluster.snap -w 'vm-[01-04]' --library gloo
    cloudcoll solve cluster.snap --algorithm ring --bytes 64M
    cloudcoll solve cluster.snap --workload fsdp:bytes=7G,units=40
    cloudcoll solve cluster.snap --parallel tp=4,pp=2,dp=2
    cloudcoll solve cluster.snap --workload job.json -o map.json
    cloudcoll solve cluster.snap --parallel tp=4,dp=4 --same-rack tp
    cloudcoll solve cluster.snap --workload job.json --per-call -o map.json
    cloudcoll solve cluster.snap --take 12 --pin 0=vm-7 --keep-below 3%
    """
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.report.maps import map_json, map_lines
    from cloudcoll.work.measure import named_hosts
    from cloudcoll.work.solve import order_for

    if output:
        check_writable(output)
    snapshot = load_snapshot(snapshot_path)
    hosts = named_hosts(hostfile, names)
    rank_map = order_for(
        snapshot, hosts, keep_below=keep_below or 0.0, reporter=TERMINAL, **asked
    )
    if output:
        rank_map.save(output)
    if as_json:
        print_json(map_json(rank_map))
    else:
        print_lines(map_lines(rank_map))
        if sys.stdout.isatty() if picture is None else picture:
            print_picture(snapshot, rank_map.order)
