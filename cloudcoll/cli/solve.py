"""``cloudcoll solve``: from a snapshot to a rank map."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cloudcoll.cli.choice import ALGORITHM_HELP, AUTO, LIBRARY_HELP, choose
from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import SIZE


@click.command("solve", short_help="find the order in which a collective runs fastest")
@click.argument("snapshot_path", metavar="SNAP", type=click.Path(path_type=Path))
@click.option("--hostfile", type=click.Path(path_type=Path), help="Order and slots.")
@click.option("--collective", default="allreduce", show_default=True)
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option("--library", default="", help=LIBRARY_HELP)
@click.option(
    "--bytes", "size", type=SIZE, default="16MiB", show_default=True, help="Vector."
)
@click.option("--seed", default=0, show_default=True, help="Of the search.")
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("--solver", help="exact or local; by number of hosts if not given.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the map.")
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
def command(
    snapshot_path: Path,
    hostfile: Path | None,
    collective: str,
    algorithm: str,
    library: str,
    size: int,
    seed: int,
    free_rank0: bool,
    solver: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    r"""Find the order of hosts in which a collective runs fastest.

    Rank 0 stays on the host that has it. The order given, the orders sorted by
    name and by group are always candidates: the answer is never worse than
    any of them with that host in front.

    \b
    cloudcoll solve cluster.snap -o map.json
    cloudcoll solve cluster.snap --algorithm ring --bytes 64M
    """
    from cloudcoll.hosts import read_hosts
    from cloudcoll.report.maps import map_lines
    from cloudcoll.schedule import build_schedule
    from cloudcoll.snapshot import load_snapshot
    from cloudcoll.solve import solve

    snapshot = load_snapshot(snapshot_path)
    hosts = read_hosts(hostfile) if hostfile else snapshot.hosts
    slots = [host.slots or 1 for host in hosts]
    chosen = choose(collective, algorithm, library, slots, size)
    schedule = build_schedule(
        collective, chosen.algorithm, sum(slots), size, **chosen.parameters
    )
    rank_map = solve(
        snapshot,
        schedule,
        given=[host.name for host in hosts],
        slots=slots,
        seed=seed,
        free_rank0=free_rank0,
        solver=solver,
    )
    if algorithm == AUTO:
        say(f"solved for {collective} by {chosen}")
    if output:
        rank_map.save(output)
    if as_json:
        print_json(json.loads(rank_map.to_json()))
    else:
        print_lines(map_lines(rank_map))
