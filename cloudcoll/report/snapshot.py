"""A snapshot, and the tree of its fabric, as lines of text or JSON-ready values."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cloudcoll import units
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import fabric_to_dict
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.plain import plain_line
from cloudcoll.rankmap import SURE
from cloudcoll.report.checks import check_snapshot, next_steps
from cloudcoll.report.findings import (
    HostEffect,
    UplinkFinding,
    honest_fabric,
    host_effects,
    oversubscription,
    uplinks,
    worst_hosts,
)
from cloudcoll.report.heatmap import SHADES
from cloudcoll.report.totals import (
    OneWay,
    Repeats,
    one_way_pairs,
    rates,
    repeats,
    round_trips,
)
from cloudcoll.units import decimal_size

SHOWN = 5
"""Of each kind of finding; ``--json`` has them all."""
_AWAY = "·"
_BROADEST = 2
"""Columns of a host in the way of an order."""
RACKS = 12
"""Racks whose sizes are named in a line."""


def snapshot_lines(snapshot: NetworkSnapshot, width: int = 80) -> list[str]:
    """Return what a snapshot says: groups, links, what stands out, what to do."""
    fabric = honest_fabric(snapshot)
    lines = [_head(snapshot), ""]
    if snapshot.fabric:
        lines += [*fabric_lines(fabric, snapshot.silent, width), ""]
    lines += _wrapped(_summary(snapshot), width)
    lines += _standing_out(
        worst_hosts(snapshot, fabric),
        [link for link in uplinks(snapshot, fabric) if link.stands_out],
        one_way_pairs(snapshot, fabric),
    )
    if doubts := check_snapshot(snapshot):
        lines += ["", *_wrapped([f"warning: {doubt}" for doubt in doubts], width)]
    if steps := next_steps(snapshot):
        lines += ["", *_wrapped([f"next: {step}" for step in steps], width)]
    return lines


def _wrapped(texts: list[str], width: int) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            plain_line(text),
            width,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _head(snapshot: NetworkSnapshot) -> str:
    # A merged snapshot has an entry for each time that a pair was measured.
    pairs = len(np.unique([snapshot.rtt.src, snapshot.rtt.dst], axis=1).T)
    parts = [units.count(len(snapshot.hosts), "host"), units.count(pairs, "pair")]
    said = snapshot.metadata
    if snapshot.origin == "imported":
        parts.append(
            f"{said.get('format', '?')} imported from {said.get('source', '?')}"
        )
    elif via := said.get("transport"):
        parts.append(f"{said.get('mode', '?')} probe via {via}")
    parts.append(f"{units.seconds(max(snapshot.age, 0.0))} old")
    return f"snapshot {snapshot.digest[:12] or '(not saved)'}: {', '.join(parts)}"


def _summary(snapshot: NetworkSnapshot) -> list[str]:
    """Return a line each for round trips, rates, repeats and confidence."""
    lines = []
    trips, flows, merged = round_trips(snapshot), rates(snapshot), repeats(snapshot)
    if trips.sent:
        lines.append(
            f"round trips: p50 {units.seconds(trips.p50_s)}, p99 "
            f"{units.seconds(trips.p99_s)}; {trips.loss:.2%} of {trips.sent} lost"
        )
    if flows.transfers:
        lines.append(
            f"rates under load: p50 {units.bit_rate(flows.p50_bytes_per_s)}, p1 "
            f"{units.bit_rate(flows.p1_bytes_per_s)}; {flows.transfers} transfers in "
            f"{flows.rounds} rounds"
        )
    if merged:
        lines.append(_repeats_line(merged))
    return [*lines, *_sent(snapshot), *_confidence(snapshot)]


def _sent(snapshot: NetworkSnapshot) -> list[str]:
    """Return what the probe took; nothing for what is no single probe."""
    said = snapshot.metadata
    if said.get("merged") or not said.get("sent_bytes"):
        return []
    took = f" in {units.seconds(said['seconds'])}" if "seconds" in said else ""
    return [f"the hosts sent {decimal_size(said['sent_bytes'])} for this{took}"]


def _repeats_line(merged: Repeats) -> str:
    line = f"{merged.snapshots} snapshots over {units.seconds(merged.span_s)}"
    if not math.isnan(merged.transient):
        line += f": round trips vary by {merged.transient:.1%}"
    if merged.src:
        line += (
            f", most from {merged.src} to {merged.dst} "
            f"({units.seconds(merged.usual_s)}, once {units.seconds(merged.once_s)})"
        )
    return line


def _confidence(snapshot: NetworkSnapshot) -> list[str]:
    if snapshot.fabric is None:
        return ["no groups were looked for"]
    lines = []
    if not math.isnan(snapshot.fabric.confidence):
        lines.append(groups_words(snapshot.fabric))
    error = snapshot.fabric.holdout_error
    if math.isnan(error):
        return [*lines, "confidence: not tested, nothing was kept out of the fit"]
    return [
        *lines,
        f"confidence: {error:.1%} median error on what was kept out of the fit",
    ]


def groups_words(fabric: Fabric) -> str:
    """Return which groups share a switch, and how sure that is."""
    sizes = [
        sum(not child.children for child in node.children)
        for level in fabric.groups()
        for node in level
        if node is not fabric.root
    ]
    racks = sorted(filter(None, sizes), reverse=True)
    shown = ", ".join(map(str, racks[:RACKS])) + (", ..." if len(racks) > RACKS else "")
    noun = "racks" if len(racks) > 1 else "a rack"
    # One group of all hosts parts none of them.
    parted = bool(racks) and racks[0] < len(fabric.hosts)
    found = f"{noun} of {shown} hosts" if parted else "no racks"
    sure = fabric.confidence
    if math.isnan(sure):
        return f"{found}; how sure that is is not known"
    if sure >= SURE:
        return f"{found}: sure ({sure:.0%})"
    if parted:
        return f"{found}: not sure ({sure:.0%}); other groups explain it nearly as well"
    return "racks: none found, and not sure that there are none"


def _standing_out(
    hosts: list[HostEffect], links: list[UplinkFinding], pairs: list[OneWay]
) -> list[str]:
    """Return the worst hosts, uplinks and pairs, or that there are none."""
    found = (
        ("worst hosts", [_host_line(host) for host in hosts]),
        ("worst uplinks", [_uplink_line(link) for link in links]),
        ("slower one way", [_pair_line(pair) for pair in pairs]),
    )
    lines = []
    for title, rows in found:
        if rows:
            more = f" ({SHOWN} of {len(rows)})" if len(rows) > SHOWN else ""
            lines += ["", title + more, *(f"  {row}" for row in rows[:SHOWN])]
    return lines or ["no host, uplink or direction stands out"]


def _host_line(host: HostEffect) -> str:
    parts = []
    if host.is_late:
        parts.append(f"answers {units.seconds(host.late_s)} late")
    if host.is_slow:
        parts.append(
            f"sends {units.bit_rate(host.sends_bytes_per_s)}, "
            f"receives {units.bit_rate(host.receives_bytes_per_s)}"
        )
    return f"{host.name}: {', '.join(parts)}"


def _uplink_line(link: UplinkFinding) -> str:
    return (
        f"group {link.name}: up {units.bit_rate(link.up_bytes_per_s)} down "
        f"{units.bit_rate(link.down_bytes_per_s)}, {link.share:.0%} of the others'"
    )


def _pair_line(pair: OneWay) -> str:
    back = units.bit_rate(pair.back_bytes_per_s)
    rate = units.bit_rate(pair.bytes_per_s) if pair.bytes_per_s else "nothing"
    return f"{pair.src} to {pair.dst}: {rate}, back {back}"


NAMES_SHOWN = 16
_DEEPER = {"": "", "├─ ": "│  ", "└─ ": "   "}


def fabric_lines(
    fabric: Fabric,
    silent: frozenset[str] = frozenset(),
    width: int = 80,
    order: Sequence[str] = (),
) -> list[str]:
    """Return the tree: a line for each group with its link, its hosts below.

    With an order also a line for each rack that shows when the order is in it: a
    column for each host from first to last, or for several where they do not fit. Each
    rack's hosts are then named in this order, and others not at all. Of `silent` hosts
    it says that nothing was measured.
    """
    places = {name: place for place, name in enumerate(order)}
    left = 3 * _height(fabric.root)

    def walk(node: Node, prefix: str, branch: str) -> Iterator[str]:
        groups = [child for child in node.children if child.children]
        hosts = [child for child in node.children if not child.children]
        plain = [host for host in hosts if host.name not in silent]
        # Hosts beside groups have links of their own to show.
        lone = [host for host in hosts if groups or host.name in silent]
        head = prefix + branch + _group_line(fabric, node)
        if order and (over := len(head) - width) > 0:
            short = node.name[: max(8, len(node.name) - over - 1)] + "…"
            head = head.replace(node.name, short, 1)
        yield head
        deeper = prefix + _DEEPER[branch]
        items = groups + lone
        if not groups and plain:
            indent = deeper + ("│  " if items else "   ")
            names = [host.name for host in plain]
            if order:
                names = sorted(places.keys() & names, key=places.__getitem__)
                mine = {places[name] for name in names}
                yield f"{indent:<{left}}{_lane(mine, len(order), width - left)}"
            yield from _names(names, indent, width)
        for item in items:
            corner = "└─ " if item is items[-1] else "├─ "
            if item.children:
                yield from walk(item, deeper, corner)
            else:
                what = "nothing measured" if item.name in silent else _link(item)
                if order:
                    at = places.get(item.name)
                    what += "" if at is None else f"  number {at + 1} of the order"
                yield f"{deeper}{corner}{item.name}  {what}".rstrip()

    return list(walk(fabric.root, "", ""))


def _height(node: Node) -> int:
    """Return how deep a tree is: one for hosts below a switch."""
    return 1 + max(map(_height, node.children), default=0) if node.children else 0


def _lane(mine: Collection[int], total: int, room: int) -> str:
    """Return at which of `total` places an order is in a rack, in so many columns."""
    room = max(room, 1)
    if total <= room:
        wide = min(_BROADEST, room // total)
        marks = (_AWAY, SHADES[-1])
        return "".join(marks[place in mine] * wide for place in range(total))
    ends = [total * column // room for column in range(room + 1)]
    shares = [
        sum(place in mine for place in range(low, high)) / (high - low)
        for low, high in itertools.pairwise(ends)
    ]
    darkest = len(SHADES)
    return "".join(
        SHADES[math.ceil(share * darkest) - 1] if share else _AWAY for share in shares
    )


def picture_lines(fabric: Fabric, order: Sequence[str], width: int = 80) -> list[str]:
    """Return the racks as a tree, with an order's way through them."""
    one_each = len(order) <= width - 3 * _height(fabric.root)
    dark = "dark where it is in a rack"
    if not one_each:
        dark = "the darker, the more of it is in a rack"
    head = f"the order from left to right, {dark}"
    return [head, *fabric_lines(fabric, width=width, order=order)]


