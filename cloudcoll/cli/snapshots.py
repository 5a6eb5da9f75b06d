"""``cloudcoll import`` and ``merge``: make snapshots of files, others' or our own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import TERMINAL, print_snapshot
from cloudcoll.cli.params import FILE

if TYPE_CHECKING:
    from cloudcoll.measured.snapshot import NetworkSnapshot

source_argument = click.argument("path", metavar="FILE", type=FILE)
output_option = click.option(
    "-o", "--output", required=True, type=FILE, help="Snapshot to write."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
names_option = click.option(
    "--names", type=FILE, help="Lines 'ID HOST': what the launcher calls each host."
)


@click.group(
    "import",
    short_help="make a snapshot of what others measured or know",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def import_() -> None:
    r"""Make a snapshot of what other tools measured or a provider says.

    The result is a snapshot file for 'show', 'solve' and 'run --snapshot'.

    \b
    cloudcoll import matrix --latency rtt.csv -o cluster.snap
    cloudcoll import labels nodes.json -o cluster.snap
    """


@import_.command(short_help="Latency and bandwidth between every two hosts.")
@click.option("--latency", type=FILE, help="Round trips, CSV or NPY.")
@click.option("--bandwidth", type=FILE, help="Rates from row to column, CSV or NPY.")
@click.option("--mpigraph", type=FILE, help="What mpiGraph printed.")
@click.option(
    "--unit",
    "units",
    multiple=True,
    help="Unit of a matrix (ms, Gbit/s); us by default for latency.",
)
@click.option("--one-way", is_flag=True, help="Latencies are half a round trip.")
@click.option("--hosts", "hostfile", type=FILE, help="Host list: names and order.")
@output_option
@json_option
def matrix(
    latency: Path | None,
    bandwidth: Path | None,
    mpigraph: Path | None,
    units: tuple[str, ...],
    one_way: bool,
    hostfile: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    r"""Import matrices between hosts, measured by any tool.

    First row and column name the hosts, or --hosts lists them. An empty cell
    was not measured.

    \b
    cloudcoll import matrix --latency rtt.csv -o cluster.snap
    cloudcoll import matrix --latency rtt.npy --unit ns --bandwidth bw.npy \
        --unit Gbit/s --hosts hosts -o cluster.snap
    cloudcoll import matrix --mpigraph mpiGraph.out -o cluster.snap
    """
    from cloudcoll.hosts import read_hosts
    from cloudcoll.importers import read_matrices
    from cloudcoll.importers.table import kinds_of

    latency_unit, bandwidth_unit = kinds_of(units)
    snapshot = read_matrices(
        latency,
        bandwidth,
        mpigraph,
        latency_unit=latency_unit,
        bandwidth_unit=bandwidth_unit,
        one_way=one_way,
        hosts=read_hosts(hostfile) if hostfile else (),
    )
    _finish(snapshot, output, as_json)


@import_.command(short_help="A tree with capacities, as JSON.")
@source_argument
@output_option
@json_option
def fabric(path: Path, output: Path, as_json: bool) -> None:
    r"""Import a tree of name, children, uplink_bytes_per_s, latency_s.

    Leaves are hosts; a link is the one to the parent, its latency one way.

    \b
    {"name": "core", "children": [
      {"name": "rack-1", "uplink_bytes_per_s": 1.25e9, "latency_s": 2e-5,
       "children": [{"name": "vm-1", "uplink_bytes_per_s": 3.1e9}]}]}
    """
    _tree("fabric", path, output, as_json)


@import_.command(short_help="The graph that NVIDIA topograph found.")
@source_argument
@names_option
@output_option
@json_option
def topograph(path: Path, names: Path | None, output: Path, as_json: bool) -> None:
    """Import the JSON of topograph's engine 'graph'."""
    _tree("topograph", path, output, as_json, names)


@import_.command(short_help="Slurm's topology.conf.")
@source_argument
@click.option("--unit", default="", help="Unit of LinkSpeed, which Slurm leaves open.")
@output_option
@json_option
def slurm(path: Path, unit: str, output: Path, as_json: bool) -> None:
    r"""Import a topology.conf of the tree or the block plug-in.

    \b
    cloudcoll import slurm /etc/slurm/topology.conf -o cluster.snap
    cloudcoll import slurm topology.conf --unit Gbit/s -o cluster.snap
    """
    from cloudcoll.importers.trees import read_slurm

    _finish(read_slurm(path, unit), output, as_json)


@import_.command(short_help="Where a provider says the hosts stand.")
@source_argument
@names_option
@click.option("--with", "measured", type=FILE, help="Snapshot that gets the labels.")
@output_option
@json_option
def labels(
    path: Path, names: Path | None, measured: Path | None, output: Path, as_json: bool
) -> None:
    r"""Import labels of AWS, Google Cloud or Kubernetes.

    With a measured snapshot, its hosts get the labels, its fabric stays, and
    warnings say where the two disagree.

    \b
    aws ec2 describe-instance-topology > topology.json
    gcloud compute instances list --format=json > instances.json
    kubectl get nodes -o json > nodes.json
    cloudcoll import labels nodes.json -o cluster.snap
    cloudcoll import labels nodes.json --with measured.snap -o cluster.snap
    """
    _tree("labels", path, output, as_json, names, measured)


def _tree(
    format: str,
    path: Path,
    output: Path,
    as_json: bool,
    names: Path | None = None,
    measured: Path | None = None,
) -> None:
    from cloudcoll.importers import READERS
    from cloudcoll.importers.labels import read_names, renamed, with_labels
    from cloudcoll.measured.snapshot import load_snapshot

    snapshot = READERS[format](path)
    if names:
        snapshot = renamed(snapshot, read_names(names))
    if measured:
        snapshot = with_labels(load_snapshot(measured), snapshot)
    _finish(snapshot, output, as_json)


def _finish(snapshot: NetworkSnapshot, output: Path, as_json: bool) -> None:
    """Write the snapshot and print what it says."""
    print_snapshot(snapshot.save(output), as_json=as_json)


@click.command("merge", short_help="make one snapshot of several of the same hosts")
@click.argument("paths", metavar="SNAP...", nargs=-1, required=True, type=FILE)
@output_option
@json_option
def merge(paths: tuple[Path, ...], output: Path, as_json: bool) -> None:
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

    with TERMINAL.waiting(f"merging {len(paths)} snapshots"):
        merged = merge_snapshots([load_snapshot(path) for path in paths])
        merged = merged.with_fabric(infer_fabric(merged)).save(output)
    print_snapshot(merged, as_json=as_json)
