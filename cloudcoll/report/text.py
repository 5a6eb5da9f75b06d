"""Snapshots and rank maps as lines of text, and as JSON-ready values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cloudcoll.fabric.jsonform import fabric_to_dict
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.rankmap import RankMap
from cloudcoll.report import units
from cloudcoll.report.checks import check_snapshot
from cloudcoll.snapshot import NetworkSnapshot

NAMES_SHOWN = 8


def snapshot_lines(snapshot: NetworkSnapshot) -> list[str]:
    """Return what a snapshot says: groups, links, slow hosts, warnings."""
    digest = snapshot.digest[:12] or "(not saved)"
    lines = [
        f"snapshot {digest}: {len(snapshot.hosts)} hosts, {len(snapshot.rtt.src)} "
        f"pairs, {_provenance(snapshot)}, {units.seconds(max(snapshot.age, 0.0))} old"
    ]
    if snapshot.fabric:
        lines += ["", *fabric_lines(snapshot.fabric)]
    doubts = check_snapshot(snapshot)
    return lines + [""] * bool(doubts) + [f"warning: {doubt}" for doubt in doubts]


def _provenance(snapshot: NetworkSnapshot) -> str:
    said = snapshot.metadata
    if snapshot.origin == "imported":
        return f"{said.get('format', '?')} imported from {said.get('source', '?')}"
    return f"{said.get('mode', '?')} probe via {said.get('transport', '?')}"


def fabric_lines(fabric: Fabric) -> list[str]:
    """Return the tree: a line for each group, with its link and its hosts."""

    def walk(node: Node, prefix: str, branch: str) -> Iterator[str]:
        hosts = [child for child in node.children if not child.children]
        groups = [child for child in node.children if child.children]
        lone = [] if not groups else hosts
        yield f"{prefix}{branch}{_group_line(fabric, node, hosts if not lone else [])}"
        deeper = prefix + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        items = groups + lone
        for item in items:
            corner = "└─ " if item is items[-1] else "├─ "
            if item.children:
                yield from walk(item, deeper, corner)
            else:
                yield f"{deeper}{corner}{item.name}  {_link(item)}"

    return list(walk(fabric.root, "", ""))


def _group_line(fabric: Fabric, node: Node, hosts: list[Node]) -> str:
    count = len(list(node.leaves()))
    what = "core" if node is fabric.root else f"group {node.name}"
    parts = [f"{what}: {count} host{'s' * (count != 1)}"]
    if not math.isnan(rtt := fabric.rtt(node)):
        parts.append(f"rtt {units.seconds(rtt)}")
    # Labels know of no load: nothing is to be said of their links.
    if node is not fabric.root and fabric.origin != "labels":
        parts.append(_link(node))
    if hosts:
        parts.append(_names(host.name for host in hosts))
    return "  ".join(part for part in parts if part)


def _link(node: Node) -> str:
    up, down = node.uplink_bytes_per_s, node.downlink_bytes_per_s
    if math.isnan(up) and math.isnan(down):
        return "" if not node.children else "uplink never full"
    return f"up {units.bit_rate(up)} down {units.bit_rate(down)}"


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMES_SHOWN} more" * (len(listed) > NAMES_SHOWN)
    return " ".join(listed[:NAMES_SHOWN]) + more


def snapshot_json(snapshot: NetworkSnapshot) -> dict[str, Any]:
    """Return a snapshot's summary as JSON-ready values.

    ``levels`` goes from the leaves up: level 0 has the groups whose members
    are hosts, the last level is the core. NaN is ``null``.
    """
    fabric = snapshot.fabric
    levels = [] if fabric is None else _levels(fabric)
    return {
        "digest": snapshot.digest,
        "created": snapshot.created,
        "hosts": list(snapshot.names),
        "failed": dict(snapshot.failed),
        "levels": levels,
        "holdout_error": None if fabric is None else _null(fabric.holdout_error),
        "fabric": None if fabric is None else fabric_to_dict(fabric),
        "warnings": check_snapshot(snapshot),
        "metadata": dict(snapshot.metadata),
    }


def _levels(fabric: Fabric) -> list[dict[str, Any]]:
    return [
        {
            "groups": [list(node.leaves()) for node in nodes],
            "rtt_s": [_null(fabric.rtt(node)) for node in nodes],
            "uplink_bytes_per_s": [_null(node.uplink_bytes_per_s) for node in nodes],
            "downlink_bytes_per_s": [
                _null(node.downlink_bytes_per_s) for node in nodes
            ],
            "holdout_error": _null(fabric.holdout_error),
        }
        for nodes in fabric.groups()
    ]


def map_lines(rank_map: RankMap) -> list[str]:
    """Return what a rank map says: for what, the order, what it should bring."""
    schedule = rank_map.schedule
    what = f"{schedule.get('collective', '?')} {schedule.get('algorithm', '')}"
    lines = [
        f"rank map for {what} of {units.size(schedule.get('size', math.nan))}, "
        f"{rank_map.size} ranks on {len(rank_map.order)} hosts, "
        f"snapshot {rank_map.snapshot[:12] or '?'}",
        "order: " + " ".join(rank_map.order),
        "",
        *predicted_lines(rank_map.predicted),
    ]
    if rank_map.origin == "given":
        lines += ["", "no gain expected: order kept"]
    return lines


def predicted_lines(predicted: Mapping[str, float]) -> list[str]:
    """Return one line per order: predicted time and how it compares."""
    best = predicted.get("cloudcoll", math.nan)
    return [
        f"{name:>10}  {units.seconds(value):>9}  "
        f"{value / best if best else 1.0:5.2f}x predicted"
        for name, value in predicted.items()
    ]


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None
