"""``cloudcoll lab``: an emulated data centre on this machine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cloudcoll import lab as labs
from cloudcoll import units
from cloudcoll.cli.output import TERMINAL, print_lines, print_text
from cloudcoll.cli.params import FILE, LABS, PRESETS, Finite, Prefix
from cloudcoll.errors import UsageError

PRESET_LINES = "\n".join(
    f"{name:9} {preset.why}" for name, preset in labs.PRESETS.items()
)
UP_HELP = f"""Start an emulated data centre.

\b
cloudcoll lab up --racks 5,3,6,2 --nic 400mbit --uplink 400mbit
cloudcoll lab up --racks 9,7/8 --preset policed    # in two pods
cloudcoll lab up --file pods.toml

A preset says what the network does with packets that come too fast, and what
else goes on; further options change parts of it:

\b
{PRESET_LINES}

A queue is a time (50ms), packets (64p), codel, or policer:256K, which lets through
what finds tokens in a bucket of so many bytes and drops the rest. A file
describes any tree. Rates left out are unlimited, delays zero:

\b
seed = 7                  # decides which host has which name
preset = "shallow"
rto = "kernel"            # or TCP's least timeout, such as "5ms"
congestion = "cubic"
hogs = 1                  # hosts on which a process computes all the time
traffic = ["rack-a1:rack-b1:100mbit"]  # others' stream, on the switches' links
nic = "1gbit"             # of every host below, both directions
uplink_up = "2gbit"       # of every group's link to the switch above
uplink_down = "1gbit"
rtt = "500us"             # between hosts of different pods
[[group]]
name = "pod-a"
rtt = "200us"             # between its racks
[[group.group]]
name = "rack-a1"
hosts = 5
rtt = "60us"              # within the rack
slots = 2
uplink_queue = "64p"      # also nic_queue, or queue for both
uplink_jitter = "100us"   # also nic_jitter
[[group.group]]
name = "rack-a2"
hosts = 3
nic = "400mbit"
backpressure = true       # full cards hold senders back, as real ones do
[[group]]
name = "rack-b1"
hosts = 4
"""

name_option = click.option(
    "--name",
    shell_complete=LABS,
    default="default",
    show_default=True,
    help="Name of the lab.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    r"""Run an emulated data centre on this machine.

    \b
    cloudcoll lab up --racks 5,3,6,2
    cloudcoll lab hosts > hosts
    cloudcoll lab exec -- cloudcoll bench mpirun --hostfile hosts
    cloudcoll lab down
    """


@command.command(help=UP_HELP)
@name_option
@json_option
@click.option("--file", "path", type=FILE, help="A TOML file.")
@click.option(
    "--preset",
    shell_complete=PRESETS,
    help=f"What the network is like.  [default: {labs.DEFAULT}]",
)
@click.option("--racks", help="Hosts in each rack; / parts pods.  [default: 5,3,6,2]")
@click.option("--nic", help="Rate of each host's card.  [default: 400mbit]")
@click.option("--uplink", help="Rate of each rack's uplink.  [default: 400mbit]")
@click.option("--pod-uplink", help="Rate of each pod's.  [default: as --uplink]")
@click.option(
    "--rtt", help="Round trip between racks, or pods.  [default: the preset's]"
)
@click.option("--pod-rtt", help="Between racks of a pod.  [default: as --rack-rtt]")
@click.option("--rack-rtt", help="Round trip within a rack.  [default: 0]")
@click.option("--queue", help="Of cards and uplinks, such as 50ms, 64p or codel.")
@click.option("--nic-queue", help="Of each host's card.")
@click.option("--uplink-queue", help="Of each uplink.")
@click.option("--nic-jitter", help="Up to so much later, each packet on its own.")
@click.option("--uplink-jitter", help="The same at uplinks.")
@click.option(
    "--backpressure/--no-backpressure",
    default=None,
    help="Whether hosts see what waits at their cards.",
)
@click.option("--rto", help="TCP's least timeout, or kernel.")
@click.option("--congestion", help="TCP's congestion control, such as bbr.")
@click.option("--hogs", type=click.IntRange(0), help="Hosts short of CPU.")
@click.option(
    "--traffic", multiple=True, help="Others' stream, such as rack-1:rack-2:100mbit."
)
@click.option("--slots", type=click.IntRange(1), help="Ranks per host.  [default: 1]")
@click.option(
    "--seed", type=int, help="Decides which host has which name.  [default: 0]"
)
@click.option("--dry-run", is_flag=True, help="Print the commands, run none.")
def up(name: str, as_json: bool, dry_run: bool, **described: Any) -> None:  # noqa: D103
    spec = _spec(**described)
    if dry_run:
        plan = labs.plan_lab(spec, labs.latency_backend())
        print_text((_to_json(plan) if as_json else labs.show_plan(plan)) + "\n")
        return
    with TERMINAL.waiting("building the lab"):
        lab = labs.up(spec, name)
    _show(lab, as_json)


def _racks(text: str) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    try:
        pods = tuple(tuple(map(int, part.split(","))) for part in text.split("/"))
    except ValueError:
        raise UsageError(
            f"--racks {text!r} is not a list of numbers; write 5,3,6,2"
        ) from None
    return pods if len(pods) > 1 else pods[0]


READ: dict[str, Callable[[Any], Any]] = {
    "racks": _racks,
    **dict.fromkeys(("nic", "uplink", "pod_uplink"), labs.parse_rate),
    **dict.fromkeys(("rtt", "rack_rtt", "pod_rtt"), labs.parse_duration),
    **dict.fromkeys(("queue", "nic_queue", "uplink_queue"), labs.parse_queue),
    **dict.fromkeys(("nic_jitter", "uplink_jitter"), labs.parse_duration),
    "rto": labs.parse_rto,
    "traffic": lambda streams: tuple(map(labs.parse_traffic, streams)),
}
"""Option -> what reads its words; others are taken as they are."""


def _spec(path: Path | None, seed: int | None, **quick: Any) -> labs.LabSpec:
    given = {key: value for key, value in quick.items() if value not in (None, ())}
    if path is not None:
        if given:
            option = "--" + next(iter(given)).replace("_", "-")
            raise UsageError(f"{option} and --file exclude each other; edit {path}")
        spec = labs.read_spec(path)
        return spec if seed is None else dataclasses.replace(spec, seed=seed)
    said = {key: READ.get(key, lambda it: it)(given[key]) for key in given}
    preset = said.get("preset", labs.DEFAULT)
    shapes, usual = labs.find_preset(preset), labs.parse_rate("400mbit")
    uplink = said.get("uplink", usual)
    spec = labs.quick(
        said.get("racks", (5, 3, 6, 2)),
        nic=said.get("nic", usual),
        uplink=uplink,
        pod_uplink=said.get("pod_uplink", uplink),
        rtt=said.get("rtt", shapes.rtt),
        **{key: said[key] for key in ("rack_rtt", "pod_rtt") if key in said},
        slots=said.get("slots", 1),
        seed=seed or 0,
        preset=preset,
    )
    # What options say otherwise than the preset.
    around = ("congestion", "hogs", "rto", "traffic")
    changed = {key: said[key] for key in around if key in said}
    surroundings = dataclasses.replace(spec.surroundings, **changed)
    nic = _shaped(shapes.nic, "nic", said)
    if "backpressure" in said:
        nic = dataclasses.replace(nic, backpressure=said["backpressure"])
    reshaped = labs.reshaped(spec, nic, _shaped(shapes.uplink, "uplink", said))
    return dataclasses.replace(reshaped, surroundings=surroundings)


def _shaped(shape: labs.Shape, kind: str, said: dict[str, Any]) -> labs.Shape:
    """Return what cards or uplinks do with packets, by what was said of them."""
    queue = said.get(f"{kind}_queue", said.get("queue", shape.queue))
    jitter = said.get(f"{kind}_jitter", shape.jitter)
    return dataclasses.replace(shape, queue=queue, jitter=jitter)


@command.command("exec", cls=Prefix, short_help="Run a program in the lab.")
@name_option
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[HOST] [--] COMMAND..."
)
def exec_(words: tuple[str, ...], name: str) -> int:
    r"""Run a program in the lab.

    HOST is `head` by default: a host outside the list, on the root switch,
    where launchers run. The exit code is the program's.

    \b
    cloudcoll lab exec vm-01 -- hostname
    cloudcoll lab exec -- mpirun --hostfile hosts ./app
    """
    # Imported here: no other command forks.
    from cloudcoll.lab import entry

    lab = labs.find(name)
    host, argv = _host_and_command(lab, words)
    if not argv:
        raise UsageError("no command; write: cloudcoll lab exec [HOST] -- COMMAND...")
    return entry.run(lab, host, argv)


def _host_and_command(
    lab: labs.Lab, words: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Split the words after the options; the mark ``--`` may be left out."""
    marked = words[1:2] == ("--",)
    if marked or (words and words[0] in lab.anchors):
        return words[0], words[1 + marked :]
    return labs.HEAD, words


