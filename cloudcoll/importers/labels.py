"""``import labels``: what a provider says of where its machines stand.

Sources: DescribeInstanceTopology of Amazon EC2 (``NetworkNodes`` from the top
down); ``resourceStatus.physicalHost`` and ``physicalHostTopology`` of Google
Compute Engine; the well-known labels of Kubernetes, GKE, EKS and topograph.

Labels are a prior: measurements overrule them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files import parse_json
from cloudcoll.files.limits import STORED_HOSTS
from cloudcoll.hosts import Host
from cloudcoll.hosts.names import check_host, shown
from cloudcoll.importers.reading import (
    group_name,
    imported,
    lines_of,
    read_text,
    text_items,
    tree_of_places,
)
from cloudcoll.infer import infer_fabric
from cloudcoll.infer.prior import GROUP, disagreements, groups_of
from cloudcoll.measured.snapshot import MAGIC, NetworkSnapshot, load_snapshot
from cloudcoll.network.tree import Node

_TIERS = 8
NODE_LABELS = (
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "cloud.google.com/gce-topology-block",
    "cloud.google.com/gce-topology-subblock",
    "cloud.google.com/gce-topology-host",
    *(f"topology.k8s.aws/network-node-layer-{n}" for n in range(1, _TIERS)),
    *(f"fabric.topograph.run/tier-{n}" for n in reversed(range(_TIERS))),
    "network.topology.nvidia.com/datacenter",
    "network.topology.nvidia.com/core",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/leaf",
    "network.topology.nvidia.com/block",
)
"""Kubernetes node labels that name a group, from the core down. A family of
labels does not mix with another one on the same nodes in practice; where two
do, both are levels."""

_PHYSICAL = ("cluster", "block", "subblock", "subBlock", "host")
_EXAMPLE = (
    "give the JSON of 'aws ec2 describe-instance-topology', of 'gcloud compute "
    "instances list --format=json' or of 'kubectl get nodes -o json', or lines "
    "'NAME BLOCK/SUBBLOCK/HOST'"
)


@dataclass(frozen=True)
class _LabelledHost:
    """A host as a provider sees it: its name, groups from the core down, labels."""

    name: object
    place: Iterable[object]
    labels: Mapping[str, str] = field(default_factory=dict)


def read_labels(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read labels of AWS, Google Cloud or Kubernetes, told apart by their form."""
    text = read_text(path)  # once: it may be a pipe
    if text.lstrip()[:1] in ("{", "["):
        found = _from_json(parse_json(text, str(path)), path)
    else:
        found = _from_lines(text, path)
    placed = list(islice(found, STORED_HOSTS + 1))
    places: dict[str, list[str]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    if len(placed) > STORED_HOSTS:
        raise UsageError(f"{path}: more than {STORED_HOSTS} hosts: import a part of it")
    for number, host in enumerate(placed, start=1):
        where = f"{path}: host {number}"
        name = check_host(host.name, where)
        if name in places:
            raise UsageError(f"{where}: {name!r} was listed before")
        places[name] = [group_name(group, f"{where} ({name})") for group in host.place]
        labels[name] = host.labels
    if not any(places.values()):
        raise UsageError(
            f"{path}: none of its {len(places)} hosts says where it stands: {_EXAMPLE}"
        )
    try:
        root = tree_of_places(places)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return imported(root, path, "labels", hosts=places, labels=labels)


def _from_json(data: Any, path: object) -> Iterator[_LabelledHost]:
    kind = next((key for key in _READERS if isinstance(data, dict) and key in data), "")
    items = data[kind] if kind else data
    if not isinstance(items, list) or not items:
        raise UsageError(f"{path}: no list of hosts in it: {_EXAMPLE}")
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict):
            raise UsageError(f"{path}: host {number}: {shown(item)} is not an object")
        yield _READERS[kind](item)


def _amazon(item: Mapping[str, Any]) -> _LabelledHost:
    nodes = item.get("NetworkNodes") or []
    zone = item.get("ZoneId") or item.get("AvailabilityZone")
    place = [zone] * bool(zone) + (nodes if isinstance(nodes, list) else [nodes])
    return _LabelledHost(item.get("InstanceId"), place, text_items(item))


