"""``import topograph``: the JSON of topograph's ``graph`` engine.

Source: docs.nvidia.com/topograph/engines/graph. Each instance lists its
switches, the one next to it first.
"""

from __future__ import annotations

import os

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.places import imported, tree_of_places
from cloudcoll.importers.source import group_name, read_json, text_items
from cloudcoll.measured.snapshot import NetworkSnapshot


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
