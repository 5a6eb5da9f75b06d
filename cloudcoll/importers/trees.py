"""Trees of hosts as they stand: ``import fabric``, ``topograph`` and ``slurm``.

``fabric`` is our JSON, with capacities. ``topograph`` is the JSON of topograph's
``graph`` engine (docs.nvidia.com/topograph/engines/graph): each instance lists its
switches, the one next to it first. ``slurm`` is a topology.conf(5) of Slurm's tree and
block plug-ins: names of parameters are case-insensitive, ``#`` starts a comment, a
backslash continues a line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import GROUPS, LEVELS, STORED_HOSTS
from cloudcoll.hosts.formats import expand
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.reading import (
    collapsed,
    group_name,
    imported,
    lines_of,
    read_json,
    read_text,
    text_items,
    tree_of_places,
)
from cloudcoll.importers.table import rate_unit
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import root_from_dict
from cloudcoll.network.tree import Node


def read_topograph(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read ``{"instances": [{"id": ..., "network_layers": [...]}, ...]}``.

    Hosts are named by their ``id``; ``type`` and the text entries of
    ``labels`` or, in older versions, ``attributes`` become their labels. An
    accelerator's domain is such a label and no group: it is another network.
    """
    data = read_json(path)
    instances = data.get("instances") if isinstance(data, dict) else None
    if not isinstance(instances, list) or not instances:
        raise UsageError(
            f"{path}: no 'instances' in it: request topograph's engine 'graph'"
        )
    if len(instances) > STORED_HOSTS:
        raise UsageError(f"{path}: more than {STORED_HOSTS} hosts: import a part of it")
    places: dict[str, list[str]] = {}
    labels: dict[str, dict[str, str]] = {}
    for number, instance in enumerate(instances):
        where = f"{path}: instance {number}"
        if not isinstance(instance, dict):
            raise UsageError(f"{where}: {shown(instance)} is not an object")
        name = check_host(instance.get("id"), where)
        if name in places:
            raise UsageError(f"{where}: {name!r} was listed before")
        layers = instance.get("network_layers") or []
        if not isinstance(layers, list):
            raise UsageError(f"{where}: 'network_layers' is not a list")
        places[name] = [group_name(layer, where) for layer in reversed(layers)]
        labels[name] = {
            **text_items({"type": instance.get("type")}),
            **text_items(instance.get("attributes")),
            **text_items(instance.get("labels")),
        }
    return imported(
        tree_of_places(places), path, "topograph", hosts=places, labels=labels
    )


