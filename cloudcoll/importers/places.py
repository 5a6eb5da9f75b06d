"""From where each host stands to a fabric, and to the snapshot that carries it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import LEVELS, STORED_HOSTS
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node

NO_SPEEDS = (
    "groups without speeds: orders are judged by assumed ones until these hosts are "
    "measured with 'cloudcoll probe --labels'"
)


def tree_of_places(places: Mapping[str, Sequence[str]]) -> Node:
    """Return the tree in which each host stands below the groups it names.

    Parameters
    ----------
    places : mapping of str to sequence of str
        Host name to its groups from the core down; hosts that name no group
        hang on the core. Groups of one name below different groups differ.

    Raises
    ------
    UsageError
        More levels than a fabric may have.
    """
    for host, place in places.items():
        if len(place) > LEVELS - 2:
            raise UsageError(
                f"host {host!r} stands below {len(place)} groups, a fabric has at most "
                f"{LEVELS - 2}"
            )
    return collapsed(_group("core", [(host, tuple(p)) for host, p in places.items()]))


def collapsed(root: Node) -> Node:
    """Return the tree without groups of one: those say nothing of who shares.

    What was left standing takes over the narrower of the two links and the
    latency of both.
    """
    inner = _collapsed(root)
    return replace(inner if inner.children else Node("core", (inner,)), name="core")


def imported(
    root: Node,
    path: str | os.PathLike[str],
    format: str,
    *,
    hosts: Iterable[str] = (),
    labels: Mapping[str, Mapping[str, str]] | None = None,
    origin: str = "labels",
) -> NetworkSnapshot:
    """Return the snapshot that carries a tree read from `path`.

    Parameters
    ----------
    root : Node
    path, format : str
        Where it comes from, kept as metadata.
    hosts : iterable of str
        Names in the order given; the tree's by default.
    labels : mapping of str to mapping, optional
        Host name to what the source says of it.
    origin : str
        Of the fabric: ``labels`` or ``imported``.

    Raises
    ------
    UsageError
        A host stands twice, there is none, or there are too many.
    """
    fabric = Fabric(root, origin=origin)
    names = tuple(hosts) or fabric.hosts
    if len(names) > STORED_HOSTS:
        raise UsageError(f"{path}: {len(names)} hosts, at most {STORED_HOSTS} are read")
    if not fabric.has_speeds():
        fabric = replace(fabric, warnings=(NO_SPEEDS,))
    return NetworkSnapshot(
        tuple(Host(name, labels=dict((labels or {}).get(name, {}))) for name in names),
        fabric=fabric,
        metadata=provenance(path, format),
    )


def provenance(path: str | os.PathLike[str], format: str) -> dict[str, str]:
    """Return the metadata that tells an imported snapshot from a measured one."""
    # A path of undecodable bytes could not be printed later.
    source = os.fspath(path).encode("utf-8", "replace").decode()
    return {"origin": "imported", "format": format, "source": source}


def _group(name: str, members: list[tuple[str, tuple[str, ...]]]) -> Node:
    below: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    lone = []
    for host, place in members:
        if place:
            below.setdefault(place[0], []).append((host, place[1:]))
        else:
            lone.append(Node(host))
    groups = (_group(inner, hosts) for inner, hosts in below.items())
    return Node(name, (*groups, *lone))


def _collapsed(node: Node) -> Node:
    children = tuple(map(_collapsed, node.children))
    if len(children) != 1:
        return replace(node, children=children)
    (only,) = children
    return replace(
        only,
        uplink_bytes_per_s=_fmin(only.uplink_bytes_per_s, node.uplink_bytes_per_s),
        downlink_bytes_per_s=_fmin(
            only.downlink_bytes_per_s, node.downlink_bytes_per_s
        ),
        latency_s=_sum(only.latency_s, node.latency_s),
    )


def _fmin(a: float, b: float) -> float:
    return float(np.fmin(a, b))


def _sum(a: float, b: float) -> float:
    return b if math.isnan(a) else a if math.isnan(b) else a + b
