"""``cloudcoll daemon``: keep snapshot and maps fresh; ``daemon status`` asks one."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.config import take_config
from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import ALGORITHM_HELP, DURATION, LIBRARY_HELP, SHARE, SIZE
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.work.sent import AUTO, DEFAULT_LIBRARY

if TYPE_CHECKING:
    from cloudcoll.daemon.keeper import Ask, Keeper
    from cloudcoll.daemon.orders import Question
    from cloudcoll.daemon.service import Around, Front
    from cloudcoll.hosts import Host
    from cloudcoll.probe import Transport


PEM = click.Path(path_type=Path)
CREDENTIALS = ("cert", "key", "ca")


@click.group("daemon", invoke_without_command=True)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    callback=take_config,
    is_eager=True,
    expose_value=False,
    help="TOML file of these options; the command line wins.",
)
@click.option("--hostfile", type=click.Path(path_type=Path), help="A host list.")
@click.option(
    "--slurm", metavar="PARTITION", help="Take the partition's nodes that are up."
)
@click.option("--via", help="How hosts are reached: see 'cloudcoll probe'.")
@click.option("--lab", help="Name of the lab; without a host list, all its hosts.")
@click.option("--rsh", default="", help="Program to use instead of ssh.")
@click.option("--cert", type=PEM, help="Our certificate, for --via tls and --https.")
@click.option("--key", type=PEM, help="The certificate's key (mode 600).")
@click.option("--ca", type=PEM, help="The CA that signs for agents and readers.")
@click.option("--port", type=int, help="Port that agents listen on.  [default: 7412]")
@click.option(
    "--every",
    type=DURATION,
    help="Look at each rack once in this time.  [default: 20s, or 0.6s per host]",
)
@click.option(
    "--share",
    default="0.1%",
    show_default=True,
    type=SHARE,
    help="Share of each host's rate to use, on average.",
)
@click.option("--probe-busy", is_flag=True, help="Also probe hosts that run a job.")
@click.option("--collective", default="allreduce", show_default=True)
@click.option("--algorithm", default=AUTO, show_default=True, help=ALGORITHM_HELP)
@click.option(
    "--library", default=DEFAULT_LIBRARY, show_default=True, help=LIBRARY_HELP
)
@click.option("--bytes", "size", type=SIZE, default="16MiB", show_default=True)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="Unix socket to answer on."
)
@click.option("--all-users", is_flag=True, help="Answer every user of this machine.")
@click.option("--https", metavar="HOST:PORT", help="Also answer there, by mutual TLS.")
@click.option("--once", is_flag=True, help="Stop once an order is in force.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    r"""Keep the snapshot and the order of a set of hosts fresh.

    The daemon looks at a few hosts at a time, using a thousandth of their
    bandwidth, and looks closer where something seems to have changed. Another
    order is put in force when it gains 5 % in three probes in a row; running
    jobs are never touched. 'cloudcoll run' on these hosts then starts at once.

    \b
    cloudcoll daemon --hostfile hosts
    cloudcoll daemon --slurm batch --every 30m --socket /run/cloudcoll/daemon.sock
    cloudcoll daemon --config daemon.toml     # hostfile = "hosts", every = "30m", ...
    cloudcoll daemon --hostfile hosts --https :8443 --cert C --key K --ca CA
    cloudcoll daemon status
    curl --unix-socket ~/.local/state/cloudcoll/daemon.sock http://d/metrics
    """
    if context.invoked_subcommand:
        return
    from cloudcoll.daemon.service import serve
    from cloudcoll.daemon.settings import Settings
    from cloudcoll.local_daemon import socket_path

    settings = Settings(every=options["every"], share=options["share"])
    keeper = _keeper(options)
    around = _around(options, keeper.transport)
    try:
        serve(
            keeper,
            around,
            settings,
            options["socket"] or socket_path(),
            all_users=options["all_users"],
            front=_front(options),
            once=options["once"],
        )
    except KeyboardInterrupt:
        # Asked to stop: all that is worth keeping is in files.
        say("stopped")


@command.command("status", short_help="ask a running daemon what it knows")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The socket it answers on."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(socket: Path | None, as_json: bool) -> None:
    """Print what a running daemon knows of its hosts."""
    from cloudcoll.local_daemon import ask, daemon_socket, socket_path

    path = socket or daemon_socket()
    told = path and ask(path, "/v1/status", 5.0)
    if not told or told[0] != 200:
        raise UnusableError(
            f"no daemon answers at {path or socket_path()}: start one with 'cloudcoll "
            "daemon --hostfile F', or name its --socket"
        )
    assert path, "somebody answers there"
    known, lines = known_status(told[1], path)
    if as_json:
        print_json(known)
    else:
        print_lines(lines)


def known_status(body: bytes, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return what a daemon that answers at `path` knows, and that in words.

    Raises
    ------
    UnusableError
        It is no daemon of ours.
    """
    from cloudcoll.files import NOT_JSON, strict_json

    try:
        known = strict_json(body)
        return known, _lines(known)
    except (*NOT_JSON, *(AttributeError, KeyError, TypeError)) as error:
        raise UnusableError(f"what answers at {path} is no daemon of ours") from error


