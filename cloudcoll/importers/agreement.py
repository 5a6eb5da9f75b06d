"""Labels beside measurements: labels are a prior, measurements overrule them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.importers.labels import read_labels
from cloudcoll.infer import infer_fabric
from cloudcoll.infer.prior import GROUP, disagreements, groups_of
from cloudcoll.measured.snapshot import MAGIC, NetworkSnapshot, load_snapshot
from cloudcoll.network.tree import Node


def read_prior(path: str | os.PathLike[str]) -> NetworkSnapshot:
    """Read labels from a snapshot with groups, or from what `read_labels` takes.

    Raises
    ------
    CloudcollError
        It is neither; the message names it.
    """
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

    Raises
    ------
    UsageError
        The labels know none of the hosts.
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

    Raises
    ------
    UsageError
        The labels know none of the measured hosts.
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
