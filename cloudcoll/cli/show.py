"""``cloudcoll show``: what a snapshot, a map, a profile or NCCL's choices say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import line_width, print_json, print_lines, print_picture
from cloudcoll.cli.params import FILE
from cloudcoll.errors import UsageError
from cloudcoll.libraries.nccl import HEAD as CHOICES_HEAD
from cloudcoll.libraries.nccl import read_choices

if TYPE_CHECKING:
    from cloudcoll.measured.snapshot import NetworkSnapshot


@click.command("show", short_help="print what a snapshot, a map or a profile says")
@click.argument("path", type=FILE)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--heatmap/--no-heatmap",
    default=None,
    help="Show every pair, in blocks; with --json as numbers. "
    "The default on a terminal, up to 64 hosts.",
)
@click.option(
    "--map", "map_path", type=FILE, help="Draw its order through a snapshot's racks."
)
def command(
    path: Path, as_json: bool, heatmap: bool | None, map_path: Path | None
) -> None:
    r"""Print what a snapshot, a rank map or the profile of a job says.

    Of a snapshot: groups and their links, round trips, loss, how sure the
    model is, the worst hosts, uplinks and directions, and what to run next.
    `n:1` is the oversubscription: the rate of a group's hosts over its uplink.
    Of a map: the order, what it should bring, and its algorithms, if it has any.
    Of a log of NCCL's choices (CLOUDCOLL_NCCL_CHOICES): which algorithm it took.

    \b
    cloudcoll show cluster.snap --heatmap
    cloudcoll show cluster.snap --json | jq '.levels[0].groups'
    cloudcoll show map.json
    cloudcoll show cluster.snap --map map.json
    cloudcoll show profile.json
    """
    from cloudcoll.profile import is_profile

    first = _first_bytes(path)
    if first.startswith(CHOICES_HEAD):
        _print_choices(path, as_json)
        return
    if heatmap and first.startswith("{"):
        raise UsageError(
            f"{path} is no snapshot, and only snapshots have a heat map: leave out "
            "--heatmap"
        )
    if map_path and (as_json or first.startswith("{")):
        raise UsageError("--map draws racks: it goes with a snapshot, without --json")
    if is_profile(first):
        _print_profile(path, as_json)
    elif first.startswith("{"):
        _print_map(path, as_json)
    elif map_path:
        _print_picture(path, map_path)
    else:
        _print_snapshot(path, as_json, heatmap)


def _print_map(path: Path, as_json: bool) -> None:
    from cloudcoll.rankmap import load_rankmap
    from cloudcoll.report.maps import map_json, map_lines

    rank_map = load_rankmap(path)
    if as_json:
        print_json(map_json(rank_map))
    else:
        print_lines(map_lines(rank_map))


def _print_picture(path: Path, map_path: Path) -> None:
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.rankmap import load_rankmap

    snapshot = load_snapshot(path)
    order = load_rankmap(map_path).order
    if strangers := set(order) - set(snapshot.names):
        raise UsageError(
            f"{map_path} is of other hosts than {path}, such as {min(strangers)!r}"
        )
    print_picture(snapshot, order)


def _print_snapshot(path: Path, as_json: bool, heatmap: bool | None) -> None:
    from cloudcoll.measured.snapshot import load_snapshot
    from cloudcoll.report.heatmap import color_wanted, painted
    from cloudcoll.report.snapshot import snapshot_json, snapshot_lines

    snapshot = load_snapshot(path)
    if as_json:
        print_json(snapshot_json(snapshot, matrices=bool(heatmap)))
    else:
        lines = [*snapshot_lines(snapshot, line_width()), *_heatmaps(snapshot, heatmap)]
        print_lines(lines, painted if color_wanted(sys.stdout.isatty()) else None)


def _heatmaps(snapshot: NetworkSnapshot, wanted: bool | None) -> Iterator[str]:
    """Yield the lines of both maps if they are wanted, or fit unasked."""
    from cloudcoll.report.findings import honest_fabric
    from cloudcoll.report.heatmap import MAX_HOSTS, heatmap_lines

    hosts = len(snapshot.hosts)
    if wanted and hosts > MAX_HOSTS:
        raise UsageError(
            f"a heat map of {hosts} hosts: at most {MAX_HOSTS} fit a terminal; "
            "--json --heatmap has every pair as numbers"
        )
    if wanted is None:
        wanted = sys.stdout.isatty() and hosts <= MAX_HOSTS
    if wanted:
        for matrix in (snapshot.latency, snapshot.bandwidth):
            fabric = honest_fabric(snapshot)
            yield ""
            yield from heatmap_lines(matrix, snapshot.names, fabric)


def _print_profile(path: Path, as_json: bool) -> None:
    from cloudcoll.profile import load_profile
    from cloudcoll.report.traffic import profile_json, profile_lines

    profile = load_profile(path)
    if as_json:
        print_json(profile_json(profile))
    else:
        print_lines(profile_lines(profile, str(path)))


def _print_choices(path: Path, as_json: bool) -> None:
    from cloudcoll import units
    from cloudcoll.report.document import Table

    choices = read_choices(path)
    if as_json:
        print_json([one._asdict() for one in choices])
        return
    rows = [
        (str(one.ranks), str(one.nodes), one.collective, units.size(one.size), one.name)
        for one, before in zip(choices, (None, *choices), strict=False)
        # One line from the size on from which it is taken.
        if not before or (*before[:3], before.name) != (*one[:3], one.name)
    ]
    head = ("ranks", "hosts", "collective", "from", "algorithm")
    print_lines(Table(head, tuple(rows)).lines())


def _first_bytes(path: Path) -> str:
    """Return how a file begins, which tells what it is."""
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace")
    except OSError:
        # The reader of snapshots words this error.
        return ""
