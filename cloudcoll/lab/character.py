"""What a lab is like, in words: shown, and kept with what was measured in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from cloudcoll.files import LAB_CHARACTER, write_atomic
from cloudcoll.lab.faults import LinkFault, dead_wires, faults
from cloudcoll.lab.link import Link, wire_settings
from cloudcoll.lab.plan import HEAD, Plan
from cloudcoll.lab.spec_text import queue_text
from cloudcoll.lab.state import Lab


def character(lab: Lab) -> dict[str, Any]:
    """Return what a lab is like: JSON values, without hosts' names.

    Returns
    -------
    dict
        ``preset`` (empty: none); ``racks``, the hosts in each; ``cards`` and
        ``uplinks``, each kind of link that there is, in words; ``rto_s`` (None:
        the kernel's own), ``congestion`` (empty: this machine's), ``hogs``,
        ``traffic``, and ``delayed_by``.
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
        *_aligned(rows),
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
    }
    return ", ".join(text for text, true in said.items() if true)


def _aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
