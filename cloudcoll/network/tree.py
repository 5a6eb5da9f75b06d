"""The fabric: hosts in groups in groups, every link with its capacity.

A leaf is a host. Each node but the root has one full-duplex link to its
parent: the NIC for a host, the uplink for a group. What a pair of hosts
shares with another pair is the links that both paths cross. `Links` has them as
arrays, which the cost model and the planted networks compute with; `Pairs` has what
links do not tell of a pair.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.errors import UsageError
from cloudcoll.hosts.names import check_host

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True)
class Node:
    """A host, or a group of nodes, with the link to its parent.

    Attributes
    ----------
    name : str
        Host name, or a name for the group.
    children : tuple of Node
        Empty for a host.
    uplink_bytes_per_s, downlink_bytes_per_s : float
        Capacity towards the parent and from it; NaN where not known.
    latency_s : float
        One-way latency that the link adds, in seconds; NaN where not known.
    """

    name: str
    children: tuple[Node, ...] = ()
    uplink_bytes_per_s: float = math.nan
    downlink_bytes_per_s: float = math.nan
    latency_s: float = math.nan

    def leaves(self) -> Iterator[str]:
        """Yield the host names below (or of) this node, left to right."""
        if not self.children:
            yield self.name
        for child in self.children:
            yield from child.leaves()


@dataclass(frozen=True)
class Alternative:
    """Another tree that the same measurements may come from.

    Attributes
    ----------
    share : float
        How likely it is, from 0 to 1.
    """

    share: float
    root: Node


@dataclass(frozen=True)
class Fabric:
    """The tree of a set of hosts.

    Attributes
    ----------
    root : Node
        The core; its own link fields mean nothing.
    origin : str
        ``measured``, ``imported`` (measured or stated elsewhere), ``labels`` or
        ``synthetic``.
    holdout_error : float
        Median relative error on measurements kept out of the fit; NaN where
        none were.
    warnings : tuple of str
        Why, and in what, the model is not to be trusted.
    confidence : float
        How sure the groups of the hosts are, from 0 to 1, or that there are none: see
        `cloudcoll.infer.explain.Explanation`. NaN where that was not looked at.
    alternatives : tuple of Alternative
        What it may be instead, the likeliest first.
    """

    root: Node
    origin: str = "measured"
    holdout_error: float = math.nan
    warnings: tuple[str, ...] = ()
    confidence: float = math.nan
    alternatives: tuple[Alternative, ...] = ()
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = self.hosts
        index = {name: position for position, name in enumerate(names)}
        if len(index) != len(names):
            twice = next(n for i, n in enumerate(names) if index[n] != i)
            raise UsageError(f"host {twice!r} stands twice in the fabric")
        for name in names:
            check_host(name, "a leaf of the fabric")
        object.__setattr__(self, "_index", index)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Host names, left to right: hosts of one group are neighbours."""
        return tuple(self.root.leaves())

    def groups(self) -> list[list[Node]]:
        """Return the groups by level, from the leaves up.

        Level 0 holds the groups whose children are hosts. A node stands one
        level above its highest child; the last level is the root alone.
        """
        levels: dict[int, list[Node]] = {}

        def height(node: Node) -> int:
            if not node.children:
                return 0
            level = 1 + max(height(child) for child in node.children)
            levels.setdefault(level, []).append(node)
            return level

        height(self.root)
        return [levels[level] for level in sorted(levels)]

    def lowest(self) -> list[Node]:
        """Return the groups of hosts alone, but the root."""
        return [node for node in chain(*self.groups()[:1]) if node is not self.root]

    def lowest_groups(self) -> dict[str, str]:
        """Return the name of each host's group; hosts on the core have none."""
        return {host: node.name for node in self.lowest() for host in node.leaves()}

    def racks(self) -> Ints:
        """Return for each host, in the order of `hosts`, the number of its switch."""
        rack = np.zeros(len(self.hosts), dtype=np.int64)
        for number, group in enumerate(chain.from_iterable(self.groups())):
            for child in group.children:
                if not child.children:
                    rack[self.position(child.name)] = number
        return rack

    def uplinks(self) -> list[Node]:
        """Return the groups but the root, which all have a link to another one."""
        groups = chain.from_iterable(self.groups())
        return [node for node in groups if node is not self.root]

    def shares_links(self) -> bool:
        """Return whether the rate of any group's link is known."""
        return not all(
            math.isnan(rate)
            for node in self.uplinks()
            for rate in (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
        )

    def rtt(self, node: Node) -> float:
        """Seconds of round trip between hosts of two children of `node`.

        There and back on two legs, of the median one-way latency; NaN for less than
        two children, or where no latency is known.
        """
        if len(node.children) < 2 or not _has_latency(node):
            return math.nan
        return 4.0 * _median_latency(node)

    def has_speeds(self) -> bool:
        """Return whether the rate or the latency of any link is known."""

        def known(node: Node) -> bool:
            rates = (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
            return not all(map(math.isnan, (*rates, node.latency_s))) or any(
                map(known, node.children)
            )

        return any(map(known, self.root.children))

    @cached_property
    def links(self) -> Links:
        """All links as arrays; host columns are in the order of `hosts`."""
        paths = list(_paths(self.root))
        depth = max(len(path) for path in paths)
        nodes: dict[int, int] = {}
        up: list[float] = []
        down: list[float] = []
        latency: list[float] = []
        member = np.empty((depth, len(paths)), dtype=np.int64)

        def add(node: Node | None) -> int:
            up.append(_or(node.uplink_bytes_per_s, math.inf) if node else math.inf)
            down.append(_or(node.downlink_bytes_per_s, math.inf) if node else math.inf)
            latency.append(_or(node.latency_s, 0.0) if node else 0.0)
            return len(up) - 1

        for column, path in enumerate(paths):
            for row in range(depth):
                if row < len(path):
                    node = path[row]
                    if id(node) not in nodes:
                        nodes[id(node)] = add(node)
                    member[row, column] = nodes[id(node)]
                else:
                    # A host nearer to the core than others: free, own links.
                    member[row, column] = add(None)
        return Links(member, np.array(up), np.array(down), np.array(latency))

    def to_networkx(self) -> networkx.Graph[str]:
        """Return the tree as a graph, to draw, to compute with and to take along.

        Nodes have ``kind``: ``host`` or ``group``. Edges have ``up_bytes_per_s``,
        ``down_bytes_per_s`` and ``latency_s``, but for what is not known. A group
        that has the name of another node gets a number behind it.

        Examples
        --------
        >>> fabric = Fabric(Node("core", (Node("a", latency_s=1e-5), Node("b"))))
        >>> graph = fabric.to_networkx()
        >>> sorted(graph.edges(data=True))[0]
        ('core', 'a', {'latency_s': 1e-05})
        """
        import networkx

        graph: networkx.Graph[str] = networkx.Graph()
        taken = Counter(self.hosts)

        def add(node: Node) -> str:
            name = node.name
            if node.children:
                while name in taken:
                    taken[node.name] += 1
                    name = f"{node.name}-{taken[node.name]}"
                taken[name] += 1
            graph.add_node(name, kind="group" if node.children else "host")
            for child in node.children:
                facts = {
                    "up_bytes_per_s": child.uplink_bytes_per_s,
                    "down_bytes_per_s": child.downlink_bytes_per_s,
                    "latency_s": child.latency_s,
                }
                known = {key: one for key, one in facts.items() if math.isfinite(one)}
                graph.add_edge(name, add(child), **known)
            return name

        add(self.root)
        return graph

    def restrict(self, names: Iterable[str]) -> Fabric:
        """Return the fabric of these hosts alone.

        Raises
        ------
        UsageError
            One of them is not in the fabric.
        """
        wanted = set(names)
        for name in wanted:
            self.position(name)
        if len(wanted) == len(self._index):
            return self

        def prune(node: Node) -> Node | None:
            if not node.children:
                return node if node.name in wanted else None
            kept = tuple(child for child in map(prune, node.children) if child)
            return replace(node, children=kept) if kept else None

        root = prune(self.root)
        if root is None:
            raise UsageError("no hosts were asked for")
        others = [(other.share, prune(other.root)) for other in self.alternatives]
        alternatives = tuple(Alternative(part, tree) for part, tree in others if tree)
        return replace(self, root=root, alternatives=alternatives)

    def drawn(self) -> list[tuple[float, Fabric]]:
        """Return this fabric and its alternatives with their shares, 1 together."""
        others = [
            (other.share, replace(self, root=other.root, alternatives=()))
            for other in self.alternatives
        ]
        rest = 1.0 - sum(share for share, _ in others)
        return [(max(rest, 0.0), replace(self, alternatives=())), *others]

    def position(self, name: str) -> int:
        """Return the column of host `name` in `links`.

        Raises
        ------
        UsageError
            The fabric has no such host.
        """
        try:
            return self._index[name]
        except KeyError:
            raise UsageError(
                f"host {name!r} is not in the fabric of {len(self._index)} hosts "
                f"({', '.join(list(self._index)[:4])}, ...): probe these hosts first"
            ) from None


def flat(hosts: tuple[str, ...], origin: str = "measured") -> Fabric:
    """Return the fabric that knows nothing: every host on one switch."""
    return Fabric(Node("core", tuple(Node(name) for name in hosts)), origin=origin)


def _paths(root: Node) -> Iterator[list[Node]]:
    """Yield for each host the nodes from below the root down to itself."""

    def walk(node: Node, path: list[Node]) -> Iterator[list[Node]]:
        if not node.children:
            yield path
        for child in node.children:
            yield from walk(child, [*path, child])

    if not root.children:
        yield [root]
    else:
        yield from walk(root, [])


def _depth_latency(node: Node) -> float:
    """Return the median one-way latency from a host of `node` to its parent."""
    below = _median_latency(node) if node.children else 0.0
    return _or(node.latency_s, 0.0) + below


def _median_latency(node: Node) -> float:
    return float(np.median([_depth_latency(child) for child in node.children]))


def _has_latency(node: Node) -> bool:
    """Return whether any link below `node` has a known latency."""
    return any(
        not math.isnan(child.latency_s) or _has_latency(child)
        for child in node.children
    )


def _or(value: float, fallback: float) -> float:
    return fallback if math.isnan(value) else value


@dataclass(frozen=True)
class Links:
    """A fabric as arrays: what the cost model computes with.

    Attributes
    ----------
    member : ndarray of int64, shape (depth, hosts)
        ``member[d, h]`` is the link that joins host ``h``'s ancestor at depth
        ``d + 1`` to depth ``d``. A message from ``a`` to ``b`` goes up link
        ``member[d, a]`` and down ``member[d, b]`` wherever the two differ.
    up, down : ndarray of float64, shape (links,)
        Capacity in bytes/s; ``inf`` where not known.
    latency : ndarray of float64, shape (links,)
        One-way seconds; 0 where not known.
    """

    member: Ints
    up: Floats
    down: Floats
    latency: Floats

    def pair_rtt(self) -> Floats:
        """Return the round trip seconds of each pair, shape (hosts, hosts)."""
        trips = np.zeros((self.member.shape[1],) * 2)
        for row in self.member:
            legs = self.latency[row]
            ways = np.add.outer(legs, legs)
            ways[row[:, None] == row] = 0.0
            trips += ways
        return 2.0 * trips

    def trips(self, a: Ints, b: Ints) -> Floats:
        """Return the round trip seconds between some pairs, shape (pairs,)."""
        apart = self.member[:, a] != self.member[:, b]
        legs = self.latency[self.member[:, a]] + self.latency[self.member[:, b]]
        seconds: Floats = 2.0 * np.where(apart, legs, 0.0).sum(axis=0)
        return seconds

    def pair_s_per_byte(self) -> Floats:
        """Return 1 / the slowest link between each two, shape (hosts, hosts).

        ``[src, dst]`` in s/byte; 0 where no rate is known.
        """
        slowest = np.zeros((self.member.shape[1],) * 2)
        for row in self.member:
            ways = np.maximum.outer(1.0 / self.up[row], 1.0 / self.down[row])
            ways[row[:, None] == row] = 0.0
            np.maximum(slowest, ways, out=slowest)
        return slowest


@dataclass(frozen=True)
class Pairs:
    """Figures of pairs of hosts that the links between them do not give.

    Attributes
    ----------
    alpha : ndarray of float64, shape (hosts, hosts)
        One-way seconds ``[src, dst]`` by position in the fabric, in place of
        the path's latency.
    s_per_byte : ndarray of float64, shape (hosts, hosts)
        Seconds a byte takes from one to the other when they are alone.

    Raises
    ------
    ValueError
        They are of different shapes, or a value is negative or not a number.
    """

    alpha: Floats
    s_per_byte: Floats

    def __post_init__(self) -> None:
        hosts = len(self.alpha)
        for values in (self.alpha, self.s_per_byte):
            if values.shape != (hosts, hosts):
                raise ValueError(f"{values.shape} values for the pairs of {hosts}")
            if not (np.isfinite(values) & (values >= 0)).all():
                raise ValueError("pairs need figures of 0 or more: fill in what is NaN")

    def over(self, links: Links) -> Pairs:
        """Return the same, no pair faster than its links; a host with itself is free.

        Raises
        ------
        ValueError
            The links are of another number of hosts.
        """
        apart = 1.0 - np.eye(len(self.alpha))
        slowest = links.pair_s_per_byte()
        if slowest.shape != apart.shape:
            raise ValueError(f"{len(slowest)} hosts, but pairs of {len(apart)}")
        return Pairs(self.alpha * apart, np.maximum(self.s_per_byte, slowest) * apart)

    def seconds(self, size: float) -> Floats:
        """Return the seconds of a message of `size` bytes, shape (hosts, hosts).

        What a search for rings works on.
        """
        return self.alpha + size * self.s_per_byte
