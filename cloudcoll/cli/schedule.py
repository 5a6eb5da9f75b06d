"""``cloudcoll schedule``: who sends how much to whom in a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import (
    FILE,
    LIBRARIES,
    LIBRARY_HELP,
    SIZE,
    algorithm_option,
    collective_option,
    workload_options,
)
from cloudcoll.errors import UsageError
from cloudcoll.work.sent import asked_schedule, asked_workload

if TYPE_CHECKING:
    from cloudcoll.collectives import Schedule
    from cloudcoll.collectives.workload import Workload
    from cloudcoll.measured.snapshot import NetworkSnapshot
    from cloudcoll.rankmap import RankMap
    from cloudcoll.report.traffic import Crossing


MOST_RANKS = 1 << 13
"""The bytes of all pairs of more ranks do not fit into a usual memory."""


@click.command(
    "schedule", short_help="print who sends how much to whom in a collective"
)
@collective_option
@algorithm_option
@click.option("--library", shell_complete=LIBRARIES, default="", help=LIBRARY_HELP)
@click.option("--ranks", type=int, help="World size; by default the snapshot's.")
@click.option("--bytes", "size", type=SIZE, default="16MiB", show_default=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=N",
    help="A parameter, such as root=3.",
)
@workload_options
@click.option(
    "--snapshot",
    "snapshot_path",
    type=FILE,
    help="Snapshot by whose groups bytes are counted.",
)
@click.option("--map", "map_path", type=FILE, help="Rank map that gives the order.")
@click.option("--compare", metavar="ORDER,ORDER", help="Orders to count bytes in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    collective: str,
    algorithm: str,
    library: str,
    ranks: int | None,
    size: int,
    settings: tuple[str, ...],
    workload: str | None,
    parallel: str | None,
    snapshot_path: Path | None,
    map_path: Path | None,
    compare: str | None,
    as_json: bool,
) -> None:
    r"""Print the messages of one call of a collective, and the bytes of each pair.

    With a snapshot it also prints the share of all bytes that leaves a host, a
    group, a group of groups. Orders to compare are given, sorted, natural,
    grouped, random[:COUNT], cloudcoll, or a file that lists the hosts.

    What --set takes depends on the algorithm: root, segment, radix, fanout and
    the like; a wrong name is answered with those there are.

    Of a workload (see cloudcoll solve) it prints the operations, and the bytes
    of one step.

    \b
    cloudcoll schedule --library mpich@4.0 --ranks 12 --bytes 64K
    cloudcoll schedule --algorithm ring --ranks 16 --bytes 64M
    cloudcoll schedule --collective bcast --algorithm chain --ranks 12 \
        --set root=3 --json | jq .pairs
    cloudcoll schedule --snapshot cluster.snap --compare given,grouped,cloudcoll
    cloudcoll schedule --parallel tp=8,pp=4,dp=16
    """
    from cloudcoll.report.traffic import traffic_json, traffic_lines

    if (map_path or compare) and not snapshot_path:
        raise UsageError("--map and --compare need a snapshot: add --snapshot SNAP")
    placed = _placed(snapshot_path, map_path) if snapshot_path else None
    if placed and ranks not in (None, placed.rank_map.size):
        raise UsageError(
            f"the hosts of {map_path or snapshot_path} take {placed.rank_map.size} "
            f"ranks, not {ranks}: leave out --ranks"
        )
    ranks = placed.rank_map.size if placed else ranks
    _check_size(ranks)
    words = ""
    sent: Schedule | Workload | None = asked_workload(workload, parallel, ranks)
    if sent is None:
        slots = placed.rank_map.slots if placed else (1,) * _world_size(ranks)
        sent, words = asked_schedule(
            collective, algorithm, library, slots, size, **_parameters(settings)
        )
    _check_size(sent.ranks)
    orders = _levels(placed, sent, compare) if placed else {}
    if words:
        say(words)
    if as_json:
        print_json(traffic_json(sent, orders))
    else:
        print_lines(traffic_lines(sent, orders))


@dataclass(frozen=True)
class _Placed:
    snapshot: NetworkSnapshot
    rank_map: RankMap
    solved: bool


def _placed(snapshot_path: Path, map_path: Path | None) -> _Placed:
    """Return the snapshot with the order of the map, or its own."""
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.rankmap import RankMap, load_rankmap

    snapshot = load_snapshot(snapshot_path)
    if map_path:
        return _Placed(snapshot, load_rankmap(map_path), solved=True)
    slots = tuple(host.slots or 1 for host in snapshot.hosts)
    return _Placed(snapshot, RankMap(snapshot.names, slots), solved=False)


def _check_size(ranks: int | None) -> None:
    if ranks is not None and ranks > MOST_RANKS:
        raise UsageError(
            f"bytes per pair of {ranks} ranks: at most {MOST_RANKS} ranks are shown"
        )


def _world_size(ranks: int | None) -> int:
    if ranks is None:
        raise UsageError("how many ranks? add --ranks N, or --snapshot SNAP")
    if ranks < 2:
        raise UsageError(f"a collective is among 2 ranks or more, not {ranks}")
    return ranks


def _parameters(settings: Sequence[str]) -> dict[str, int]:
    parameters = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if not (name.isidentifier() and value.isdecimal()):
            raise UsageError(f"--set {setting!r} is not NAME=NUMBER, such as root=3")
        parameters[name] = int(value)
    return parameters


def _levels(
    placed: _Placed, sent: Schedule | Workload, compare: str | None
) -> dict[str, list[Crossing]]:
    """Return what leaves each level of the fabric, by name of the order."""
    from cloudcoll.bench.job import named_orders
    from cloudcoll.model import fabric_of
    from cloudcoll.report.traffic import crossings
    from cloudcoll.solve import solve

    rank_map = placed.rank_map
    fabric = fabric_of(placed.snapshot).restrict(rank_map.order)
    slots = dict(zip(rank_map.order, rank_map.slots, strict=True))
    given = [name for name in placed.snapshot.names if name in slots]
    names = compare or ("cloudcoll" if placed.solved else "given")
    if not placed.solved and "cloudcoll" in names.split(","):
        counts = [slots[name] for name in given]
        rank_map = solve(placed.snapshot, sent, given=given, slots=counts)
    pairs = sent.pair_bytes()
    return {
        name: crossings(pairs, fabric, order.hosts, [slots[h] for h in order.hosts])
        for order in named_orders(names, given, fabric, rank_map, seed=0)
        for name in (order.name, *order.same_as)
    }
