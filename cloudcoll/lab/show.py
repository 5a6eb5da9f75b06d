"""A lab and a plan as text for people."""

from __future__ import annotations

from collections.abc import Iterable

from cloudcoll.lab.character import character_lines, rate_text, rates_text
from cloudcoll.lab.faults import faults
from cloudcoll.lab.link import wire_settings
from cloudcoll.lab.live import LinkFault, dead_wires
from cloudcoll.lab.plan import HEAD, Plan
from cloudcoll.lab.state import Lab

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
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]
