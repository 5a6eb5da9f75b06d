"""Files of other programs: read within bounds, and made a tree of hosts.

They are refused in one line. From where each host stands comes a fabric, and the
snapshot that carries it.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cloudcoll.errors import UsageError
from cloudcoll.files import bounded, parse_json
from cloudcoll.files.limits import LEVELS, STORED_HOSTS, TEXT_BYTES
from cloudcoll.hosts import Host
from cloudcoll.hosts.names import shown
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric, Node

MAX_BYTES = TEXT_BYTES


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file, at most `MAX_BYTES`."""
    try:
        return bounded(path, MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"{path}: {error}: import a part of it") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Return a file's text, UTF-8 with or without a byte order mark."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not text") from None


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text one by one: all at once are many small objects."""
    for line in io.StringIO(text, "\n"):
        yield line.removesuffix("\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file."""
    return parse_json(read_text(path), str(path))


def group_name(value: object, where: str) -> str:
    """Return `value` if it can name a group: printable text without a blank end.

    Else the error starts with `where`.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UsageError(f"{where}: {shown(value)} is not a group's name")
    return value.strip()


def text_items(value: object) -> dict[str, str]:
    """Return the printable text entries of a JSON object, nothing of anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(item, str) and f"{key}{item}".isprintable()
    }


NO_SPEEDS = (
    "groups without speeds: orders are judged by assumed ones until these hosts are "
    "measured with 'cloudcoll probe --labels'"
)


def tree_of_places(places: Mapping[str, Sequence[str]]) -> Node:
    """Return the tree in which each host stands below the groups it names.

    From the core down; hosts that name no group hang on the core. Groups of one name
    below different groups differ. UsageError for more levels than a fabric may have.
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
    """Return the snapshot that carries a tree read from `path`, kept as metadata.

    `hosts` are names in the order given, the tree's by default; `labels` what the
    source says of each; `origin`, of the fabric, is ``labels`` or ``imported``.
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