def _keeper(options: dict[str, Any]) -> Keeper:
    """Return what probes as the options say."""
    from cloudcoll.daemon.keeper import Keeper
    from cloudcoll.work.measure import choose_transport, plan_for

    means = {name: options[name] for name in ("lab", "rsh", "port")}
    if options["via"] == "tls" or not options["https"]:
        means |= {name: options[name] for name in CREDENTIALS}
    transport = choose_transport(options["via"], means)

    def plan(hosts: tuple[Host, ...], seed: int) -> Any:
        return plan_for(hosts, transport, "quick", seed)

    return Keeper(transport, plan, _ask(options))


def _front(options: dict[str, Any]) -> Front:
    """Return what answers by HTTPS, if asked for."""
    from cloudcoll.daemon.https import served_by_https
    from cloudcoll.tls import Credentials, parse_address

    if not options["https"]:
        return contextlib.nullcontext
    if not all(options[name] for name in CREDENTIALS):
        raise UsageError("--https needs a certificate: --cert, --key and --ca")
    address = parse_address(options["https"])
    ours = Credentials(*(options[name] for name in CREDENTIALS))
    return partial(served_by_https, address, ours, say=say)


def _ask(options: dict[str, Any]) -> Ask:
    """Return what works out the question of the options for a set of hosts."""
    from cloudcoll.collectives import build_schedule
    from cloudcoll.daemon.orders import Question
    from cloudcoll.work.order import collective_words, question_key
    from cloudcoll.work.sent import choose

    collective, size = options["collective"], options["size"]

    def ask(hosts: tuple[Host, ...]) -> tuple[Question, ...]:
        names = tuple(host.name for host in hosts)
        slots = tuple(host.slots or 1 for host in hosts)
        how = (options["algorithm"], options["library"])
        chosen = choose(collective, *how, slots, size)
        sent = build_schedule(
            collective,
            chosen.algorithm,
            sum(slots),
            size,
            chosen.library,
            **chosen.parameters,
        )
        free = options["free_rank0"]
        words = collective_words(collective, size, chosen)
        key = question_key(words, names, slots, free_rank0=free)
        return (Question(key, sent, names, slots, free),)

    return ask


def _around(options: dict[str, Any], transport: Transport) -> Around:
    """Return where hosts and jobs are looked up."""
    from cloudcoll.daemon.members import Hostfile, Seldom, slurm_busy, slurm_nodes
    from cloudcoll.daemon.service import Around
    from cloudcoll.local_daemon import leased_hosts
    from cloudcoll.work.measure import find_lab

    partition, hostfile = options["slurm"], options["hostfile"]
    if not (partition or hostfile) and "lab" in transport.options:
        hostfile = find_lab(options["lab"]).hostfile
    if bool(partition) == bool(hostfile):
        raise UsageError("name the hosts with --hostfile FILE or --slurm PARTITION")

    working = Seldom(slurm_busy)

    def busy() -> frozenset[str]:
        if options["probe_busy"]:
            return frozenset()
        return leased_hosts() | (working() if partition else frozenset())

    nodes = Seldom(lambda: slurm_nodes(partition))
    return Around(Hostfile(hostfile) if hostfile else nodes, busy, say)


def _lines(known: dict[str, Any]) -> list[str]:
    """Return what a status says in words."""
    failed = [host for host in known["hosts"] if host["failed"]]
    # A daemon of an earlier version does not say so.
    trust, kept = known.get("trust"), "given: less than "
    origins = [one.get("origin", "") for one in known["maps"]]
    few = [origin for origin in origins if origin.startswith(kept)]
    lines = [
        f"{len(known['hosts'])} hosts, {known['phase']}, "
        f"{'confirmed' if known['fresh'] else 'not confirmed'}",
        *(f"{host['name']} failed: {host['failed']}" for host in failed),
        *(f"order: {' '.join(one['order'])}" for one in known["maps"]),
        *([f"trusted: {trust['words']}"] if trust else []),
        *(f"the order {why}, which is what predictions miss" for why in few),
    ]
    return lines + ([f"trouble: {known['trouble']}"] if known["trouble"] else [])
