"""From a provider's ids of machines to the names that launchers use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.source import lines_of, read_text
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Node


def read_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read lines of an id and a host name, parted by blanks or a comma.

    Raises
    ------
    UsageError
        A line that is not two words, or an id or a name that stands twice.
    """
    names: dict[str, str] = {}
    taken: set[str] = set()
    for number, raw in enumerate(lines_of(read_text(path)), start=1):
        words = raw.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        where = f"{path}:{number}"
        if len(words) != 2:
            raise UsageError(f"{where}: {shown(raw)} is not 'ID HOST'")
        key, name = words[0], check_host(words[1], where)
        if key in names or name in taken:
            raise UsageError(f"{where}: {shown(raw)}: one of the two came before")
        if len(names) == STORED_HOSTS:
            raise UsageError(f"{where}: more than {STORED_HOSTS} hosts")
        names[key] = name
        taken.add(name)
    return names


def renamed(snapshot: NetworkSnapshot, names: Mapping[str, str]) -> NetworkSnapshot:
    """Return the snapshot with its hosts called as `names` says.

    Raises
    ------
    UsageError
        A host of the snapshot has no other name.
    """
    for host in snapshot.hosts:
        if host.name not in names:
            raise UsageError(
                f"host {host.name!r} has no line in the list of names: add it"
            )

    def rename(node: Node) -> Node:
        if not node.children:
            return replace(node, name=names[node.name])
        return replace(node, children=tuple(map(rename, node.children)))

    fabric = snapshot.fabric
    return replace(
        snapshot,
        hosts=tuple(
            replace(host, name=names[host.name], address="") for host in snapshot.hosts
        ),
        fabric=replace(fabric, root=rename(fabric.root)) if fabric else None,
    )
