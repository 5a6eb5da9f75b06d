"""Platforms of the scale study: trees of switches, a fat tree, a dragonfly.

Each is a file for SimGrid and a fabric for CloudColl. Of a tree both say the same.
SimGrid routes in its own fat tree and dragonfly (D-mod-k; minimal) over single cables;
the fabric has one uplink of their sum for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from cloudcoll.network.tree import Fabric, Node

T = TypeVar("T")

NIC = 1.25e9
HOP = 5e-6
"""Seconds of a cable."""
LEAF = {64: 8, 256: 16, 1024: 32}
"""Hosts of a switch of the fat tree, and its leaf switches; half as many spines."""
DRAGONFLY = {64: (4, 2, 4, 2), 256: (8, 2, 8, 2), 1024: (8, 4, 8, 4)}
"""Groups, chassis of a group, routers of a chassis, hosts of a router. SimGrid 3.32
ends in a fault where a chassis has fewer routers than there are groups."""
GLOBAL = 4
"""Cables between any two groups of the dragonfly."""


class Platform(NamedTuple):
    """A network, as SimGrid and as CloudColl know it.

    Attributes
    ----------
    file : Path
        What smpirun takes.
    tree : str
        What `tree.cpp` reads; empty where SimGrid has a topology of its own.
    fabric : Fabric
    node : dict of str to str
        SimGrid's name of each host.
    """

    file: Path
    tree: str
    fabric: Fabric
    node: dict[str, str]


def platform(kind: str, hosts: int, folder: Path) -> Platform:
    """Return a platform: ``2:1`` and the like, ``fat-tree`` or ``dragonfly``."""
    names = [f"vm-{i:04d}" for i in np.random.default_rng(hosts).permutation(hosts)]
    if ":" not in kind:
        build = {"fat-tree": fat_tree, "dragonfly": dragonfly}[kind]
        topology, root = build(names)
        file = folder / f"{kind}-{hosts}.xml"
        file.write_text(cluster(hosts, topology))
        node = {name: f"node-{i}" for i, name in enumerate(names)}
        return Platform(file, "", Fabric(root, origin="synthetic"), node)
    fabric = racks(names, float(kind.partition(":")[0]))
    listed = folder / f"tree-{kind.replace(':', '-')}-{hosts}.txt"
    listed.write_text("\n".join(lines(fabric.root)))
    node = {name: name for name in names}
    return Platform(folder / "tree.so", str(listed), fabric, node)


def cluster(hosts: int, topology: str) -> str:
    """Return SimGrid's description of one of its own topologies."""
    return (
        '<?xml version="1.0"?>\n'
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        '<platform version="4.1">\n'
        f'<cluster id="all" prefix="node-" suffix="" radical="0-{hosts - 1}" '
        f'speed="1Gf" bw="{NIC}Bps" lat="{HOP}s" {topology}/>\n'
        "</platform>\n"
    )


def group(name: str, children: list[Node], rate: float, latency: float) -> Node:
    return Node(name, tuple(children), rate, rate, latency)


def cards(names: list[str]) -> list[Node]:
    return [Node(name, (), NIC, NIC, HOP) for name in names]


def cut(items: Sequence[T], size: int) -> list[list[T]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def fat_tree(names: list[str]) -> tuple[str, Node]:
    """Leaf switches at 2:1 below spines."""
    size = LEAF[len(names)]
    topology = (
        f'topology="FAT_TREE" topo_parameters="2;{size},{size};1,{size // 2};1,1"'
    )
    leaves = [
        group(f"leaf-{i}", cards(some), size / 2 * NIC, HOP)
        for i, some in enumerate(cut(names, size))
    ]
    return topology, group("spines", leaves, np.nan, np.nan)


def dragonfly(names: list[str]) -> tuple[str, Node]:
    """Routers, chassis and groups; in a group every two routers are a hop or two apart.

    Few cables join a group with the others: these are its uplink.
    """
    groups, chassis, routers, each = DRAGONFLY[len(names)]
    topology = (
        f'topology="DRAGONFLY" topo_parameters="{groups},{GLOBAL};{chassis},1;'
        f'{routers},1;{each}"'
    )
    near = (routers - 1 + chassis - 1) * NIC
    far = GLOBAL * (groups - 1) * NIC
    blades = [
        group(f"router-{i}", cards(some), near, HOP)
        for i, some in enumerate(cut(names, each))
    ]
    parts = [
        group(f"group-{i}", some, far, HOP)
        for i, some in enumerate(cut(blades, chassis * routers))
    ]
    return topology, group("all", parts, np.nan, np.nan)


def racks(names: list[str], ratio: float) -> Fabric:
    """Racks of 5 to 11 hosts at a ratio, in pods of four racks at 2:1.

    The ratio is that of eight hosts' cards to the uplink.
    """
    generator = np.random.default_rng([len(names), int(ratio)])
    sizes = np.zeros(len(names) // 8, dtype=np.int64)
    while sizes.sum() != len(names):
        sizes = generator.integers(5, 11, len(sizes), endpoint=True)
    ends = np.cumsum(sizes)
    uplink = 8 * NIC / ratio
    all_racks = [
        group(f"rack-{i}", cards(names[end - size : end]), uplink, 2 * HOP)
        for i, (end, size) in enumerate(zip(ends.tolist(), sizes.tolist(), strict=True))
    ]
    pods = [
        group(f"pod-{i}", some, 2 * uplink, 6 * HOP)
        for i, some in enumerate(cut(all_racks, 4))
    ]
    return Fabric(group("core", pods, np.nan, np.nan), origin="synthetic")


def lines(root: Node) -> list[str]:
    """Return the nodes of a tree as `tree.cpp` reads them."""
    found, waiting = [f"{root.name} -1 0 0 0"], [(root, 0)]
    while waiting:
        parent, number = waiting.pop()
        for child in parent.children:
            waiting.append((child, len(found)))
            kind = 2 if child.children else 1
            if child.children and child.children[0].children:
                kind = 0
            link = f"{child.uplink_bytes_per_s!r} {child.latency_s!r}"
            found.append(f"{child.name} {number} {kind} {link}")
    return found
