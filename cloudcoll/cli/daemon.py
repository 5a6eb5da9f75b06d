"""``cloudcoll daemon``: keep snapshot and maps fresh; ``daemon status`` asks one."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloudcoll.cli.output import print_json, print_lines, say
from cloudcoll.cli.params import (
    DURATION,
    FILE,
    LABS,
    LIBRARIES,
    LIBRARY_HELP,
    SHARE,
    SIZE,
    algorithm_option,
    collective_option,
)
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files.limits import CONFIG_BYTES
from cloudcoll.libraries import DEFAULT

if TYPE_CHECKING:
    from cloudcoll.daemon.keeper import Ask, Keeper
    from cloudcoll.daemon.service import Around, Front
    from cloudcoll.daemon.verdict import OrderQuestion
    from cloudcoll.hosts import Host
    from cloudcoll.probe import Transport


CREDENTIALS = ("cert", "key", "ca")


FORBIDDEN = stat.S_IWGRP | stat.S_IWOTH
"""Of the file's mode: it says which programs are started and which keys are used."""


def take_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make what the file at `path` says the defaults of a command's options.

    A callback of an eager option, so that it comes before the others. Its keys are the
    options' names without dashes in front; values are written as on the command line,
    flags are true or false. UsageError also if others could have written the file.
    """
    if path is None:
        return
    options = {
        max(option.opts, key=len).removeprefix("--"): option
        for option in context.command.params
        if isinstance(option, click.Option) and option.callback is not take_config
    }
    said = _read(path)
    if unknown := sorted(said.keys() - options):
        raise UsageError(
            f"{path}: no option is called {', '.join(unknown)} "
            f"(known: {', '.join(sorted(options))})"
        )
    context.default_map = {
        str(option.name): _value(context, option, said[key], f"{path}: {key}")
        for key, option in options.items()
        if key in said
    }


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            # Of the file that is open: nobody can put another in its place.
            _check_owner(path, os.fstat(file.fileno()))
            data = file.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise ValueError(f"more than {CONFIG_BYTES >> 10} KiB")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise UsageError(f"{path} is not TOML: {error}") from error


def _check_owner(path: Path, info: os.stat_result) -> None:
    if info.st_mode & FORBIDDEN or info.st_uid not in (0, os.getuid()):
        raise UsageError(
            f"{path} has mode {stat.S_IMODE(info.st_mode):04o} and owner "
            f"{info.st_uid}: others could have written it: own it and chmod 644"
        )


def _value(
    context: click.Context, option: click.Option, value: object, where: str
) -> object:
    """Return a value as it would be typed, if the option takes it."""
    if isinstance(value, bool) != option.is_flag or not isinstance(
        value, (bool, str, int, float)
    ):
        wanted = "true or false" if option.is_flag else "text or a number"
        raise UsageError(f"{where} is {value!r}: {wanted} expected")
    typed = value if option.is_flag else str(value)
    try:
        option.type_cast_value(context, typed)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message}") from error
    return typed


@click.group("daemon", invoke_without_command=True)
@click.option(
    "--config",
    type=FILE,
    callback=take_config,
    is_eager=True,
    expose_value=False,
    help="TOML file of these options; the command line wins.",
)
@click.option("--hostfile", type=FILE, help="A host list.")
@click.option(
    "--slurm", metavar="PARTITION", help="Take the partition's nodes that are up."
)
@click.option("--via", help="How hosts are reached: see 'cloudcoll probe'.")
@click.option(
    "--lab",
    shell_complete=LABS,
    help="Name of the lab; without a host list, all its hosts.",
)
@click.option("--rsh", default="", help="Program to use instead of ssh.")
@click.option("--cert", type=FILE, help="Our certificate, for --via tls and --https.")
@click.option("--key", type=FILE, help="The certificate's key (mode 600).")
@click.option("--ca", type=FILE, help="The CA that signs for agents and readers.")
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
@collective_option
@algorithm_option
@click.option(
    "--library",
    shell_complete=LIBRARIES,
    default=DEFAULT,
    show_default=True,
    help=LIBRARY_HELP,
)
@click.option("--bytes", "size", type=SIZE, default="16MiB", show_default=True)
@click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move.")
@click.option("--socket", type=FILE, help="Unix socket to answer on.")
@click.option("--all-users", is_flag=True, help="Answer every user of this machine.")
@click.option("--https", metavar="HOST:PORT", help="Also answer there, by mutual TLS.")
@click.option("--once", is_flag=True, help="Stop once an order is in force.")
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    r"""Keep the snapshot and the order of a set of hosts fresh.

    The daemon looks at a few hosts at a time, using a thousandth of their
    bandwidth, and looks closer where something seems to have changed. Another
    order is put in force when it gains 5 % by three probes together; running
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
    from cloudcoll.daemon import Settings
    from cloudcoll.daemon.service import serve
    from cloudcoll.local_daemon import socket_path

    settings = Settings(every=options["every"], share=options["share"])
    keeper = _keeper(options)
    around = _around(options, keeper.transport)
    try:
        serve(
            keeper,
            around,
            settings,
            options["socket"] or socket_path(keeper.lab),
            all_users=options["all_users"],
            front=_front(options),
            once=options["once"],
        )
    except KeyboardInterrupt:
        # Asked to stop: all that is worth keeping is in files.
        say("stopped")


