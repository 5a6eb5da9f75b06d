"""Probe and keep the result: what ``probe`` does, and ``run`` before a start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cloudcoll.cli.output import progress_wanted
from cloudcoll.errors import CloudcollError, UsageError

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.lab import Lab
    from cloudcoll.probe import ProbePlan, Transport
    from cloudcoll.probe.results import Progress
    from cloudcoll.snapshot import NetworkSnapshot


@dataclass(frozen=True)
class Way:
    """One way to a snapshot, as a command line asks for it.

    Attributes
    ----------
    plan : ProbePlan
    command : sequence of str
        What is started, for a reader.
    obtain : callable
        Measures, and stores and returns the snapshot.
    spared : str
        What labels of the hosts save, for a reader.
    """

    plan: ProbePlan
    command: Sequence[str]
    obtain: Callable[[], NetworkSnapshot]
    spared: str = ""


def surrounding_lab() -> str | None:
    """Return the name of the lab that this process runs in, if any."""
    directory = os.environ.get("CLOUDCOLL_LAB")
    return Path(directory).name if directory else None


def find_lab(name: str | None) -> Lab:
    """Return a running lab: `name`, the one around us, or ``default``.

    Raises
    ------
    UsageError
        It is not up: a probe that cannot even begin is not a partial success.
    """
    from cloudcoll.lab import find

    try:
        return find(name or surrounding_lab() or "default")
    except CloudcollError as error:
        raise UsageError(str(error)) from error


def choose_transport(
    via: str | None = None, rsh: str = "", lab: str | None = None
) -> Transport:
    """Return the transport that the options name.

    Parameters
    ----------
    via : str, optional
        Key of `TRANSPORTS`; ``lab`` in a lab and ``ssh`` outside if not given.
    rsh : str
        Program that takes ssh's place; ``CLOUDCOLL_RSH`` if empty.
    lab : str, optional
        Name of the lab.

    Raises
    ------
    UsageError
        Unknown transport, or no such lab; the message says what exists.
    """
    from cloudcoll.probe import TRANSPORTS

    via = via or ("lab" if lab or surrounding_lab() else "ssh")
    if via not in TRANSPORTS:
        raise UsageError(f"no transport {via!r} (known: {', '.join(TRANSPORTS)})")
    rsh = rsh or os.environ.get("CLOUDCOLL_RSH", "")
    if via == "lab":
        found = find_lab(lab)
        # What is measured belongs to the lab, from the outside as from within.
        os.environ["CLOUDCOLL_LAB"] = str(found.directory)
        rsh = rsh or str(found.ssh)
    return TRANSPORTS[via](rsh)


def plan_for(
    hosts: tuple[Host, ...], transport: Transport, mode: str, seed: int = 0
) -> ProbePlan:
    """Return the plan, with no more pairs at once than cores can carry."""
    from cloudcoll.probe import plan_probes

    # Hosts on one machine's cores would measure its scheduler otherwise.
    at_once = (os.cpu_count() or 1) if transport.shares_cores else None
    return plan_probes(hosts, mode=mode, seed=seed, concurrency=at_once)


def obtain_snapshot(
    hosts: tuple[Host, ...],
    transport: Transport,
    plan: ProbePlan,
    *,
    force: bool = False,
    output: Path | None = None,
) -> NetworkSnapshot:
    """Probe, infer the fabric, and store the snapshot as the latest.

    Parameters
    ----------
    hosts : tuple of Host
    transport : Transport
    plan : ProbePlan
        See `plan_for`.
    force : bool
        Probe even where another probe is running.
    output : Path, optional
        Where to store it as well.

    Raises
    ------
    UnusableError
        Fewer than two hosts answered, or a file could not be written; files
        that were there before are intact.
    """
    from cloudcoll.fabric.infer import infer_fabric
    from cloudcoll.probe import run_probe

    with show_progress(plan) as progress:
        snapshot = run_probe(
            hosts,
            plan,
            transport,
            progress=progress,
            force=force,
            infer=infer_fabric,
        )
    return keep_snapshot(snapshot, output)


def keep_snapshot(
    snapshot: NetworkSnapshot, output: Path | None = None
) -> NetworkSnapshot:
    """Infer the fabric and store the snapshot as the latest of its hosts.

    Parameters
    ----------
    snapshot : NetworkSnapshot
    output : Path, optional
        Where to store it as well.

    Raises
    ------
    UnusableError
        A file could not be written; what was there before is intact.
    """
    from cloudcoll.fabric.infer import infer_fabric
    from cloudcoll.snapshot import latest_path

    snapshot = snapshot.with_fabric(infer_fabric(snapshot))
    refused: CloudcollError | None = None
    for path in filter(None, (output, latest_path(snapshot.hosts))):
        try:
            snapshot = snapshot.save(path)
        except CloudcollError as error:
            # What was measured is kept where it can be.
            refused = refused or error
    if refused:
        raise refused
    return snapshot


@contextlib.contextmanager
def show_progress(plan: ProbePlan) -> Iterator[Progress | None]:
    """Show meetings done on stderr, if someone watches it."""
    if not progress_wanted():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    what = f"probing {plan.hosts} hosts, about {plan.seconds + plan.uplink_s:.0f} s"
    columns = (TextColumn(what), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)
