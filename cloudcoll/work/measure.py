"""Measure the network between hosts, and keep what was found.

What ``probe`` does, and ``run`` before a start.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudcoll import units
from cloudcoll.errors import CloudcollError, LaunchError, UsageError, known_names
from cloudcoll.files import is_stream
from cloudcoll.files.locks import lock
from cloudcoll.work import SILENT, Reporter

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.lab import Lab
    from cloudcoll.measured.snapshot import NetworkSnapshot
    from cloudcoll.probe import Conduct, ProbePlan, Transport


ENDS_S = 10.0
"""Seconds after its own time that a probe may take until its snapshot is written."""


def _surrounding_lab() -> str | None:
    """Return the name of the lab that this process runs in, if any."""
    directory = os.environ.get("CLOUDCOLL_LAB")
    return Path(directory).name if directory else None


def find_lab(name: str | None) -> Lab:
    """Return a running lab: `name`, the one around us, or ``default``.

    UsageError if it is not up: a probe that cannot even begin is no partial success.
    """
    from cloudcoll.lab import find

    try:
        return find(name or _surrounding_lab() or "default")
    except CloudcollError as error:
        raise UsageError(str(error)) from error


def choose_transport(
    via: str | None = None, options: Mapping[str, Any] | None = None
) -> Transport:
    """Return the transport that a command line names.

    Without `via` it is ``lab`` in a lab and ``ssh`` outside. `options` are by
    `Transport.options`: ``rsh`` (``CLOUDCOLL_RSH`` if empty), ``lab`` (a name),
    ``launcher`` (words), and others that were given. The error says what exists.
    """
    from cloudcoll.probe import TRANSPORTS

    given = {name: value for name, value in (options or {}).items() if value}
    via = via or ("lab" if "lab" in given or _surrounding_lab() else "ssh")
    if via not in TRANSPORTS:
        raise UsageError(f"no transport {via!r} {known_names(via, TRANSPORTS)}")
    _refuse_others(given, via)
    kind = TRANSPORTS[via]
    if "launcher" in kind.options and "launcher" not in given:
        raise UsageError("no launcher: end in '-- mpirun --hostfile FILE'")
    if "lab" in kind.options:
        found = find_lab(given.get("lab"))
        own = os.environ.get("CLOUDCOLL_RSH") or shlex.quote(str(found.ssh))
        # What is measured belongs to the lab, from the outside as from within.
        given = {"rsh": own, **given, "lab": found.directory}
    return kind.from_options(given)


def lab_of(transport: Transport) -> Path | None:
    """Return the folder of the lab whose hosts a transport reaches, if any."""
    from cloudcoll.probe.shell import LabShell

    return transport.lab if isinstance(transport, LabShell) else None


def _refuse_others(given: Mapping[str, Any], via: str) -> None:
    """Raise UsageError if an option was given that the transport has not."""
    from cloudcoll.probe import TRANSPORTS

    for name in given:
        if name not in TRANSPORTS[via].options:
            kinds = TRANSPORTS.values()
            fitting = ", ".join(one.name for one in kinds if name in one.options)
            if name == "launcher":
                raise UsageError(
                    f"{given[name][0]!r} is no option: name hosts with --hostfile FILE "
                    f"or -w; a launcher after '--' goes with --via {fitting}"
                )
            raise UsageError(
                f"--{name} means nothing to --via {via}: it goes with --via {fitting}"
            )


def named_hosts(hostfile: Path | None, names: str | None) -> tuple[Host, ...]:
    """Return the hosts of ``--hostfile`` or ``-w``; empty if none are named."""
    from cloudcoll.hosts import parse_host_argument, read_hosts

    if hostfile and names:
        raise UsageError("--hostfile and -w exclude each other: give one of them")
    if hostfile:
        return read_hosts(hostfile)
    return parse_host_argument(names) if names else ()


def hosts_of(transport: Transport, options: Mapping[str, Any]) -> tuple[Host, ...]:
    """Return the hosts of a probe for which nobody named any, if it knows them."""
    if "lab" in transport.options:
        return find_lab(options.get("lab")).hosts
    if "launcher" in transport.options:
        return _launcher_hosts(options["launcher"], transport.starters)
    raise UsageError("no hosts: name them with --hostfile FILE or -w 'node[01-16]'")


def _launcher_hosts(
    launcher: Sequence[str], starters: frozenset[str]
) -> tuple[Host, ...]:
    """Return the hosts that a launcher's command line or allocation names.

    It is without a program, but for `starters`, which start ours.
    """
    from cloudcoll.hosts import parse_host_argument
    from cloudcoll.launch import parse_launch

    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if nodes and Path(launcher[0]).name == "srun":
        return parse_host_argument(nodes)
    argv = (*launcher, "python")
    try:
        request = parse_launch(argv, os.environ)
    except LaunchError as error:
        raise UsageError(
            f"{error}; or name the hosts with --hostfile or -w before the '--'"
        ) from error
    program = argv[request.start]
    if request.start < len(launcher) and Path(program).name not in starters:
        raise UsageError(
            f"probe brings its own program: leave out {program!r} and what follows"
        )
    return request.hosts


def plan_for(
    hosts: tuple[Host, ...], transport: Transport, mode: str, seed: int = 0
) -> ProbePlan:
    """Return the plan, with no more pairs at once than cores can carry."""
    # Hosts on one machine's cores would measure its scheduler otherwise.
    shared = transport.shares_cores or _surrounding_lab()
    return transport.plan(hosts, mode, seed, (os.cpu_count() or 1) if shared else None)


def expected_traffic(
    hosts: tuple[Host, ...],
    plan: ProbePlan,
    lab: Path | None = None,
    reporter: Reporter = SILENT,
) -> tuple[int, str]:
    """Return how many bytes a probe will probably send, and on what that rests.

    That is the rate of flows in the latest snapshot of these hosts, or an assumed one.
    """
    from cloudcoll.probe.plan import ASSUMED_RATE

    rate, age = _rate_before(hosts, lab, reporter)
    if rate:
        likely = plan.likely_bytes(rate)
        return likely, (
            f"probably {units.decimal_size(likely)} moved: a flow got "
            f"{units.bit_rate(rate)} in the snapshot of {units.seconds(age)} ago"
        )
    likely = plan.likely_bytes(ASSUMED_RATE)
    return likely, (
        f"probably {units.decimal_size(likely)} moved if a host's card carries "
        f"{units.bit_rate(ASSUMED_RATE)}, which is assumed: "
        f"{units.decimal_size(plan.likely_bytes(125e6))} for each Gbit/s"
    )


def _rate_before(
    hosts: tuple[Host, ...], lab: Path | None, reporter: Reporter
) -> tuple[float, float]:
    """Return the mean rate of flows in the latest snapshot of these hosts.

    In bytes/s, and the snapshot's age in seconds; zero if none is known.
    """
    import numpy as np

    from cloudcoll.measured.snapshot import latest_path, load_snapshot

    path = latest_path(hosts, lab)
    if not path.exists():
        return 0.0, 0.0
    try:
        snapshot = load_snapshot(path)
    except CloudcollError as error:
        reporter.say(f"no rates from an earlier probe: {error}")
        return 0.0, 0.0
    rates = snapshot.flows.bytes_per_s
    known = rates[np.isfinite(rates)]
    return (float(known.mean()), max(snapshot.age, 0.0)) if len(known) else (0.0, 0.0)


def obtain_snapshot(
    hosts: tuple[Host, ...],
    transport: Transport,
    plan: ProbePlan,
    conduct: Conduct | None = None,
    output: Path | None = None,
    reporter: Reporter = SILENT,
    known: Callable[[], NetworkSnapshot | None] = lambda: None,
) -> NetworkSnapshot:
    """Probe, infer the fabric, and store the snapshot as the latest, and at `output`.

    Two probes of the same hosts would measure each other: the later one waits, unless
    it is forced. Then it returns what is `known`, if that is anything, in place of a
    probe.

    What is measured is also in a file beside the snapshot, which ends in ``.partial``
    and goes when the snapshot is stored; there is none without `conduct`, whose spool
    and progress are ours. UsageError if there is nothing to resume, or something else
    than was asked for; UnusableError if fewer than two hosts answered, or a file could
    not be written: those that were there before are intact.
    """
    from cloudcoll.measured.snapshot import latest_path
    from cloudcoll.probe import Conduct
    from cloudcoll.probe.spool import set_aside

    lab = lab_of(transport)
    turn: contextlib.AbstractContextManager[bool] = contextlib.nullcontext(False)
    if not (conduct and conduct.force):
        turn = _turn(latest_path(hosts, lab), plan, reporter)
    with turn as waited:
        if waited and (found := known()):
            return found
        kept_at = latest_path(hosts, lab)
        if output and not is_stream(output):
            kept_at = output
        spool = Path(f"{kept_at}.partial") if conduct else None
        conduct = conduct or Conduct()
        if spool and not conduct.resume and (old := set_aside(spool)):
            reporter.say(
                f"starting afresh; the rows of an unfinished probe are kept in {old}"
            )
        try:
            most = units.seconds(plan.most_seconds)
            what = f"probing {plan.hosts} hosts, at most {most}"
            with reporter.progress(what) as progress:
                own = replace(conduct, spool=spool, progress=progress)
                snapshot = transport.measure(hosts, plan, own)
            kept = _keep_snapshot(snapshot, output, lab, reporter)
        except KeyboardInterrupt:
            if spool and spool.exists():
                reporter.say(f"{spool} has what was measured: --resume goes on with it")
            raise
        if spool:
            spool.unlink(missing_ok=True)
        return kept


@contextlib.contextmanager
def _turn(path: Path, plan: ProbePlan, reporter: Reporter) -> Iterator[bool]:
    """Let no other probe of these hosts begin; yield whether one had to end first.

    It is waited for as long as one takes, and not where no file can be locked: agents
    refuse a second one, too.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.with_suffix(".lock").open("ab"))
            free = lock(file)
        except OSError:
            free = True
        if not free:
            reporter.say("another probe of these hosts is running: waiting for it")
            with reporter.waiting("waiting for another probe"):
                lock(file, plan.most_seconds + ENDS_S)
        yield not free