def read_tree(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read a tree of ``name``, ``children``, ``uplink_bytes_per_s``, ``latency_s``.

    The fields are those of `cloudcoll.network.forms`; leaves are hosts.
    """
    data = read_json(path)
    if isinstance(data, dict) and "root" in data:
        # What 'show --json' prints as its 'fabric' comes back in as it is.
        data = data["root"]
    try:
        root = root_from_dict(data)
        _check(root)
        # Collapsed only so that a root without children gets its core.
        whole = root if root.children else collapsed(root)
        return imported(whole, path, "fabric", origin="imported")
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _check(node: Node) -> None:
    if not node.children:
        check_host(node.name, "leaf")
        return
    group_name(node.name, "group")
    for child in node.children:
        _check(child)


_FIELD = re.compile(r"(\w+)\s*=\s*(\S+)")
_KNOWN = {
    "switchname": {"switchname", "switches", "nodes", "linkspeed"},
    "blockname": {"blockname", "nodes"},
    "blocksizes": {"blocksizes"},
}
"""First parameter of a line -> what the line may say."""


@dataclass(frozen=True)
class _Switch:
    """A line: a switch, or a block, which is a switch with nodes only."""

    name: str
    where: str
    switches: tuple[str, ...]
    nodes: tuple[str, ...]
    speed: float | None


def read_slurm(path: str | os.PathLike[str], unit: str = "") -> NetworkSnapshot:
    """Read a topology.conf.

    Its ``LinkSpeed`` counts in `unit`, such as ``Gbit/s``. Slurm leaves that open, so
    without it no capacity is read.
    """
    scale = rate_unit(unit) if unit else 0.0
    switches: dict[str, _Switch] = {}
    named = 0
    for where, fields in _lines(read_text(path), str(path)):
        if "blocksizes" in fields:
            # How Slurm packs jobs into blocks says nothing more of the network.
            continue
        switch = _switch(where, fields)
        named += len(switch.nodes) + len(switch.switches)
        if len(switches) >= GROUPS or named > STORED_HOSTS + GROUPS:
            raise UsageError(
                f"{where}: more than {GROUPS} switches or {STORED_HOSTS} nodes: import "
                "a part of it"
            )
        if before := switches.get(switch.name):
            raise UsageError(
                f"{where}: {shown(switch.name)} was defined before, at {before.where}"
            )
        switches[switch.name] = switch
    hosts = _hosts(switches)
    if not hosts:
        raise UsageError(
            f"{path}: no nodes in it; example: SwitchName=s1 Nodes=node[01-16]"
        )
    tops = _tops(switches)
    nodes = [_node(top, switches, scale) for top in tops]
    try:
        root = collapsed(Node("core", tuple(node for node in nodes if node)))
        origin = "imported" if scale else "labels"
        return imported(root, path, "slurm", hosts=hosts, origin=origin)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _lines(text: str, source: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the place and the parameters of each line that says something."""
    joined, first = "", 0
    for number, raw in enumerate(lines_of(text), start=1):
        first = first or number
        line = raw.partition("#")[0].strip()
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        joined, first, whole, start = "", 0, joined + line, first
        if whole.strip():
            where = f"{source}:{start}"
            yield where, _fields(whole, where)
    if joined.strip():
        raise UsageError(f"{source}:{first}: the last line is continued by nothing")


def _fields(line: str, where: str) -> dict[str, str]:
    pairs = _FIELD.findall(line)
    if _FIELD.sub("", line).strip() or not pairs:
        raise UsageError(
            f"{where}: {shown(line)} is not a line of topology.conf; example: "
            "SwitchName=s1 Nodes=node[01-16]"
        )
    fields = {key.lower(): value for key, value in pairs}
    known = _KNOWN.get(pairs[0][0].lower(), set())
    wrong = next((key for key, _ in pairs if key.lower() not in known), None)
    if wrong or len(fields) != len(pairs):
        raise UsageError(
            f"{where}: parameter {shown(wrong or line)} is not expected here (known: "
            "SwitchName Switches Nodes LinkSpeed, BlockName Nodes, BlockSizes)"
        )
    return fields


def _switch(where: str, fields: Mapping[str, str]) -> _Switch:
    speed = fields.get("linkspeed")
    if speed is not None and not re.fullmatch(r"[0-9]{1,18}", speed):
        raise UsageError(f"{where}: LinkSpeed={shown(speed)} is not a whole number")
    try:
        below = expand(fields["switches"]) if "switches" in fields else ()
        nodes = expand(fields["nodes"]) if "nodes" in fields else ()
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    return _Switch(
        name=group_name(fields.get("switchname") or fields.get("blockname"), where),
        where=where,
        switches=tuple(group_name(name, where) for name in below),
        nodes=tuple(check_host(name, where) for name in nodes),
        speed=float(speed) if speed and int(speed) else None,
    )


def _hosts(switches: Mapping[str, _Switch]) -> list[str]:
    """Return the nodes in the file's order, each on one switch."""
    home: dict[str, _Switch] = {}
    for switch in switches.values():
        for node in switch.nodes:
            if before := home.get(node):
                raise UsageError(
                    f"{switch.where}: node {node!r} also hangs on {before.name}, at "
                    f"{before.where}: keep it on one switch"
                )
            home[node] = switch
    return list(home)


def _tops(switches: Mapping[str, _Switch]) -> list[_Switch]:
    """Return the switches without a parent, after a look at all the others."""
    parent: dict[str, _Switch] = {}
    for switch in switches.values():
        for name in switch.switches:
            if name not in switches:
                raise UsageError(f"{switch.where}: switch {shown(name)} is not defined")
            if name in parent:
                raise UsageError(
                    f"{switch.where}: switch {shown(name)} hangs on another one "
                    f"already, at {parent[name].where}: a fabric is a tree"
                )
            parent[name] = switch
    for switch in switches.values():
        above, steps = switch, 0
        while above.name in parent and steps <= LEVELS:
            above, steps = parent[above.name], steps + 1
        if steps > LEVELS - 2:
            raise UsageError(
                f"{switch.where}: switch {shown(switch.name)} has itself, or more than "
                f"{LEVELS - 2} switches, above it"
            )
    return [switch for name, switch in switches.items() if name not in parent]


def _node(
    switch: _Switch, switches: Mapping[str, _Switch], scale: float
) -> Node | None:
    """Return the group of a switch, None if no node is below it."""
    below = (_node(switches[name], switches, scale) for name in switch.switches)
    children = (*(node for node in below if node), *map(Node, switch.nodes))
    if not children:
        return None
    if not scale or switch.speed is None:
        return Node(switch.name, children)
    rate = switch.speed * scale
    return Node(switch.name, children, rate, rate)
