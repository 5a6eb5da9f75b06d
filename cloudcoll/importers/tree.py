"""``import fabric``: a JSON tree with capacities."""

from __future__ import annotations

import os

from cloudcoll.errors import UsageError
from cloudcoll.hosts.names import check_host
from cloudcoll.importers.places import collapsed, imported
from cloudcoll.importers.source import group_name, read_json
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.jsonform import root_from_dict
from cloudcoll.network.tree import Node


def read_tree(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read a tree of ``name``, ``children``, ``uplink_bytes_per_s``, ``latency_s``.

    The fields are those of `cloudcoll.network.jsonform`; leaves are hosts.

    Raises
    ------
    UsageError
        The file is not such a tree; the message names it.
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
