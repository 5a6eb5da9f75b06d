"""``cloudcoll solve``: from a snapshot to a rank map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.algorithm import ALGORITHM_HELP, AUTO, LIBRARY_HELP
from cloudcoll.cli.constraints import asked_constraints, constraint_options
from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import SIZE, Finite
from cloudcoll.cli.searching import search_progress
from cloudcoll.cli.traffic import (
    asked_schedule,
    asked_workload,
    is_workload,
    workload_options,
)

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.measured.snapshot import NetworkSnapshot
    from cloudcoll.rankmap import RankMap


@click.command("solve", short_help="find the order in which a collective runs fastest")
@click.argument("snapshot_path", metavar="SNAP", type=click.Path(path_type=Path))
@click.option(
    "--hostfile", type=click.Path(path_type=Path), help="Host list: order and slots."
)
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option("--collective", default="allreduce", show_default=True)
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option("--library", default="", help=LIBRARY_HELP)
@click.option(
    "--bytes",
    "size",
    type=SIZE,
    default="16MiB",
    show_default=True,
    help="Size of one call.",
)
@workload_options
@constraint_options
@click.option("--take", type=click.IntRange(1), help="Use only the best so many hosts.")
@click.option(
    "--per-call", is_flag=True, help="Also an order for each collective, for the shim."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the search.")
@click.option("--solver", help="exact or local.  [default: by number of hosts]")
@click.option(
    "--time",
    "limit_s",
    type=Finite(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Most seconds of a local search, which counts its moves and may end earlier.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the map.")
@click.option("--json", "as_json", is_flag=True, help="Print the map as JSON.")
def command(
    snapshot_path: Path,
    hostfile: Path | None,
    names: str | None,
    collective: str,
    algorithm: str,
    library: str,
    size: int,
    workload: str | None,
    parallel: str | None,
    per_call: bool,
    seed: int,
    free_rank0: bool,
    solver: str | None,
    limit_s: float,
    output: Path | None,
    as_json: bool,
    **kept: Any,
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
    from cloudcoll.cli.percall import with_call_orders
    from cloudcoll.cli.probing import named_hosts
    from cloudcoll.hosts import matched_names
    from cloudcoll.launch.own_host import addresses_of
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.report.checks import missing_line, trusted_line
    from cloudcoll.report.maps import map_json, map_lines
    from cloudcoll.solve import Watch, solve

    snapshot = load_snapshot(snapshot_path)
    hosts = named_hosts(hostfile, names) or snapshot.hosts
    addresses = {name: snapshot.addresses.get(name, name) for name in snapshot.names}
    given = matched_names(hosts, addresses, addresses_of)
    slots = [host.slots or 1 for host in hosts]
    used, words, gain = slots[: kept["take"]], "", ""
    sent: Schedule | Workload | None = asked_workload(workload, parallel, sum(used))
    if sent is None:
        sent, words = asked_schedule(collective, algorithm, library, used, size)
    with search_progress(len(hosts)) as tell:
        watch = Watch(limit_s, tell)
        search = partial(solve, snapshot, seed=seed, solver=solver, watch=watch)
        rank_map = search(
            sent,
            given=given,
            slots=slots,
            free_rank0=free_rank0,
            constraints=asked_constraints(sent, **kept),
        )
        if per_call:
            rank_map = with_call_orders(rank_map, sent, search)
        if not is_workload(workload, parallel) and not rank_map.constraints:
            # What a workload would be with fewer ranks, nobody knows.
            gain = _gain_without_worst(
                rank_map,
                snapshot,
                dict(zip(given, slots, strict=True)),
                partial(asked_schedule, collective, algorithm, library, size=size),
                partial(search, free_rank0=free_rank0),
                () if free_rank0 else given[:1],
            )
    doubts = (check(snapshot, rank_map.order) for check in (trusted_line, missing_line))
    for line in filter(None, (words, *doubts, gain)):
        say(line)
    if output:
        rank_map.save(output)
    if as_json:
        print_json(map_json(rank_map))
    else:
        print_lines(map_lines(rank_map))


def _gain_without_worst(
    rank_map: RankMap,
    snapshot: NetworkSnapshot,
    slots: Mapping[str, int],
    ask: Callable[..., tuple[Schedule, str]],
    search: Callable[..., RankMap],
    kept: Collection[str],
) -> str:
    """Return what leaving out the hosts that stand out should gain; empty if nothing.

    Parameters
    ----------
    rank_map : RankMap
        Of all hosts.
    snapshot : NetworkSnapshot
    slots : mapping of str to int
        Ranks on each of the hosts.
    ask, search : callable
        Slots -> schedule of so many ranks; schedule -> best order of some hosts.
    kept : collection of str
        Hosts that have to stay.
    """
    from cloudcoll.report.bound import without_words
    from cloudcoll.report.findings import honest_fabric, worst_hosts

    worst = {host.name for host in worst_hosts(snapshot, honest_fabric(snapshot))}
    stay = [name for name in slots if name in kept or name not in worst]
    if not 1 < len(stay) < len(slots):
        return ""
    counts = [slots[name] for name in stay]
    fewer, _ = ask(slots=counts)
    return without_words(rank_map, search(fewer, given=stay, slots=counts))
