"""From what was measured to a network: who shares a switch, and how fast links are.

`infer_fabric` does it all. Slow hosts are taken out first, then groups come from round
trips and from loaded rounds, link rates from the rounds alone. A network without
structure is flat. Labels of the hosts fill in what was not measured. What the fabric
is worth is judged by measurements kept out of a fit (``holdout``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.infer.fit import refitted
from cloudcoll.infer.grouping import Splitter, Tree, complete, flatten, grow
from cloudcoll.infer.holdout import (
    Figures,
    hold_out,
    holdout_warning,
    measured,
    prediction_errors,
    scatter,
    unevenness,
)
from cloudcoll.infer.host_delays import LONGER, host_delays, late_hosts
from cloudcoll.infer.prior import (
    disagreements,
    informed,
    label_groups,
    label_numbers,
    with_labels_for,
)
from cloudcoll.infer.sharing import LoadSplitter, parted
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Alternative, Fabric, Node
from cloudcoll.rankmap import SURE

UNLIKELY = 0.02
"""Share of the draws below which a tree is left out: no order is refused for one."""

PACED = (
    "most transfers stalled, as something drops what is sent too fast: racks come from "
    "transfers that were sent no faster than cards carry; jobs may take much longer "
    "than predicted"
)

KEPT = 8
"""Other trees that are kept, at most: each is predicted for when an order is sought."""


def infer_fabric(snapshot: NetworkSnapshot, found: Fabric | None = None) -> Fabric:
    """Return the fabric that explains a snapshot's measurements.

    Hosts without a measurement hang on the core by themselves. Capacities
    that no round filled are NaN: not known to limit anything. The fabric is
    made from everything measured; its ``holdout_error`` is that of one made
    without a tenth of the rounds and pairs, on these: of the same groups if they are
    sure. `found` is what `groups_found` has said of them, if it was asked.
    """
    labels = label_numbers(snapshot.hosts)
    whole = measured(snapshot)
    fabric = found or _fit(whole, labels)
    seen, held = hold_out(whole)
    # Groups that are sure would be found again, which takes as long.
    judged = _fit(seen, labels, fabric if fabric.confidence >= SURE else None)
    of_trips, of_links = prediction_errors(judged, held)
    error = float(np.fmax(of_trips, of_links))
    warnings = [
        f"nothing measured with {name}: {why}" for name, why in snapshot.failed.items()
    ]
    if snapshot.flows.paced:
        warnings.append(PACED)
    warnings += disagreements(fabric, label_groups(snapshot.hosts))
    mode = str(snapshot.metadata.get("mode", ""))
    noise = scatter(snapshot.rtt) if error == of_trips else unevenness(fabric, whole)
    warnings += holdout_warning(error, noise, mode)
    return replace(fabric, holdout_error=error, warnings=tuple(warnings))


def preload() -> None:
    """Import what groups are found with, where there is something to wait for anyway.

    That takes half a second once; a probe is to be sure as many seconds after it began.
    """
    for name in ("cluster.hierarchy", "optimize", "spatial.distance"):
        import_module(f"scipy.{name}")


def groups_found(snapshot: NetworkSnapshot) -> Fabric:
    """Return the same fabric as `infer_fabric`, but nothing is kept out to judge it."""
    return _fit(measured(snapshot), label_numbers(snapshot.hosts))


def with_rates_of(snapshot: NetworkSnapshot, fabric: Fabric) -> Fabric:
    """Return the same groups with the link rates that explain a snapshot best.

    The fabric is of the same hosts; what it may be instead gets other rates, too.
    """
    seen = measured(snapshot)
    others = tuple(
        replace(one, root=refitted(one.root, seen)) for one in fabric.alternatives
    )
    return replace(fabric, root=refitted(fabric.root, seen), alternatives=others)


def _fit(seen: Figures, labels: Ints, known: Fabric | None = None) -> Fabric:
    """Return the fabric of these measurements; slow hosts' links are longer.

    Its groups are those of a `known` one, if there is one.
    """
    heard = seen.heard
    if not len(heard):
        return Fabric(_measured_root(seen, ()))
    trips = complete(informed(seen.rtt[np.ix_(heard, heard)], labels[heard]))
    delays = host_delays(trips)
    # No correction makes a pair nearer than the nearest one.
    nearest = min(trips[trips > 0], default=0.0)
    level = np.maximum(trips - np.add.outer(delays, delays), nearest)
    np.fill_diagonal(level, 0.0)
    names = [seen.names[host] for host in heard]

    def grown(split: Splitter) -> Node:
        tree = grow(level, list(range(len(heard))), split)
        return _measured_root(seen, _node(tree, level, names).children)

    if known:
        return Fabric(grown(_as_in(known, names)))
    by_load = LoadSplitter(seen, heard)
    root = grown(with_labels_for(by_load, seen, heard, labels[heard]))
    answer = by_load.answer
    if answer is None or (not answer.labels.any() and labels.max() >= 0):
        return Fabric(root)
    others = [
        Alternative(share, grown(_given(drawn)))
        for share, drawn in answer.draws
        if share >= UNLIKELY and not np.array_equal(drawn, answer.labels)
    ]
    most = tuple(others[:KEPT])
    return Fabric(root, confidence=answer.confidence, alternatives=most)


def _as_in(fabric: Fabric, names: Sequence[str]) -> Splitter:
    """Return what splits hosts, positions in `names`, into the groups of a fabric."""
    place = {name: i for i, name in enumerate(names)}

    def hosts(node: Node) -> list[int]:
        return [place[name] for name in node.leaves() if name in place]

    def below(node: Node) -> Iterator[tuple[frozenset[int], list[list[int]]]]:
        parts = [part for child in node.children if (part := hosts(child))]
        if max(map(len, parts), default=0) > 1:
            yield frozenset(hosts(node)), parts
        for child in node.children:
            yield from below(child)

    return _known(dict(below(fabric.root)))


def _given(labels: Ints) -> Splitter:
    """Return what splits all hosts as given, and no part of them."""
    everyone = range(len(labels))
    groups = parted(everyone, labels)
    return _known({frozenset(everyone): groups} if groups else {})


def _known(groups: Mapping[frozenset[int], list[list[int]]]) -> Splitter:
    """Return what splits hosts that are known into their groups, and no others."""

    def split(
        items: list[int], likely: list[list[int]] | None = None
    ) -> list[list[int]] | None:
        return groups.get(frozenset(items))

    return split


def _measured_root(seen: Figures, children: tuple[Node, ...]) -> Node:
    """Return the core above groups and silent hosts, with the rates measured."""
    silent = np.setdiff1d(np.arange(len(seen.names)), seen.heard)
    children += tuple(Node(seen.names[h]) for h in silent)
    root = _numbered(Node("core", children))
    root = _delayed(root, _slow_hosts(seen, Fabric(root)))
    return refitted(root, seen)


def _node(tree: Tree, distance: Floats, names: Sequence[str]) -> Node:
    """Return the tree as nodes whose links add up to the round trips."""
    if isinstance(tree, int):
        return Node(names[tree])
    reach = _reach(tree, distance)
    children = [
        # Links never shorten a path, whatever the noise says.
        replace(
            _node(part, distance, names),
            latency_s=max(reach - _reach(part, distance), 0.0),
        )
        for part in tree
    ]
    return Node("group", tuple(children))


def _reach(tree: Tree, distance: Floats) -> float:
    """Return the one-way seconds from a group's switch down to a host.

    A round trip between hosts of two parts goes down and up this way four
    times.
    """
    if isinstance(tree, int) or len(tree) < 2:
        return 0.0
    parts = [flatten(part) for part in tree]
    label = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.concatenate(parts)
    apart = distance[np.ix_(order, order)][label[:, None] != label]
    return float(np.median(apart)) / 4.0


def _numbered(root: Node) -> Node:
    """Name the groups ``1``, ``2`` and theirs ``1.1``, left to right."""

    def rename(node: Node, name: str) -> Node:
        if not node.children:
            return node
        children: list[Node] = []
        for child in node.children:
            inner = f"{name}.{len(children) + 1}" if name else str(len(children) + 1)
            children.append(rename(child, inner))
        return replace(node, name=name or "core", children=tuple(children))

    return rename(root, "")


def _slow_hosts(seen: Figures, fabric: Fabric) -> dict[str, float]:
    """Return the extra seconds of hosts later than their place explains."""
    position = {name: i for i, name in enumerate(seen.names)}
    order = [position[name] for name in fabric.hosts]
    trips = seen.rtt[np.ix_(order, order)]
    if not np.isfinite(trips).any():
        return {}
    extra = trips - fabric.links.pair_rtt()
    late, found = late_hosts(extra, LONGER * float(np.nanmedian(trips)))
    return {
        fabric.hosts[column]: float(late[column])
        for column in np.flatnonzero(found).tolist()
    }


def _delayed(node: Node, slow: dict[str, float]) -> Node:
    """Add slow hosts' delays to their links: half of a round trip's each way."""
    if node.name in slow and not node.children:
        return replace(node, latency_s=node.latency_s + slow[node.name] / 2.0)
    return replace(node, children=tuple(_delayed(c, slow) for c in node.children))