@command.command()
@name_option
@json_option
@click.option("--true-groups", is_flag=True, help="Print the planted racks instead.")
def hosts(name: str, as_json: bool, true_groups: bool) -> None:
    """Print the hostfile."""
    lab = labs.find(name)
    if true_groups:
        lines = [" ".join(group) for group in lab.groups]
        print_lines([json.dumps(lab.groups)] if as_json else lines)
    elif as_json:
        listed = [{"name": h.name, "slots": h.slots} for h in lab.hosts]
        print_lines([json.dumps(listed)])
    else:
        print_text(lab.hostfile.read_text())


@command.command()
@name_option
@json_option
def status(name: str, as_json: bool) -> None:
    """Print the lab that is up, and its faults."""
    _show(labs.find(name), as_json)


@command.command()
@name_option
def down(name: str) -> None:
    """Take the lab down, whatever state it is in."""
    print_lines([labs.down(name)])


@command.group()
def fault() -> None:
    r"""Break something in the running lab, or heal it.

    \b
    cloudcoll lab fault slow vm-03 100mbit
    cloudcoll lab fault loss vm-07 5%
    cloudcoll lab fault late vm-05 100us
    cloudcoll lab fault heal
    """


@fault.command()
@name_option
@click.argument("host")
def kill(name: str, host: str) -> None:
    """Kill a host: its processes die and its peers hear silence."""
    print_lines([labs.kill(labs.find(name), host)])


