"""Probe on the path that MPI uses: one job under the user's own launcher."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import cloudcoll
from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.hosts import Host
from cloudcoll.jobs import run_job
from cloudcoll.probe import frames
from cloudcoll.probe.frames import FrameError
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.probe.results import Progress, Results
from cloudcoll.probe.spool import add_row, load_spool, read_row, start_spool
from cloudcoll.snapshot import NetworkSnapshot

NAME = "mpi"
PROGRAM = ("-m", "mpi4py", "-m", "cloudcoll._probes.mpi_probe")
"""Arguments of Python; mpi4py's own runner ends the whole job on an error."""
START_SECONDS = 300.0
"""How long a launcher may take to start the job, its queue included."""
SILENCE_SECONDS = 25.0
"""How much longer than planned a round may take; later than its ranks give up."""
SPARE = 4.0
"""How many times longer than planned the rounds may take: ranks wait for each
other, and a pair for its last message."""


def mpi_command(launcher: Sequence[str]) -> tuple[str, ...]:
    """Return a launcher's command line completed by our program."""
    return (*launcher, sys.executable, *PROGRAM)


def run_mpi_probe(
    hosts: tuple[Host, ...],
    plan: ProbePlan,
    launcher: Sequence[str],
    spool: Path,
    *,
    env: Mapping[str, str],
    resume: bool = False,
    progress: Progress | None = None,
) -> NetworkSnapshot:
    """Measure the network between `hosts` through MPI.

    Parameters
    ----------
    hosts : tuple of Host
    plan : ProbePlan
        Made for these hosts; its `ports` mean nothing to MPI.
    launcher : sequence of str
        A command line without a program, such as ``mpirun --hostfile F``,
        that starts at least one rank on each host.
    spool : Path
        Keeps what was reported, after each round, until the caller has
        stored the snapshot and removes it.
    env : mapping
        Environment of the launcher.
    resume : bool
        Measure only what `spool` lacks.
    progress : callable, optional
        Called with meetings reported and meetings planned.

    Returns
    -------
    NetworkSnapshot
        Without a fabric; a host without a rank is among its `failed`.

    Raises
    ------
    UsageError
        `spool` is no probe of these hosts and this plan.
    UnusableError
        The job failed, wrote something that was not asked for, or had ranks
        on fewer than two of the hosts. What it reported is in `spool`.
    """
    begin = time.monotonic()
    metadata = _origin(plan)
    if len(hosts) == 1:
        return NetworkSnapshot(hosts, metadata=metadata)
    results = Results(plan, progress)
    rows = load_spool(spool, hosts, plan, results) if resume else []
    with start_spool(spool, hosts, plan, rows) as file:
        try:
            if results.missing:
                metadata |= _run(hosts, plan, launcher, results, file, env)
        except (CloudcollError, FrameError) as error:
            raise UnusableError(_advice(error, results, spool)) from error
    metadata["seconds"] = time.monotonic() - begin
    return _snapshot(hosts, results, metadata)


def _origin(plan: ProbePlan) -> dict[str, Any]:
    return {
        "version": cloudcoll.__version__,
        "transport": NAME,
        "mode": plan.mode,
        "seed": plan.seed,
        "concurrency": plan.concurrency,
        "troubles": [],
    }


def _run(
    hosts: tuple[Host, ...],
    plan: ProbePlan,
    launcher: Sequence[str],
    results: Results,
    file: FileIO,
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Let a job measure what is missing; return what is worth knowing of it.

    Raises
    ------
    CloudcollError
        It failed, or ended before all of its hosts had met.
    """
    request = {
        "hosts": [[host.name, host.address] for host in hosts],
        "plan": plan.parameters(),
        "missing": results.missing,
    }
    seconds = START_SECONDS + SPARE * plan.seconds
    silence = SILENCE_SECONDS + plan.rtt_s + plan.load_s
    with run_job(mpi_command(launcher), request, env, seconds, silence) as lines:
        facts, present = _greeting(lines, hosts)
        for line in lines:
            row = read_row(line)
            results.add(*row)
            add_row(file, row)
    if results.missing_between(present):
        # mpirun may end in 0 even when a host went down under it.
        raise CloudcollError(f"{launcher[0]} ended before the probe did")
    return facts


def _greeting(
    lines: Iterator[bytes], hosts: Sequence[Host]
) -> tuple[dict[str, Any], set[int]]:
    """Return facts about the job, and the positions of hosts that have ranks.

    Raises
    ------
    CloudcollError
        Nothing came, or ranks on fewer than two of the hosts.
    """
    value = frames.parse(next(lines, b"{}"))
    names, positions = value.get("names"), value.get("hosts")
    if not _are(names, str) or not _are(positions, int):
        raise CloudcollError("the job did not start our program (see its words above)")
    present = set(positions) & set(range(len(hosts)))
    if len(present) < 2:
        listed = ", ".join(host.name for host in hosts[:3])
        raise CloudcollError(
            f"ranks ran on {', '.join(sorted(set(names))[:3])}: two hosts of the list "
            f"are needed ({listed}{', ...' if len(hosts) > 3 else ''})"
        )
    return {"library": str(value.get("library"))[:80], "ranks": len(names)}, present


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _advice(error: Exception, results: Results, spool: Path) -> str:
    done, planned = results.count
    if not done:
        return f"nothing was measured through MPI: {error}"
    return (
        f"{error}; {done} of {planned} measurements are in {spool}: go on with the "
        "same command and --resume"
    )


def _snapshot(
    hosts: tuple[Host, ...], results: Results, metadata: dict[str, Any]
) -> NetworkSnapshot:
    silent = set(range(len(hosts))) - results.heard
    return NetworkSnapshot(
        hosts,
        rtt=results.rtt(silent),
        flows=results.flows(silent),
        failed={hosts[i].name: "no rank of the job ran there" for i in sorted(silent)},
        metadata=metadata,
    )
