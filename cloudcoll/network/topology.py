"""A fabric as Slurm's topology.conf: what ``import slurm`` reads.

Source: topology.conf(5) of Slurm 22.05, the tree plug-in. A switch has hosts
or switches below it, not both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import chain, count

from cloudcoll.network.tree import Fabric, Node

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
