"""``cloudcoll probe``: measure the network between hosts."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.errors import UsageError

if TYPE_CHECKING:
    from cloudcoll.cli.probing import Way
    from cloudcoll.hosts import Host
    from cloudcoll.probe import ProbePlan
    from cloudcoll.snapshot import NetworkSnapshot


@dataclass(frozen=True)
class _Options:
    launcher: tuple[str, ...]
    via: str | None
    lab: str | None
    rsh: str
    mode: str
    seed: int
    force: bool
    resume: bool
    labels: Path | None
    output: Path | None


@click.command("probe", short_help="measure the network between hosts")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
@click.option("--hostfile", type=click.Path(path_type=Path), help="A host list.")
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option("--via", help="ssh, lab, local or mpi: how hosts are reached.")
@click.option("--lab", help="Name of the lab; without a host list, all its hosts.")
@click.option("--rsh", default="", help="Program that takes ssh's place.")
@click.option("--quick", "mode", flag_value="quick", help="Seconds.")
@click.option(
    "--standard", "mode", flag_value="standard", default="standard", help="The default."
)
@click.option("--full", "mode", flag_value="full", help="Both ways, three times.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="Where hosts are said to stand: a file for 'import labels', or a snapshot.",
)
@click.option("--seed", default=0, help="Who meets whom in which round.")
@click.option("--force", is_flag=True, help="Even if another probe is running there.")
@click.option("--resume", is_flag=True, help="Go on where a probe via mpi died.")
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Snapshot file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    hostfile: Path | None,
    names: str | None,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    r"""Measure latency and bandwidth between all hosts.

    Nothing is installed there: python3 is all it takes. The snapshot is kept
    for `run` and `solve`. Exit code: 0 all was measured, 1 some hosts or pairs
    were not, 3 nothing usable.

    With --labels fewer rounds do: what they say is checked, not found. Where
    it is wrong, the measurement counts and a warning names the host.

    With --via mpi a job of LAUNCHER, a command line without a program,
    measures the path that MPI takes (mpi4py, a rank on each host); if it dies,
    the same command with --resume measures what is missing.

    \b
    cloudcoll probe --hostfile hosts -o cluster.snap
    cloudcoll probe -w 'node[01-16]' --quick
    cloudcoll probe --lab default
    cloudcoll probe --hostfile hosts --labels nodes.json --dry-run
    cloudcoll probe --via mpi -o cluster.snap -- mpirun --hostfile hosts
    """
    from cloudcoll.report.jsonform import snapshot_json
    from cloudcoll.report.text import snapshot_lines

    choose = _through_mpi if options["via"] == "mpi" else _by_agents
    hosts = _named_hosts(hostfile, names)
    way = choose(_Options(output=output, **options), hosts)
    if dry_run:
        started = f"started by: {shlex.join(way.command)}"
        print_lines(filter(None, [*way.plan.describe(), way.spared, started]))
        return 0
    snapshot = way.obtain()
    if as_json:
        print_json(snapshot_json(snapshot))
    else:
        print_lines(snapshot_lines(snapshot))
    return _complaints(snapshot)


def _named_hosts(hostfile: Path | None, names: str | None) -> tuple[Host, ...]:
    """Return the hosts of the options; empty if none are named."""
    from cloudcoll.hosts import parse_host_argument, read_hosts

    if hostfile and names:
        raise UsageError("--hostfile and -w exclude each other: give one of them")
    if hostfile:
        return read_hosts(hostfile)
    return parse_host_argument(names) if names else ()


def _by_agents(options: _Options, hosts: tuple[Host, ...]) -> Way:
    from cloudcoll.cli.probing import (
        Way,
        choose_transport,
        find_lab,
        obtain_snapshot,
        plan_for,
    )

    if options.launcher or options.resume:
        raise UsageError("a launcher and --resume go with --via mpi only")
    transport = choose_transport(options.via, options.rsh, options.lab)
    if not hosts and transport.name == "lab":
        hosts = find_lab(options.lab).hosts
    if not hosts:
        raise UsageError("no hosts: name them with --hostfile FILE or -w 'node[01-16]'")
    hosts = _labelled(hosts, options.labels)
    whole = plan_for(hosts, transport, options.mode, options.seed)
    plan, spared = _cut(whole, hosts, options.labels)
    command = transport.command(hosts[0], ["python3", "..."])
    obtain = partial(obtain_snapshot, hosts, transport, plan, force=options.force)
    return Way(plan, command, partial(obtain, output=options.output), spared)


def _through_mpi(options: _Options, hosts: tuple[Host, ...]) -> Way:
    from cloudcoll.cli.mpi_probing import launcher_hosts, mpi_plan, obtain_through_mpi
    from cloudcoll.cli.probing import Way
    from cloudcoll.probe.mpi import mpi_command

    if options.rsh or options.lab or options.force:
        raise UsageError("--rsh, --lab and --force have no meaning with --via mpi")
    if not options.launcher:
        raise UsageError("no launcher: end in '-- mpirun --hostfile FILE'")
    hosts = hosts or launcher_hosts(options.launcher)
    hosts = _labelled(hosts, options.labels)
    whole = mpi_plan(hosts, options.mode, options.seed)
    plan, spared = _cut(whole, hosts, options.labels)
    command = mpi_command(options.launcher)
    obtain = partial(obtain_through_mpi, hosts, options.launcher, plan)
    obtain = partial(obtain, resume=options.resume, output=options.output)
    return Way(plan, command, obtain, spared)


def _labelled(hosts: tuple[Host, ...], path: Path | None) -> tuple[Host, ...]:
    """Return the hosts with the labels of a file, if one is named."""
    from cloudcoll.fabric.readers.agreement import labelled_hosts, read_prior

    return labelled_hosts(hosts, read_prior(path)) if path else hosts


def _cut(
    whole: ProbePlan, hosts: tuple[Host, ...], path: Path | None
) -> tuple[ProbePlan, str]:
    """Return the plan that labels leave to do, and what they save."""
    from cloudcoll.probe.labelled import cut_by_labels, spared

    if not path:
        return whole, ""
    plan = cut_by_labels(whole, hosts)
    return plan, spared(whole, plan)


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