@command.command("status", short_help="ask a running daemon what it knows")
@click.option("--socket", type=FILE, help="The socket it answers on.")
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
    """Return what a daemon that answers at `path` knows, and that in words."""
    from cloudcoll.files import NOT_JSON, strict_json

    try:
        known = strict_json(body)
        return known, _lines(known)
    except (*NOT_JSON, *(AttributeError, KeyError, TypeError)) as error:
        raise UnusableError(f"what answers at {path} is no daemon of ours") from error


def _keeper(options: dict[str, Any]) -> Keeper:
    """Return what probes as the options say."""
    from cloudcoll.daemon.keeper import Keeper
    from cloudcoll.probe import TRANSPORTS
    from cloudcoll.work.measure import choose_transport, lab_of, plan_for

    means = {name: options[name] for name in ("lab", "rsh", "port")}
    kind = TRANSPORTS.get(options["via"])
    # Else they are for the answers by HTTPS.
    if not options["https"] or (kind and kind.options.issuperset(CREDENTIALS)):
        means |= {name: options[name] for name in CREDENTIALS}
    transport = choose_transport(options["via"], means)

    def plan(hosts: tuple[Host, ...], seed: int) -> Any:
        return plan_for(hosts, transport, "quick", seed)

    return Keeper(transport, plan, _ask(options), lab=lab_of(transport))


def _front(options: dict[str, Any]) -> Front:
    """Return what answers by HTTPS, if asked for."""
    from cloudcoll.daemon.servers import served_by_https
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
    from cloudcoll.daemon.verdict import OrderQuestion
    from cloudcoll.work.order import collective_words, question_key
    from cloudcoll.work.sent import choose, schedule_by

    collective, size = options["collective"], options["size"]

    def ask(hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
        names = tuple(host.name for host in hosts)
        slots = tuple(host.slots or 1 for host in hosts)
        how = (options["algorithm"], options["library"])
        chosen = choose(collective, *how, slots, size)
        sent = schedule_by(chosen, collective, sum(slots), size)
        free = options["free_rank0"]
        words = collective_words(collective, size, chosen)
        key = question_key(words, names, slots, free_rank0=free)
        return (OrderQuestion(key, sent, names, slots, free),)

    return ask


def _around(options: dict[str, Any], transport: Transport) -> Around:
    """Return where hosts and jobs are looked up."""
    from cloudcoll.daemon.members import Hostfile, Seldom, slurm_busy, slurm_nodes
    from cloudcoll.daemon.service import Around
    from cloudcoll.local_daemon import leased_hosts
    from cloudcoll.work.measure import find_lab, lab_of

    lab = lab_of(transport)
    partition, hostfile = options["slurm"], options["hostfile"]
    if not (partition or hostfile) and "lab" in transport.options:
        hostfile = find_lab(options["lab"]).hostfile
    if bool(partition) == bool(hostfile):
        raise UsageError("name the hosts with --hostfile FILE or --slurm PARTITION")

    working = Seldom(slurm_busy)

    def busy() -> frozenset[str]:
        if options["probe_busy"]:
            return frozenset()
        return leased_hosts(lab) | (working() if partition else frozenset())

    nodes = Seldom(lambda: slurm_nodes(partition))
    return Around(Hostfile(hostfile) if hostfile else nodes, busy, say)


def _lines(known: dict[str, Any]) -> list[str]:
    """Return what a status says in words."""
    failed = [host for host in known["hosts"] if host["failed"]]
    # A daemon of an earlier version does not say so.
    trust = known.get("trust")
    few = [reason for one in known["maps"] if (reason := one.get("reason", ""))]
    lines = [
        f"{len(known['hosts'])} hosts, {known['phase']}, "
        f"{'confirmed' if known['fresh'] else 'not confirmed'}",
        *(f"{host['name']} failed: {host['failed']}" for host in failed),
        *(f"order: {' '.join(one['order'])}" for one in known["maps"]),
        *([f"trusted: {trust['words']}"] if trust else []),
        *(f"the order given stays: {why}" for why in few),
    ]
    return lines + ([f"trouble: {known['trouble']}"] if known["trouble"] else [])
