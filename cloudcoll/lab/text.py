"""A lab in words: as it is read, shown, and kept with what was measured in it.

Text such as ``400mbit`` or ``200us``, and the TOML file of a whole lab, are read here,
at the edge, and nowhere else.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files import LAB_CHARACTER, write_atomic
from cloudcoll.lab.faults import LinkFault, dead_wires, faults
from cloudcoll.lab.link import Link, wire_settings
from cloudcoll.lab.plan import HEAD, Plan
from cloudcoll.lab.spec import (
    CODEL_LIMIT,
    DEFAULT,
    USUAL,
    CrossTraffic,
    GroupSpec,
    HostSpec,
    LabSpec,
    Queue,
    Shape,
    Surroundings,
    find_preset,
    number_of,
    surroundings,
)
from cloudcoll.lab.state import Lab
from cloudcoll.plain import columns
from cloudcoll.units import parse_size, seconds

RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
DURATIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_rate(text: str) -> float:
    """Read a rate such as ``400mbit`` or ``unlimited`` and return bytes/s."""
    if text == "unlimited":
        return math.inf
    return _quantity(text, RATES, "rate", "400mbit, 2gbit or unlimited")


def parse_duration(text: str) -> float:
    """Read a time such as ``200us`` or ``0`` and return seconds."""
    if text == "0":
        return 0.0
    return _quantity(text, DURATIONS, "duration", "200us or 1.5ms")


def parse_queue(text: str) -> Queue:
    """Read a queue: ``50ms``, ``64p``, ``codel`` or ``policer:256K``."""
    kind, _, size = text.strip().lower().partition(":")
    if kind == "codel" and not size:
        return Queue("codel", CODEL_LIMIT)
    if kind == "policer" and size:
        return Queue("policer", float(parse_size(size)))
    if match := re.fullmatch(r"([1-9]\d{0,5})\s*p(ackets)?", kind):
        return Queue("packets", float(match[1]))
    if re.fullmatch(r"\d+\.?\d*\s*(us|ms|s)", kind):
        return Queue("time", parse_duration(kind))
    raise UsageError(
        f"{text!r} is not a queue; write for example 50ms, 64p (packets), codel, or "
        "policer:256K (a bucket of 256 KiB and no queue)"
    )


def queue_text(queue: Queue) -> str:
    """Return a queue in words."""
    if queue.kind == "time":
        return f"{queue.size * 1e3:g} ms"
    if queue.kind == "packets":
        return f"{queue.size:g} packets"
    if queue.kind == "codel":
        return "CoDel"
    return f"policer of {queue.size / 1024:g} KiB"


def parse_rto(text: str) -> float | None:
    """Read TCP's least timeout: a time, or ``kernel`` for the kernel's own (None)."""
    return None if text == "kernel" else parse_duration(text)


def parse_traffic(text: str) -> CrossTraffic:
    """Read cross traffic such as ``rack-1:rack-2:100mbit``."""
    parts = text.split(":")
    if len(parts) != 3:
        raise UsageError(
            f"{text!r} is not cross traffic; write for example rack-1:rack-2:100mbit"
        )
    return CrossTraffic(parts[0], parts[1], parse_rate(parts[2]))


def _quantity(text: str, units: Mapping[str, float], kind: str, example: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]+)", str(text).strip().lower())
    if match is None or match[2] not in units or float(match[1]) == 0:
        raise UsageError(
            f"{text!r} is not a {kind} (units: {', '.join(units)}); "
            f"write for example {example}"
        )
    return float(match[1]) * units[match[2]]


def read_spec(path: Path) -> LabSpec:
    """Read a lab from a TOML file.

    The top level is the root switch and takes ``seed``, ``preset``, ``rto``,
    ``congestion``, ``hogs`` and ``traffic`` (a list of texts); every ``[[group]]``
    takes ``name`` and either ``hosts`` (a number) or further groups. ``rtt``
    belongs to the group it is written in. ``nic``, ``uplink`` (or, for one
    direction, ``nic_up``, ``nic_down``, ``uplink_up``, ``uplink_down``),
    ``queue`` (or ``nic_queue``, ``uplink_queue``), ``nic_jitter``,
    ``uplink_jitter``, ``backpressure`` and ``slots`` hold for everything below,
    until written again further down.

    Raises
    ------
    UsageError
        The file is missing, not TOML, or says something that makes no
        sense; the message names the file, the key and the known keys.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the lab file {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    try:
        seed = table.pop("seed", 0)
        if not isinstance(seed, int):
            raise UsageError(f"seed = {seed!r} is not a whole number")
        preset = find_preset(str(table.get("preset", DEFAULT)))
        around = _surroundings_of(table)
        shapes = _Defaults(nic_shape=preset.nic, uplink_shape=preset.uplink)
        return LabSpec(_group(table, "root", shapes), seed, around)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _surroundings_of(table: dict[str, Any]) -> Surroundings:
    """Take out of the top level of a file what holds for all hosts."""
    around = surroundings(str(table.pop("preset", DEFAULT)))
    hogs = table.pop("hogs", around.hogs)
    if type(hogs) is not int:
        raise UsageError(f"hogs = {hogs!r} is not a whole number")
    traffic = table.pop("traffic", [])
    if not isinstance(traffic, list):
        raise UsageError("traffic is not a list: write ['rack-1:rack-2:100mbit']")
    rto = table.pop("rto", None)
    return replace(
        around,
        rto=around.rto if rto is None else parse_rto(str(rto)),
        congestion=str(table.pop("congestion", around.congestion)),
        hogs=hogs,
        traffic=tuple(parse_traffic(str(one)) for one in traffic),
    )


@dataclass(frozen=True)
class _Defaults:
    nic_up: float = math.inf
    nic_down: float = math.inf
    uplink_up: float = math.inf
    uplink_down: float = math.inf
    slots: int = 1
    nic_shape: Shape = USUAL
    uplink_shape: Shape = USUAL

    def updated(self, table: dict[str, Any]) -> _Defaults:
        """Take out of `table` what holds for everything below it."""
        changes: dict[str, Any] = {}
        for link in ("nic", "uplink"):
            if link in table:
                both = parse_rate(table.pop(link))
                changes |= {f"{link}_up": both, f"{link}_down": both}
            for key in (f"{link}_up", f"{link}_down"):
                if key in table:
                    changes[key] = parse_rate(table.pop(key))
        if "slots" in table:
            changes["slots"] = number_of(table.pop("slots"), "slots")
        both = table.pop("queue", None)
        backpressure = table.pop("backpressure", self.nic_shape.backpressure)
        if not isinstance(backpressure, bool):
            raise UsageError(f"backpressure = {backpressure!r} is not true or false")
        nic = _shape(table, "nic", both, self.nic_shape)
        changes["nic_shape"] = replace(nic, backpressure=backpressure)
        changes["uplink_shape"] = _shape(table, "uplink", both, self.uplink_shape)
        return replace(self, **changes)


def _shape(table: dict[str, Any], link: str, queue: object, above: Shape) -> Shape:
    """Take a link's shape out of `table`; `queue` is what holds for all links."""
    own = table.pop(f"{link}_queue", queue)
    jitter = table.pop(f"{link}_jitter", None)
    return replace(
        above,
        queue=above.queue if own is None else parse_queue(str(own)),
        jitter=above.jitter if jitter is None else parse_duration(str(jitter)),
    )


TOP_KEYS = ("seed", "preset", "rto", "congestion", "hogs", "traffic")
KEYS = (
    *("name", "hosts", "rtt", "nic", "nic_up", "nic_down"),
    *("uplink", "uplink_up", "uplink_down", "slots", "group", "queue"),
    *("nic_queue", "uplink_queue", "nic_jitter", "uplink_jitter", "backpressure"),
)


def _group(table: dict[str, Any], default_name: str, above: _Defaults) -> GroupSpec:
    name = str(table.pop("name", default_name))
    if unknown := sorted(set(table) - set(KEYS)):
        raise UsageError(
            f"unknown key {unknown[0]!r} in group {name!r} (known: "
            f"{', '.join(KEYS)}; at the top also {', '.join(TOP_KEYS)})"
        )
    here = above.updated(table)
    groups = table.get("group", [])
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        raise UsageError(f"group {name!r}: write [[group]], in two brackets each")
    if ("hosts" in table) == bool(groups):
        raise UsageError(
            f"group {name!r} must have either hosts = N or [[group]] tables below it"
        )
    children: tuple[GroupSpec | HostSpec, ...] = tuple(
        _group(dict(group), f"{name}.{number}", here)
        for number, group in enumerate(groups, start=1)
    )
    if not groups:
        host = HostSpec(here.nic_up, here.nic_down, here.slots, here.nic_shape)
        children = (host,) * number_of(table["hosts"], "hosts")
    rtt = parse_duration(str(table.get("rtt", "0")))
    up, down, shape = here.uplink_up, here.uplink_down, here.uplink_shape
    return GroupSpec(name, children, up, down, rtt, shape)


def character(lab: Lab) -> dict[str, Any]:
    """Return what a lab is like: JSON values, without hosts' names.

    ``preset`` (empty: none); ``racks``, the hosts in each; ``cards`` and ``uplinks``,
    each kind of link that there is, in words; ``rto_s`` (None: the kernel's own),
    ``congestion`` (empty: this machine's), ``hogs``, ``traffic``, and ``delayed_by``.
    """
    around = lab.surroundings
    names = {host.name for host in lab.hosts}
    cards = [link for link in lab.links if link.name in names]
    uplinks = [link for link in lab.links if not link.host]
    return {
        "preset": around.preset,
        "racks": [len(group) for group in lab.groups],
        "cards": _kinds(cards),
        "uplinks": _kinds(uplinks),
        "rto_s": around.rto,
        "congestion": around.congestion,
        "hogs": around.hogs,
        "traffic": [
            f"{one.source} to {one.destination}, {rate_text(one.rate)}"
            for one in around.traffic
        ],
        "delayed_by": lab.backend,
    }


def keep_character(lab: Lab) -> None:
    """Write a lab's character to where probes and benches in it look."""
    text = json.dumps(character(lab), indent=1)
    write_atomic(lab.directory / LAB_CHARACTER, text)


def character_lines(lab: Lab) -> list[str]:
    """Return what a lab is like as lines, each with its subject first."""
    facts = character(lab)
    rto = facts["rto_s"]
    least = "the kernel's" if rto is None else f"{rto * 1e3:g} ms"
    lines = [
        f"preset    {facts['preset'] or '-'}",
        *(f"card      {kind}" for kind in facts["cards"]),
        *(f"uplink    {kind}" for kind in facts["uplinks"]),
        f"TCP       {facts['congestion'] or 'the congestion control of this machine'}, "
        f"least timeout {least}",
        *(f"traffic   {one}" for one in facts["traffic"]),
    ]
    if lab.hogged:
        lines.append(f"CPU hogs  {' '.join(lab.hogged)}")
    return lines


def rates_text(link: Link) -> str:
    """Return the rates of a link's two directions."""
    if link.up == link.down:
        return rate_text(link.up)
    return f"{rate_text(link.up)} up, {rate_text(link.down)} down"


def rate_text(rate: float) -> str:
    """Return a rate in bytes/s as networks count it."""
    return f"{rate * 8 / 1e6:g} Mbit/s" if math.isfinite(rate) else "unlimited"


def _kinds(links: Iterable[Link]) -> list[str]:
    return list(dict.fromkeys(_kind(link) for link in links))


def _kind(link: Link) -> str:
    shape = link.shape
    parts = [rates_text(link)]
    if math.isfinite(min(link.up, link.down)):
        parts.append(f"queue: {queue_text(shape.queue)}")
        if link.host and shape.backpressure and shape.queue.kind == "time":
            parts.append("seen by the host (backpressure)")
    if link.delay:
        parts.append(f"{link.delay * 1e6:g} us each way")
    if shape.jitter:
        parts.append(f"jitter up to {shape.jitter * 1e6:g} us")
    return ", ".join(parts)


DEAD_WIRE = (
    "its wire program has ended and nothing crosses this link: see the lab's log, then "
    "'cloudcoll lab down"
)


def show_lab(lab: Lab) -> str:
    """Return a short table of a running lab and what to type next."""
    links = {link.name: link for link in lab.links}
    above = {link.below: link for link in lab.links if not link.host}
    broken, dead = faults(lab), dead_wires(lab)
    rows = [("group", "card", "uplink", "RTT", "hosts")]
    for group in lab.groups:
        first = links[group[0]]
        uplink = above.get(first.bridge)
        rows.append(
            (
                uplink.name if uplink else "root",
                rates_text(first),
                rates_text(uplink) if uplink else "-",
                f"{first.delay * 4e6:g} us",
                " ".join(f"{h}!" if h in {*broken, *dead} else h for h in group),
            )
        )
    name = "" if lab.name == "default" else f" --name {lab.name}"
    lines = [
        f"lab {lab.name!r} is up: {len(lab.hosts)} hosts, {_latency(lab)}",
        *columns(rows),
        *character_lines(lab),
        *(f"! {host}: {_fault(fault)}" for host, fault in sorted(broken.items())),
        *(f"! {link}: {DEAD_WIRE}{name}'" for link in dead),
        f"hostfile  {lab.hostfile}",
        f"try       cloudcoll lab exec{name} -- mpirun --hostfile {lab.hostfile} "
        "hostname",
        f"          cloudcoll lab exec{name} {lab.hosts[0].name} -- sh",
        f"          cloudcoll lab down{name}",
    ]
    return "\n".join(lines)


def show_plan(plan: Plan) -> str:
    """Return what building a lab types, in order."""
    lines = [f"# {len(plan.slots)} hosts and {HEAD}, latency by {plan.backend}"]
    for batch in plan.batches:
        lines.append(f"# {batch.tool} -batch, on {batch.namespace or 'the switches'}")
        lines += batch.lines
    for link in plan.wired:
        settings = " ".join(repr(one) for one in wire_settings(link))
        lines.append(f"wire {' '.join(link.wire_ends)} {settings}  # {link.name}")
    return "\n".join(lines)


def _latency(lab: Lab) -> str:
    links = {link.name: link for link in lab.links}
    above = {link.below: link for link in lab.links if not link.host}
    link = links[lab.hosts[0].name]
    # All ways to the root take equally long; a round trip has four.
    one_way, wires = link.delay, link.floor
    while link.bridge in above:
        link = above[link.bridge]
        one_way, wires = one_way + link.delay, wires + link.floor
    if wires:
        delayed = f"RTT {one_way * 4e6:g} us across the root"
        return f"{delayed}, and {wires * 4e6:g} us more of all hosts, delayed by wire"
    if not one_way:
        return "no latency added"
    return f"RTT {one_way * 4e6:g} us across the root, delayed by {lab.backend}"


def _fault(fault: LinkFault) -> str:
    said = {
        "dead": fault.dead,
        "in dropped": fault.drop_in,
        "out dropped": fault.drop_out,
        f"{fault.loss:.2%} lost": fault.loss > 0,
        f"slowed to {rate_text(fault.rate or 0)}": fault.rate is not None,
        f"late by {seconds(fault.late)}": fault.late > 0,
    }
    return ", ".join(text for text, true in said.items() if true)
