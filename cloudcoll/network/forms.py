"""The forms a fabric is written in: JSON, and Slurm's ``topology.conf``.

JSON is in snapshot files, and is what ``import fabric`` reads. ``topology.conf`` is
the tree plug-in's (topology.conf(5) of Slurm 22.05), and what ``import slurm`` reads:
a switch has hosts or switches below it, not both.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import ALTERNATIVES, GROUPS, LEVELS, STORED_HOSTS
from cloudcoll.hosts.names import shown
from cloudcoll.network.tree import Alternative, Fabric, Node

LONGEST_NAME = 1024
"""Characters of a group's name."""

_FIELDS = {
    "name",
    "children",
    "uplink_bytes_per_s",
    "downlink_bytes_per_s",
    "latency_s",
}


def fabric_to_dict(fabric: Fabric) -> dict[str, Any]:
    """Return a fabric as JSON-ready values; `fabric_from_dict` reads it back."""
    return {
        "origin": fabric.origin,
        "holdout_error": _null(fabric.holdout_error),
        "warnings": list(fabric.warnings),
        "confidence": _null(fabric.confidence),
        "alternatives": [
            {"share": other.share, "root": _node_to_dict(other.root)}
            for other in fabric.alternatives
        ],
        "root": _node_to_dict(fabric.root),
    }


def fabric_from_dict(data: object) -> Fabric:
    """Build a fabric from `fabric_to_dict`'s form, checking every field."""
    warnings = data.get("warnings", []) if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(warnings, list):
        raise UsageError("a fabric must be an object with a 'root' node")
    fabric = Fabric(
        root=root_from_dict(data.get("root", {})),
        origin=str(data.get("origin", "measured")),
        holdout_error=_number(data, "holdout_error"),
        warnings=tuple(map(str, warnings)),
        confidence=_share(data, "confidence"),
    )
    others = data.get("alternatives", [])
    if not isinstance(others, list) or len(others) > ALTERNATIVES:
        raise UsageError(
            f"'alternatives' of a fabric must be a list of at most {ALTERNATIVES}"
        )
    return replace(
        fabric, alternatives=tuple(_other(other, fabric) for other in others)
    )


def _other(data: object, fabric: Fabric) -> Alternative:
    """Build an alternative, which has the same hosts."""
    if not isinstance(data, Mapping):
        raise UsageError("an alternative must be an object with a 'root' node")
    share, root = _share(data, "share"), root_from_dict(data.get("root", {}))
    if math.isnan(share) or sorted(root.leaves()) != sorted(fabric.hosts):
        raise UsageError("an alternative needs the fabric's hosts, and a 'share'")
    return Alternative(share, root)


def root_from_dict(data: object) -> Node:
    """Build a whole tree, after a look at how many nodes it has."""
    groups, hosts = 0, 0
    level = [data]
    for _ in range(LEVELS + 1):
        below = []
        for node in level:
            inner = node.get("children") if isinstance(node, Mapping) else None
            if inner and isinstance(inner, (list, tuple)):
                groups += 1
                below.append(inner)
            else:
                hosts += 1
        level = list(chain.from_iterable(below))
    if groups > GROUPS or hosts > STORED_HOSTS:
        raise UsageError(
            f"a fabric of {hosts} hosts in {groups} groups: at most {STORED_HOSTS} in "
            f"{GROUPS}"
        )
    return node_from_dict(data)


def node_from_dict(data: object, depth: int = 0) -> Node:
    """Build a node from ``name``, ``children``, ``uplink_bytes_per_s``, ....

    UsageError for a field that is missing, unknown, of the wrong type or negative, and
    if the tree is deeper than `LEVELS`.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise UsageError("a fabric node must be an object with a 'name'")
    name = data["name"]
    if not name.isprintable() or len(name) > LONGEST_NAME:
        raise UsageError(f"group: {shown(name)} is not a group's name")
    if unknown := set(data) - _FIELDS:
        raise UsageError(
            f"fabric node {name!r}: unknown field {sorted(unknown)[0]!r} "
            f"(known: {', '.join(sorted(_FIELDS))})"
        )
    if depth > LEVELS:
        raise UsageError(f"fabric node {name!r}: more than {LEVELS} levels")
    children = data.get("children", ())
    if not isinstance(children, (list, tuple)):
        raise UsageError(f"fabric node {name!r}: 'children' must be a list")
    up = _number(data, "uplink_bytes_per_s")
    down = _number(data, "downlink_bytes_per_s")
    return Node(
        name=name,
        children=tuple(node_from_dict(child, depth + 1) for child in children),
        uplink_bytes_per_s=up,
        # One figure for both directions is what most people know.
        downlink_bytes_per_s=down if "downlink_bytes_per_s" in data else up,
        latency_s=_number(data, "latency_s"),
    )


def _node_to_dict(node: Node) -> dict[str, Any]:
    data: dict[str, Any] = {"name": node.name}
    for key in ("uplink_bytes_per_s", "downlink_bytes_per_s", "latency_s"):
        data[key] = _null(getattr(node, key))
    if node.children:
        data["children"] = [_node_to_dict(child) for child in node.children]
    return data


def _share(data: Mapping[str, Any], key: str) -> float:
    value = _number(data, key)
    if value > 1.0:
        raise UsageError(f"{key!r} of a fabric must be from 0 to 1, not {value!r}")
    return value


def _number(data: Mapping[str, Any], key: str) -> float:
    value = data.get(key)
    if value is None:
        return math.nan
    bad = isinstance(value, bool) or not isinstance(value, (int, float))
    # A link of no capacity would divide by zero; who does not know it leaves it out.
    least = sys.float_info.min if key.endswith("_bytes_per_s") else 0.0
    if bad or not least <= value <= sys.float_info.max:
        wanted = "above 0" if least else "of 0 or more"
        raise UsageError(
            f"fabric node {data.get('name', 'core')!r}: {key!r} must be a number "
            f"{wanted}, not {value!r}"
        )
    return float(value)


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value


MEGABIT = 1e6 / 8.0
"""Bytes/s of what ``LinkSpeed`` counts here; Slurm itself does not care."""

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def topology_conf(fabric: Fabric) -> str:
    """Return the lines of a topology.conf: a switch for each group.

    Hosts beside groups get a switch of their own. Groups whose names Slurm
    would not read, or that share one, are named by number. ``LinkSpeed`` is
    the rate towards the core in Mbit/s, where known.
    """
    taken: set[str] = set()

    def name_of(node: Node) -> str:
        own = [node.name] if _PLAIN.fullmatch(node.name) else []
        names = chain(own, (f"switch.{number}" for number in count(1)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        return name

    def lines(node: Node, name: str) -> Iterator[str]:
        inner = [child for child in node.children if child.children]
        hosts = [child.name for child in node.children if not child.children]
        named = [(child, name_of(child)) for child in inner]
        if hosts and inner:
            lone = Node("", tuple(map(Node, hosts)))
            named.append((lone, name_of(lone)))
        for child, below in named:
            yield from lines(child, below)
        kind, names = (
            ("Switches", [below for _, below in named]) if inner else ("Nodes", hosts)
        )
        yield f"SwitchName={name} {kind}={','.join(names)}{_speed(node)}"

    # One host alone is a root without children.
    root = fabric.root if fabric.root.children else Node("core", (fabric.root,))
    return "".join(f"{line}\n" for line in lines(root, name_of(root)))


def _speed(node: Node) -> str:
    rate = node.uplink_bytes_per_s
    return "" if math.isnan(rate) else f" LinkSpeed={max(round(rate / MEGABIT), 1)}"
