"""``cloudcoll show``: what a snapshot or a rank map says."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cloudcoll.cli.output import print_json, print_lines


@click.command("show", short_help="print what a snapshot or a rank map says")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, as_json: bool) -> None:
    r"""Print groups, links, slow hosts and warnings of a snapshot, or a rank map.

    \b
    cloudcoll show cluster.snap
    cloudcoll show cluster.snap --json | jq '.levels[0].groups'
    cloudcoll show map.json
    """
    from cloudcoll.rankmap import load_rankmap
    from cloudcoll.report.text import map_lines, snapshot_json, snapshot_lines
    from cloudcoll.snapshot import load_snapshot

    if _is_json(path):
        rank_map = load_rankmap(path)
        if as_json:
            print_json(json.loads(rank_map.to_json()))
        else:
            print_lines(map_lines(rank_map))
        return
    snapshot = load_snapshot(path)
    if as_json:
        print_json(snapshot_json(snapshot))
    else:
        print_lines(snapshot_lines(snapshot))


def _is_json(path: Path) -> bool:
    """Tell a rank map (JSON) from a snapshot by its first byte."""
    try:
        with path.open("rb") as file:
            return file.read(1) == b"{"
    except OSError:
        # The reader of snapshots words this error.
        return False
