"""``cloudcoll merge``: several snapshots of the same hosts as one."""

from __future__ import annotations

from pathlib import Path

import click

from cloudcoll.cli.output import print_snapshot


@click.command("merge", short_help="make one snapshot of several of the same hosts")
@click.argument(
    "paths", metavar="SNAP...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Snapshot to write.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paths: tuple[Path, ...], output: Path, as_json: bool) -> None:
    r"""Make one snapshot of several of the same hosts, taken at different times.

    A pair's round trip is then the median over the snapshots, so that what
    disturbed one of them does not count; what comes and goes is reported
    separately. That takes three snapshots: of two, neither is the odd one. All
    raw samples are kept. Snapshots of other hosts, or measured in another way,
    are refused.

    \b
    cloudcoll merge monday.snap tuesday.snap wednesday.snap -o week.snap
    cloudcoll run --snapshot week.snap mpirun --hostfile hosts ./app
    """
    from cloudcoll.infer import infer_fabric
    from cloudcoll.measured.merge import merge_snapshots
    from cloudcoll.measured.snapshot import load_snapshot

    merged = merge_snapshots([load_snapshot(path) for path in paths])
    merged = merged.with_fabric(infer_fabric(merged)).save(output)
    print_snapshot(merged, as_json=as_json)