def _google(item: Mapping[str, Any]) -> _LabelledHost:
    status = item.get("resourceStatus")
    status = status if isinstance(status, Mapping) else {}
    topology = text_items(status.get("physicalHostTopology"))
    physical = status.get("physicalHost")
    place = [topology[key] for key in _PHYSICAL if key in topology]
    if not place and isinstance(physical, str):
        place = [part for part in physical.split("/") if part]
    labels = text_items({"physicalHost": physical}) | topology
    # The API names a zone by its address.
    zone = str(item.get("zone") or "").rpartition("/")[2]
    if zone:
        labels["zone"] = zone
    return _LabelledHost(item.get("name"), [zone] * bool(zone) + place, labels)


def _kubernetes(item: Mapping[str, Any]) -> _LabelledHost:
    meta = item.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    labels = text_items(meta.get("labels"))
    place = [labels[key] for key in NODE_LABELS if labels.get(key, "").strip()]
    return _LabelledHost(meta.get("name"), place, labels)


_READERS = {"Instances": _amazon, "items": _kubernetes, "": _google}
"""Key of the list of hosts in the file, empty for a bare list -> its reader."""


def _from_lines(text: str, path: object) -> Iterator[_LabelledHost]:
    """Read lines of a host name and a path of groups, as gcloud's csv has them."""
    for number, raw in enumerate(lines_of(text), start=1):
        words = raw.partition("#")[0].replace(",", " ").split()
        if not words or words[0] == "name":
            continue
        if len(words) != 2 or "/" not in words[1]:
            raise UsageError(
                f"{path}:{number}: {shown(raw)} is not understood: {_EXAMPLE}"
            )
        place = [part for part in words[1].split("/") if part]
        yield _LabelledHost(words[0], place, text_items({"physicalHost": words[1]}))


def read_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read lines of an id and a host name, each once, parted by blanks or a comma."""
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
    """Return the snapshot with its hosts called as `names`, which has all, says."""
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


def read_prior(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read labels from a snapshot with groups, or from what `read_labels` takes."""
    try:
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return load_snapshot(path) if start == MAGIC.encode() else read_labels(path)


def labelled_hosts(
    hosts: Sequence[Host], labelled: NetworkSnapshot
) -> tuple[Host, ...]:
    """Return the hosts with their labels, and with the group they are said to be in.

    UsageError if the labels know none of them.
    """
    known = {host.name: host.labels for host in labelled.hosts}
    if labelled.fabric is None or not any(host.name in known for host in hosts):
        raise UsageError(
            f"{labelled.metadata.get('source', 'the labels')}: of other hosts: it has "
            f"{', '.join(list(known)[:3])}, here are "
            f"{', '.join(host.name for host in hosts[:3])} (say who is who with "
            "'cloudcoll import labels --names')"
        )
    groups = _smallest(labelled.fabric.root)
    return tuple(
        replace(
            host,
            labels={
                **host.labels,
                **known.get(host.name, {}),
                GROUP: groups.get(host.name, ""),
            },
        )
        for host in hosts
    )


def with_labels(
    measured: NetworkSnapshot, labelled: NetworkSnapshot
) -> NetworkSnapshot:
    """Return the measured snapshot with the labels on its hosts.

    The fabric stays what was measured. Where a group of the labels and one of
    the measurement overlap and neither holds the other, no tree has both: a
    warning of the fabric says so. Hosts that only the labels know are left
    out.
    """
    hosts = labelled_hosts(measured.hosts, labelled)
    assert labelled.fabric is not None  # else it had no host to label
    shared = set(measured.names) & {host.name for host in labelled.hosts}
    fabric = measured.fabric or infer_fabric(measured)
    said = groups_of(labelled.fabric.restrict(shared).root)
    warnings = disagreements(fabric, said)
    if missing := len(measured.hosts) - len(shared):
        warnings.append(f"the labels leave out {missing} of the measured hosts")
    return replace(
        measured,
        hosts=hosts,
        fabric=replace(fabric, warnings=(*fabric.warnings, *warnings)),
        digest="",
    )


def _smallest(root: Node) -> dict[str, str]:
    """Return for each host in a group the names on the way down to it."""
    found: dict[str, str] = {}

    def walk(node: Node, way: str) -> None:
        for child in node.children:
            if child.children:
                walk(child, f"{way}/{child.name}" if way else child.name)
            elif way:
                found[child.name] = way

    walk(root, "")
    return found
