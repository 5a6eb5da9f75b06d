"""Labels beside measurements: labels are a prior, measurements overrule them."""

from __future__ import annotations

from dataclasses import replace

from cloudcoll.errors import UsageError
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.snapshot import NetworkSnapshot

MAX_WARNINGS = 3
"""Disagreements named one by one; the rest is counted."""


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
    known = {host.name: host.labels for host in labelled.hosts}
    shared = [name for name in measured.names if name in known]
    if not shared or labelled.fabric is None:
        raise UsageError(
            f"{labelled.metadata.get('source', 'the labels')}: of other hosts: it has "
            f"{', '.join(list(known)[:3])}, measured were "
            f"{', '.join(measured.names[:3])} (say who is who with --names)"
        )
    fabric = measured.fabric or infer_fabric(measured)
    warnings = disagreements(fabric, labelled.fabric, shared)
    if missing := len(measured.hosts) - len(shared):
        warnings.append(f"the labels leave out {missing} of the measured hosts")
    hosts = tuple(
        replace(host, labels={**host.labels, **known.get(host.name, {})})
        for host in measured.hosts
    )
    return replace(
        measured,
        hosts=hosts,
        fabric=replace(fabric, warnings=(*fabric.warnings, *warnings)),
        digest="",
    )


def disagreements(measured: Fabric, labels: Fabric, shared: list[str]) -> list[str]:
    """Return a line for each group of the labels that the measurement cuts.

    Parameters
    ----------
    measured, labels : Fabric
    shared : list of str
        Hosts that both have.
    """
    found = _groups(measured.restrict(shared).root)
    lines = []
    for name, said in _groups(labels.restrict(shared).root):
        cut = next(
            (
                group
                for _, group in found
                if group & said and group - said and said - group
            ),
            None,
        )
        if cut:
            inside, outside = sorted(cut & said)[0], sorted(cut - said)[0]
            apart = sorted(said - cut)[0]
            lines.append(
                f"labels put {inside} with {apart} ({name}), measured it stands with "
                f"{outside} instead: the measurement is kept"
            )
    more = len(lines) - MAX_WARNINGS
    return lines[:MAX_WARNINGS] + [f"{more} more groups disagree"] * (more > 0)


def _groups(root: Node) -> list[tuple[str, frozenset[str]]]:
    """Return the groups below the root, each with its hosts."""
    groups = []
    for child in root.children:
        if child.children:
            groups += [(child.name, frozenset(child.leaves())), *_groups(child)]
    return groups
