"""``cloudcoll probe``: measure the network between hosts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.errors import UsageError

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.snapshot import NetworkSnapshot


@click.command("probe", short_help="measure the network between hosts")
@click.option("--hostfile", type=click.Path(path_type=Path), help="A host list.")
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option("--via", help="ssh, lab or local: how hosts are reached.")
@click.option("--lab", help="Name of the lab; without a host list, all its hosts.")
@click.option("--rsh", default="", help="Program that takes ssh's place.")
@click.option("--quick", "mode", flag_value="quick", help="Seconds.")
@click.option(
    "--standard", "mode", flag_value="standard", default="standard", help="The default."
)
@click.option("--full", "mode", flag_value="full", help="Both ways, three times.")
@click.option("--seed", default=0, help="Who meets whom in which round.")
@click.option("--force", is_flag=True, help="Even if another probe is running there.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Snapshot file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    hostfile: Path | None,
    names: str | None,
    via: str | None,
    lab: str | None,
    rsh: str,
    mode: str,
    seed: int,
    force: bool,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
) -> int:
    r"""Measure latency and bandwidth between all hosts.

    Nothing is installed there: python3 is all it takes. The snapshot is kept
    for `run` and `solve`. Exit code: 0 all was measured, 1 some hosts or pairs
    were not, 3 nothing usable.

    \b
    cloudcoll probe --hostfile hosts -o cluster.snap
    cloudcoll probe -w 'node[01-16]' --quick
    cloudcoll probe --lab default
    """
    from cloudcoll.cli.probing import choose_transport, obtain_snapshot, plan_for
    from cloudcoll.report.jsonform import snapshot_json
    from cloudcoll.report.text import snapshot_lines

    transport = choose_transport(via, rsh, lab)
    hosts = _hosts(hostfile, names, lab, transport.name == "lab")
    plan = plan_for(hosts, transport, mode, seed)
    if dry_run:
        example = transport.command(hosts[0], ["python3", "..."])
        print_lines([*plan.describe(), f"started by: {shlex.join(example)}"])
        return 0
    snapshot = obtain_snapshot(hosts, transport, plan, force=force, output=output)
    if as_json:
        print_json(snapshot_json(snapshot))
    else:
        print_lines(snapshot_lines(snapshot))
    return _complaints(snapshot)


def _hosts(
    hostfile: Path | None, names: str | None, lab: str | None, in_lab: bool
) -> tuple[Host, ...]:
    from cloudcoll.cli.probing import find_lab
    from cloudcoll.hosts import parse_host_argument, read_hosts

    if hostfile and names:
        raise UsageError("--hostfile and -w exclude each other: give one of them")
    if hostfile:
        return read_hosts(hostfile)
    if names:
        return parse_host_argument(names)
    if in_lab:
        return find_lab(lab).hosts
    raise UsageError("no hosts: name them with --hostfile FILE or -w 'node[01-16]'")


def _complaints(snapshot: NetworkSnapshot) -> int:
    """Say what was not measured; return the exit code."""
    for name, reason in snapshot.failed.items():
        say(f"{name} failed: {reason}")
    unmeasured = _unmeasured(snapshot)
    if unmeasured:
        src, dst = unmeasured[0]
        texts = [trouble["text"] for trouble in snapshot.metadata["troubles"]]
        why = f" ({texts[0]})" if texts else ""
        say(f"{len(unmeasured)} pairs gave no result, such as {src} to {dst}{why}")
    return 1 if snapshot.failed or unmeasured else 0


def _unmeasured(snapshot: NetworkSnapshot) -> list[tuple[str, str]]:
    """Return the planned pairs, neither host of which failed, without a result."""
    return [
        (snapshot.names[src], snapshot.names[dst])
        for part in (snapshot.rtt, snapshot.flows)
        for src, dst, first, end in zip(
            part.src, part.dst, [0, *part.ends], part.ends, strict=False
        )
        if first == end
    ]