def _keep_snapshot(
    snapshot: NetworkSnapshot,
    output: Path | None,
    lab: Path | None,
    reporter: Reporter,
) -> NetworkSnapshot:
    """Infer the fabric; store the snapshot as the latest and, if asked, at `output`."""
    from cloudcoll.infer import infer_fabric
    from cloudcoll.measured.snapshot import latest_path

    with reporter.waiting(f"finding the racks of {len(snapshot.hosts)} hosts"):
        snapshot = snapshot.with_fabric(infer_fabric(snapshot, snapshot.fabric))
    refused: CloudcollError | None = None
    for path in filter(None, (output, latest_path(snapshot.hosts, lab))):
        try:
            snapshot = snapshot.save(path)
        except CloudcollError as error:
            # What was measured is kept where it can be.
            refused = refused or error
    if refused:
        raise refused
    return snapshot


def measure(
    hosts: Sequence[Host] | str | None = None,
    *,
    via: str | None = None,
    mode: str = "standard",
    labels: Path | None = None,
    seed: int = 0,
    output: Path | None = None,
    reporter: Reporter = SILENT,
    **options: Any,
) -> NetworkSnapshot:
    """Measure latency and bandwidth between hosts, and infer their network.

    Parameters
    ----------
    hosts : sequence of Host, or str, optional
        Hosts, or their names as in ``node[01-16]``; those of the lab or of the
        launcher if not given.
    via : str, optional
        How hosts are reached, a key of `cloudcoll.probe.TRANSPORTS`; ``lab`` inside
        one, ``ssh`` elsewhere if not given.
    mode : str
        ``quick``, ``standard`` or ``full``: see `cloudcoll.probe.plan`.
    labels : Path, optional
        A file that says where hosts should stand.
    seed : int
        Decides which pairs are measured when.
    output : Path, optional
        Where to store the snapshot beside the latest of these hosts.
    reporter : Reporter, optional
        Hears of progress.
    **options
        ``force``, ``resume``, ``backend``, and what the transport takes: ``rsh``,
        ``lab``, ``launcher`` (words), ``cert``, ``key``, ``ca`` and ``port``.

    Returns
    -------
    NetworkSnapshot
        Hosts that could not be measured are in its ``failed``.

    Raises
    ------
    UsageError
        Unknown names, or options that make no sense together.
    UnusableError
        Fewer than two hosts could be measured.

    Examples
    --------
    >>> import cloudcoll
    >>> snapshot = cloudcoll.measure("127.0.0.[1-2]", via="local", mode="quick")
    >>> snapshot.names
    ('127.0.0.1', '127.0.0.2')
    """
    from cloudcoll.hosts import parse_host_argument

    named = parse_host_argument(hosts) if isinstance(hosts, str) else hosts
    prepared = prepare(
        tuple(named or ()), via=via, mode=mode, labels=labels, seed=seed, **options
    )
    return prepared.measure(output, reporter)


