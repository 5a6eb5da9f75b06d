"""``cloudcoll probe``: measure the network between hosts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.output import TERMINAL, print_json, print_lines, print_snapshot, say
from cloudcoll.cli.params import FILE, LABS

if TYPE_CHECKING:
    from cloudcoll.measured.snapshot import NetworkSnapshot


class _Via(click.Option):
    """Lists the table when help is asked for: it is slow to import."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from cloudcoll.probe import TRANSPORTS

        self.help = f"How hosts are reached: {', '.join(TRANSPORTS)}."
        return super().get_help_record(ctx)


@click.command("probe", short_help="measure the network between hosts")
@click.argument("launcher", nargs=-1, type=click.UNPROCESSED)
@click.option("--hostfile", type=FILE, help="A host list.")
@click.option("-w", "--hosts", "names", help="Hosts, as in node[01-16],gpu7.")
@click.option("--via", cls=_Via)
@click.option(
    "--lab",
    shell_complete=LABS,
    help="Name of the lab; without a host list, all its hosts.",
)
@click.option("--rsh", default="", help="Program to use instead of ssh.")
@click.option("--cert", type=click.Path(), help="Our certificate, for --via tls.")
@click.option("--key", type=click.Path(), help="The key of that certificate.")
@click.option("--ca", type=click.Path(), help="The CA that signs for agents.")
@click.option("--port", type=int, help="Port that agents listen on.  [default: 7412]")
@click.option(
    "--quick", "mode", flag_value="quick", help="Who shares a link: 16 hosts 7 to 15 s."
)
@click.option(
    "--standard",
    "mode",
    flag_value="standard",
    default="standard",
    help="Also fills each group's uplink: 10 to 90 s; the default.",
)
@click.option(
    "--full", "mode", flag_value="full", help="All pairs both ways, three times."
)
@click.option(
    "--labels",
    type=FILE,
    help="Where hosts should stand: a file for 'import labels', or a snapshot.",
)
@click.option("--seed", default=0, help="Decides which pairs are measured when.")
@click.option(
    "--force", is_flag=True, help="Probe even where another probe is running."
)
@click.option("--resume", is_flag=True, help="Measure what an interrupted probe lacks.")
@click.option(
    "--backend",
    type=click.Choice(["gloo", "nccl"]),
    help="For torch.  [default: nccl if every rank has a GPU, else gloo]",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done.")
@click.option("-o", "--output", type=FILE, help="Snapshot to write.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    hostfile: Path | None,
    names: str | None,
    via: str | None,
    labels: Path | None,
    mode: str,
    seed: int,
    dry_run: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    r"""Measure latency and bandwidth between all hosts.

    The hosts need ssh and python3; nothing is installed on them. The snapshot
    is kept for `run`. Exit code: 0 if all was measured, 1 if some hosts or
    pairs were not, 3 if nothing is usable.

    With --labels fewer rounds are needed: what the labels say is checked, not
    discovered. Where they are wrong, the measurement counts and a warning
    names the host.

    With --via mpi or torch, a job measures the path that MPI or
    torch.distributed takes. LAUNCHER is a command line without a program that
    starts a rank on each host; mpi4py or torch, and this package, have to be
    on all of them.

    With --via tls no ssh is needed: a `cloudcoll agent --listen` runs on each
    host.

    If a probe dies or is interrupted, the same command with --resume measures
    what is missing.

    \b
    cloudcoll probe --hostfile hosts -o cluster.snap
    cloudcoll probe -w 'node[01-16]' --quick
    cloudcoll probe --lab default
    cloudcoll probe --hostfile hosts --labels nodes.json --dry-run
    cloudcoll probe --via tls --cert c.pem --key k.pem --ca ca.pem -w 'vm-[1-4]'
    cloudcoll probe --via mpi -o cluster.snap -- mpirun --hostfile hosts
    cloudcoll probe --via torch -- srun -N 16 --ntasks-per-node=1
    """
    from cloudcoll.work.measure import expected_traffic, lab_of, named_hosts, prepare

    prepared = prepare(
        named_hosts(hostfile, names),
        via=via,
        mode=mode,
        labels=labels,
        seed=seed,
        **options,
    )
    if not dry_run:
        snapshot = prepared.measure(output, TERMINAL)
        print_snapshot(snapshot, as_json=as_json)
        return _complaints(snapshot)
    plan, notes = prepared.plan, prepared.notes()
    lab = lab_of(prepared.transport)
    likely, words = expected_traffic(prepared.hosts, plan, lab, TERMINAL)
    if as_json:
        told = {"likely_bytes": likely, "notes": [*notes, words]}
        print_json({**plan.summary(), **told})
    else:
        print_lines([*plan.describe(), words, *notes])
    return 0


def _complaints(snapshot: NetworkSnapshot) -> int:
    """Say what was not measured; return the exit code."""
    for name, reason in snapshot.failed.items():
        say(f"{name} failed: {reason}")
    for name, fact in snapshot.metadata.get("agents", {}).items():
        if reason := fact.get("unlocked"):
            say(f"{name} may be probed by others at the same time: {reason}")
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
