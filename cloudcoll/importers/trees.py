"""Trees of hosts as they stand: ``import fabric``, ``import topograph``.

``fabric`` is our JSON, with capacities. ``topograph`` is the JSON of topograph's
``graph`` engine (docs.nvidia.com/topograph/engines/graph): each instance lists its
switches, the one next to it first.
"""

from __future__ import annotations

import os

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.places import collapsed, imported, tree_of_places
from cloudcoll.importers.source import group_name, read_json, text_items
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import root_from_dict
from cloudcoll.network.tree import Node


def read_topograph(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read ``{"instances": [{"id": ..., "network_layers": [...]}, ...]}``.

    Hosts are named by their ``id``; ``type`` and the text entries of
    ``labels`` or, in older versions, ``attributes`` become their labels. An
    accelerator's domain is such a label and no group: it is another network.

    Raises
    ------
    UsageError
        The file is not such a graph; the message names it.
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
