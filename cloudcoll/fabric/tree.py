"""The fabric: hosts in groups in groups, every link with its capacity.

A leaf is a host. Each node but the root has one full-duplex link to its
parent: the NIC for a host, the uplink for a group. What a pair of hosts
shares with another pair is the links that both paths cross.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cloudcoll.errors import UsageError

MAX_DEPTH = 32
"""Levels a tree may have; a guard against nesting bombs in input files."""

_FIELDS = {
    "name",
    "children",
    "uplink_bytes_per_s",
    "downlink_bytes_per_s",
    "latency_s",
}


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

    member: npt.NDArray[np.int64]
    up: npt.NDArray[np.float64]
    down: npt.NDArray[np.float64]
    latency: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fabric:
    """The tree of a set of hosts.

    Attributes
    ----------
    root : Node
        The core; its own link fields mean nothing.
    origin : str
        ``measured``, ``labels`` or ``synthetic``.
    holdout_error : float
        Median relative error on measurements kept out of the fit; NaN where
        none were.
    warnings : tuple of str
        Why, and in what, the model is not to be trusted.
    """

    root: Node
    origin: str = "measured"
    holdout_error: float = math.nan
    warnings: tuple[str, ...] = ()
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = self.hosts
        index = {name: position for position, name in enumerate(names)}
        if len(index) != len(names):
            twice = next(n for i, n in enumerate(names) if index[n] != i)
            raise UsageError(f"host {twice!r} stands twice in the fabric")
        object.__setattr__(self, "_index", index)

    @property
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

    def rtt(self, node: Node) -> float:
        """Seconds of round trip between hosts of two children of `node`.

        Twice the sum of the median one-way latencies of the two legs; NaN for
        less than two children, or where no latency is known.
        """
        legs = sorted(_depth_latency(child) for child in node.children)
        if len(legs) < 2 or not _has_latency(node):
            return math.nan
        middle = legs[len(legs) // 2]
        return 4.0 * middle

    def links(self) -> Links:
        """Compile to arrays; host columns are in the order of `hosts`."""
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

        def prune(node: Node) -> Node | None:
            if not node.children:
                return node if node.name in wanted else None
            kept = tuple(child for child in map(prune, node.children) if child)
            return replace(node, children=kept) if kept else None

        root = prune(self.root)
        if root is None:
            raise UsageError("no hosts were asked for")
        return replace(self, root=root)

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

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as JSON-ready values; `from_dict` reads it back."""
        return {
            "origin": self.origin,
            "holdout_error": _null(self.holdout_error),
            "warnings": list(self.warnings),
            "root": _node_to_dict(self.root),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fabric:
        """Build a fabric from `to_dict`'s form.

        Raises
        ------
        UsageError
            A field is missing, unknown or of the wrong type.
        """
        if not isinstance(data, Mapping) or not isinstance(
            data.get("warnings", []), list
        ):
            raise UsageError("a fabric must be an object with a 'root' node")
        return cls(
            root=node_from_dict(data.get("root", {})),
            origin=str(data.get("origin", "measured")),
            holdout_error=_number(data, "holdout_error"),
            warnings=tuple(map(str, data.get("warnings", []))),
        )


def flat(hosts: tuple[str, ...], origin: str = "measured") -> Fabric:
    """Return the fabric that knows nothing: every host on one switch."""
    return Fabric(Node("core", tuple(Node(name) for name in hosts)), origin=origin)


def node_from_dict(data: object, depth: int = 0) -> Node:
    """Build a node from ``name``, ``children``, ``uplink_bytes_per_s``, ....

    Raises
    ------
    UsageError
        A field is missing, unknown, of the wrong type, negative, or the tree
        is deeper than `MAX_DEPTH`.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
        raise UsageError("a fabric node must be an object with a 'name'")
    name = data["name"]
    if unknown := set(data) - _FIELDS:
        raise UsageError(
            f"fabric node {name!r}: unknown field {sorted(unknown)[0]!r} "
            f"(known: {', '.join(sorted(_FIELDS))})"
        )
    if depth > MAX_DEPTH:
        raise UsageError(f"fabric node {name!r}: more than {MAX_DEPTH} levels")
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
    below = sorted(_depth_latency(child) for child in node.children)
    return _or(node.latency_s, 0.0) + (below[len(below) // 2] if below else 0.0)


def _has_latency(node: Node) -> bool:
    """Return whether any link below `node` has a known latency."""
    return any(
        not math.isnan(child.latency_s) or _has_latency(child)
        for child in node.children
    )


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


def _or(value: float, fallback: float) -> float:
    return fallback if math.isnan(value) else value


def _null(value: float) -> float | None:
    return None if math.isnan(value) else value