@fault.command()
@name_option
@click.argument("host")
@click.option("--direction", type=click.Choice(["in", "out"]), required=True)
def drop(name: str, host: str, direction: str) -> None:
    """Drop everything that goes into or out of a host."""
    print_lines([labs.drop(labs.find(name), host, direction)])


@fault.command()
@name_option
@click.argument("host")
@click.argument("share")
def loss(name: str, host: str, share: str) -> None:
    """Lose a share of packets in both directions, for example 5%."""
    print_lines([labs.lose(labs.find(name), host, labs.parse_share(share))])


@fault.command()
@name_option
@click.argument("host")
@click.argument("rate")
def slow(name: str, host: str, rate: str) -> None:
    """Slow a host's card down, for example to 100mbit."""
    print_lines([labs.slow(labs.find(name), host, labs.parse_rate(rate))])


@fault.command()
@name_option
@click.argument("host")
@click.argument("time")
def late(name: str, host: str, time: str) -> None:
    """Let a host's round trips take longer, for example 100us."""
    print_lines([labs.delay(labs.find(name), host, labs.parse_duration(time))])


@fault.command()
@name_option
@click.argument("source")
@click.argument("destination")
@click.option("--rate", default="200mbit", show_default=True)
@click.option("--seconds", type=Finite(0.1, 3600), default=60.0, show_default=True)
def traffic(
    name: str, source: str, destination: str, rate: str, seconds: float
) -> None:
    """Send a TCP stream from one host to another for a while."""
    lab = labs.find(name)
    flow = (source, destination, labs.parse_rate(rate), seconds)
    print_lines([labs.start_traffic(lab, *flow)])


@fault.command()
@name_option
@click.argument("host", required=False)
def heal(name: str, host: str | None) -> None:
    """Undo every fault, or those of one host."""
    print_lines([labs.heal(labs.find(name), host)])


def _show(lab: labs.Lab, as_json: bool) -> None:
    """Print a lab, its faults and the links that carry nothing."""
    if not as_json:
        print_text(labs.show_lab(lab) + "\n")
        return
    faults = {host: dataclasses.asdict(f) for host, f in labs.faults(lab).items()}
    also = {"faults": faults, "dead_wires": labs.dead_wires(lab)}
    print_text(_to_json(lab, **also, character=labs.character(lab)) + "\n")


def _to_json(value: labs.Lab | labs.Plan, **also: Any) -> str:
    data = units.json_ready(dataclasses.asdict(value) | also)
    return json.dumps(data, indent=2, default=str)