@dataclass(frozen=True)
class PreparedProbe:
    """A probe that has only to be started.

    Attributes
    ----------
    spared : tuple of str
        What labels spare the probe, in words.
    """

    hosts: tuple[Host, ...]
    transport: Transport
    plan: ProbePlan
    conduct: Conduct
    spared: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return lines on how it would be done, for a reader."""
        return [*self.spared, *self.transport.describe(self.hosts, self.conduct)]

    def measure(
        self, output: Path | None = None, reporter: Reporter = SILENT
    ) -> NetworkSnapshot:
        """Probe: see `obtain_snapshot`."""
        return obtain_snapshot(
            self.hosts, self.transport, self.plan, self.conduct, output, reporter
        )


def prepare(
    hosts: tuple[Host, ...],
    *,
    via: str | None = None,
    mode: str = "standard",
    labels: Path | None = None,
    seed: int = 0,
    **options: Any,
) -> PreparedProbe:
    """Return a probe as `measure` would start it; nothing is sent."""
    from cloudcoll.probe import Conduct

    force, resume = options.pop("force", False), options.pop("resume", False)
    conduct = Conduct(force=force, resume=resume, backend=options.get("backend") or "")
    means = {**options, "force": force, "resume": resume}
    transport = choose_transport(via, means)
    hosts = hosts or hosts_of(transport, options)
    if labels is None:
        return PreparedProbe(
            hosts, transport, plan_for(hosts, transport, mode, seed), conduct
        )
    from cloudcoll.importers.labels import labelled_hosts, read_prior
    from cloudcoll.probe.labelled import cut_by_labels, spared

    hosts = labelled_hosts(hosts, read_prior(labels))
    whole = plan_for(hosts, transport, mode, seed)
    plan = cut_by_labels(whole, hosts)
    return PreparedProbe(hosts, transport, plan, conduct, (spared(whole, plan),))
