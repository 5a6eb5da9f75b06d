"""What ``probe --via mpi`` does: the user's launcher measures, we keep the rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll.cli.probing import keep_snapshot, show_progress, surrounding_lab
from cloudcoll.errors import LaunchError, UsageError

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.probe import ProbePlan
    from cloudcoll.snapshot import NetworkSnapshot


def launcher_hosts(launcher: Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts that a launcher's command line names.

    Parameters
    ----------
    launcher : sequence of str
        Without a program.

    Raises
    ------
    UsageError
        It names a program, or we cannot read hosts from it.
    """
    from cloudcoll.launch import launcher_version, parse_launch
    from cloudcoll.probe.mpi import mpi_command

    argv = mpi_command(launcher)
    try:
        request = parse_launch(argv, os.environ, launcher_version(launcher[0]))
    except LaunchError as error:
        raise UsageError(
            f"{error}; or name the hosts with --hostfile or -w before the '--'"
        ) from error
    if request.start < len(launcher):
        raise UsageError(
            f"probe brings its own program: leave out {argv[request.start]!r} and what "
            "follows"
        )
    return request.hosts


def mpi_plan(hosts: tuple[Host, ...], mode: str, seed: int) -> ProbePlan:
    """Return the plan, with no more pairs at once than a lab's cores can carry."""
    from cloudcoll.probe import plan_probes

    # Ranks that wait for a message keep a core busy: a pair needs two.
    at_once = max(1, (os.cpu_count() or 1) // 2) if surrounding_lab() else None
    return plan_probes(hosts, mode=mode, seed=seed, concurrency=at_once, duplex=False)


def obtain_through_mpi(
    hosts: tuple[Host, ...],
    launcher: Sequence[str],
    plan: ProbePlan,
    *,
    resume: bool = False,
    output: Path | None = None,
) -> NetworkSnapshot:
    """Probe through MPI, infer the fabric, and store the snapshot as the latest.

    Rows are spooled beside the snapshot, in a file that ends in ``.partial``
    and goes when the snapshot is stored.

    Parameters
    ----------
    hosts : tuple of Host
    launcher : sequence of str
        A command line without a program.
    plan : ProbePlan
    resume : bool
        Measure only what the spool lacks.
    output : Path, optional
        Where to store the snapshot as well.

    Raises
    ------
    CloudcollError
        See `run_mpi_probe` and `keep_snapshot`.
    """
    from cloudcoll.probe.mpi import run_mpi_probe
    from cloudcoll.snapshot import latest_path

    spool = Path(f"{output or latest_path(hosts)}.partial")
    with show_progress(plan) as progress:
        snapshot = run_mpi_probe(
            hosts,
            plan,
            launcher,
            spool,
            env=os.environ,
            resume=resume,
            progress=progress,
        )
    kept = keep_snapshot(snapshot, output)
    spool.unlink(missing_ok=True)
    return kept