def paint_lanes(line: str) -> str:
    """Return a line of a picture with its blocks in colour."""
    return re.sub(f"[{SHADES}]+", "\x1b[36m\\g<0>\x1b[0m", line)


def _group_line(fabric: Fabric, node: Node) -> str:
    hosts = units.count(len(list(node.leaves())), "host")
    what = "core" if node is fabric.root else f"group {node.name}"
    parts = [f"{what}: {hosts}"]
    if not math.isnan(rtt := fabric.rtt(node)):
        parts.append(f"rtt {units.seconds(rtt)}")
    if node is not fabric.root:
        # Labels and other people's trees know of no load.
        unknown = "uplink never full" if fabric.origin == "measured" else ""
        parts.append(_link(node) or unknown)
        if not math.isnan(ratio := oversubscription(node)):
            parts.append(f"{ratio:.1f}:1")
    return "  ".join(part for part in parts if part)


def _link(node: Node) -> str:
    up, down = node.uplink_bytes_per_s, node.downlink_bytes_per_s
    if math.isnan(up) and math.isnan(down):
        return ""
    return f"up {units.bit_rate(up)} down {units.bit_rate(down)}"


def _names(names: Sequence[str], indent: str, width: int) -> list[str]:
    left = len(names) - NAMES_SHOWN
    more = [f"and {left} more"] if left > 0 else []
    return textwrap.wrap(
        plain_line(" ".join([*names[:NAMES_SHOWN], *more])),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def snapshot_json(snapshot: NetworkSnapshot, matrices: bool = False) -> dict[str, Any]:
    """Return a snapshot's summary as JSON-ready values.

    ``levels`` goes from the leaves up: level 0 has the groups whose members are hosts,
    the last level is the core. ``host_effects`` and ``uplinks`` have the fields of
    `cloudcoll.report.findings`, ``one_way_pairs`` those of `cloudcoll.report.totals`,
    the worst first; ``round_trips``, ``rates`` and ``repeats`` those of
    `cloudcoll.report.totals`. NaN is ``null``. If asked for, ``matrices`` has seconds
    and bytes/s from each of ``hosts`` (row) to each other.
    """
    fabric = honest_fabric(snapshot)
    measured = snapshot.fabric is not None
    merged = repeats(snapshot)
    data = {
        "digest": snapshot.digest,
        "created": snapshot.created,
        "hosts": snapshot.names,
        "failed": dict(snapshot.failed),
        "silent": sorted(snapshot.silent),
        "levels": _levels(fabric) if measured else [],
        "holdout_error": fabric.holdout_error,
        "fabric": fabric_to_dict(fabric) if measured else None,
        "round_trips": asdict(round_trips(snapshot)),
        "rates": asdict(rates(snapshot)),
        "repeats": merged and asdict(merged),
        "host_effects": list(map(asdict, host_effects(snapshot, fabric))),
        "uplinks": list(map(asdict, uplinks(snapshot, fabric))),
        "one_way_pairs": list(map(asdict, one_way_pairs(snapshot, fabric))),
        "warnings": check_snapshot(snapshot),
        "next": next_steps(snapshot),
        "metadata": dict(snapshot.metadata),
    }
    if matrices:
        data["matrices"] = {
            "rtt_s": snapshot.latency.values.tolist(),
            "bytes_per_s": snapshot.bandwidth.values.tolist(),
        }
    ready: dict[str, Any] = units.json_ready(data)
    return ready


def _levels(fabric: Fabric) -> list[dict[str, Any]]:
    return [
        {
            "groups": [list(node.leaves()) for node in nodes],
            "rtt_s": [fabric.rtt(node) for node in nodes],
            "uplink_bytes_per_s": [node.uplink_bytes_per_s for node in nodes],
            "downlink_bytes_per_s": [node.downlink_bytes_per_s for node in nodes],
            "oversubscription": [oversubscription(node) for node in nodes],
            "holdout_error": fabric.holdout_error,
        }
        for nodes in fabric.groups()
    ]
