"""What stands out in a snapshot: hosts and uplinks, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.fabric.tree import Fabric, Node, flat
from cloudcoll.samples import Floats
from cloudcoll.snapshot import NetworkSnapshot

LATE = 0.5
"""A host that answers this share of the usual round trip late stands out."""

SLOW_LINK = 0.7
"""So does a link with less than this share of the rate of its peers."""


@dataclass(frozen=True)
class HostEffect:
    """What a host does to all its pairs.

    Attributes
    ----------
    name : str
    late_s : float
        Median over its pairs of the round trip beyond what the fabric
        explains, in seconds: a delay that the host itself adds.
    sends_bytes_per_s, receives_bytes_per_s : float
        What its own link carries.
    is_late, is_slow : bool
        Whether it is later, or its link slower, than noise explains.
    """

    name: str
    late_s: float
    sends_bytes_per_s: float
    receives_bytes_per_s: float
    is_late: bool
    is_slow: bool


@dataclass(frozen=True)
class Uplink:
    """A group's link to its parent.

    Attributes
    ----------
    name : str
        Of the group.
    level : int
        From the leaves up; 0 for a group of hosts.
    up_bytes_per_s, down_bytes_per_s : float
        Capacity; NaN where never full.
    oversubscription : float
        Rate of all links of its hosts over its own, of the worse direction.
    share : float
        Its capacity over the median of its level, of the worse direction.
    stands_out : bool
    """

    name: str
    level: int
    up_bytes_per_s: float
    down_bytes_per_s: float
    oversubscription: float
    share: float
    stands_out: bool


def honest_fabric(snapshot: NetworkSnapshot) -> Fabric:
    """Return the snapshot's fabric without link rates that nothing measured.

    Inference gives a host of which no transfer was seen the rate of the
    others, which is right for a prediction and wrong in a report. Without a
    fabric every host is on one switch.
    """
    fabric = snapshot.fabric
    if fabric is None:
        return flat(snapshot.names)
    if fabric.origin != "measured":
        return fabric
    flows = snapshot.flows
    told = flows.bytes_per_s > 0.0
    sent = {snapshot.names[host] for host in flows.src[told].tolist()}
    got = {snapshot.names[host] for host in flows.dst[told].tolist()}

    def blank(node: Node) -> Node:
        if node.children:
            return replace(node, children=tuple(map(blank, node.children)))
        return replace(
            node,
            uplink_bytes_per_s=node.uplink_bytes_per_s if node.name in sent else np.nan,
            downlink_bytes_per_s=(
                node.downlink_bytes_per_s if node.name in got else np.nan
            ),
        )

    return replace(fabric, root=blank(fabric.root))


def host_effects(snapshot: NetworkSnapshot, fabric: Fabric) -> list[HostEffect]:
    """Return every host, the worst first.

    Parameters
    ----------
    snapshot : NetworkSnapshot
    fabric : Fabric
        See `honest_fabric`.
    """
    late, usual = _late(snapshot, fabric)
    nodes = {node.name: node for node in _hosts(fabric.root)}
    links = [nodes[name] for name in snapshot.names]
    sends = np.array([node.uplink_bytes_per_s for node in links])
    receives = np.array([node.downlink_bytes_per_s for node in links])
    share = np.fmin(sends / _median(sends), receives / _median(receives))
    with np.errstate(divide="ignore", invalid="ignore"):
        too_late, too_slow = late / usual / LATE, SLOW_LINK / share
    order = np.argsort(-np.nan_to_num(np.fmax(too_late, too_slow)), kind="stable")
    return [
        HostEffect(
            name=snapshot.names[host],
            late_s=float(late[host]),
            sends_bytes_per_s=float(sends[host]),
            receives_bytes_per_s=float(receives[host]),
            is_late=bool(too_late[host] > 1.0),
            is_slow=bool(too_slow[host] > 1.0),
        )
        for host in order.tolist()
    ]


def worst_hosts(snapshot: NetworkSnapshot, fabric: Fabric) -> list[HostEffect]:
    """Return the hosts that are late or slow, the worst first."""
    effects = host_effects(snapshot, fabric)
    return [host for host in effects if host.is_late or host.is_slow]


def _late(snapshot: NetworkSnapshot, fabric: Fabric) -> tuple[Floats, float]:
    """Return each host's own delay, and the usual round trip, in seconds.

    In measured = explained + host + host + noise, a row's median is the row's
    host as long as most of the others are not late (the first step of Tukey's
    median polish, 1977). NaN where there are no round trips at all.
    """
    if not len(snapshot.rtt.src):
        return np.full(len(snapshot.hosts), math.nan), math.nan
    measured = snapshot.latency.values
    usual = _median(measured)
    columns = [fabric.position(name) for name in snapshot.names]
    alike = Fabric(_levelled(fabric.root))
    explained = alike.links().pair_rtt()[np.ix_(columns, columns)]
    if not explained.any():
        explained = np.full_like(measured, usual)
    extra = measured - explained
    return np.array([_median(row) for row in extra]), usual


def _levelled(node: Node) -> Node:
    """Return the tree with the hosts of a switch all as near to it as most are.

    Inference gives a late host a long link, which would explain its delay.
    """
    legs = sorted(
        child.latency_s
        for child in node.children
        if not child.children and not math.isnan(child.latency_s)
    )
    usual = legs[(len(legs) - 1) // 2] if legs else math.nan
    return replace(
        node,
        children=tuple(
            _levelled(child) if child.children else replace(child, latency_s=usual)
            for child in node.children
        ),
    )


def uplinks(fabric: Fabric) -> list[Uplink]:
    """Return every group's link, that with the least of its level's rate first."""
    found = [
        uplink
        for level, nodes in enumerate(fabric.groups())
        for uplink in _level([n for n in nodes if n is not fabric.root], level)
    ]
    return sorted(found, key=lambda link: np.nan_to_num(link.share, nan=np.inf))


def _level(nodes: Sequence[Node], level: int) -> Iterator[Uplink]:
    ups = np.array([node.uplink_bytes_per_s for node in nodes])
    downs = np.array([node.downlink_bytes_per_s for node in nodes])
    shares = np.fmin(ups / _median(ups), downs / _median(downs))
    for node, share in zip(nodes, shares.tolist(), strict=True):
        yield Uplink(
            name=node.name,
            level=level,
            up_bytes_per_s=node.uplink_bytes_per_s,
            down_bytes_per_s=node.downlink_bytes_per_s,
            oversubscription=oversubscription(node),
            share=share,
            stands_out=share < SLOW_LINK,
        )


def oversubscription(group: Node) -> float:
    """Return the rate of a group's hosts' links over that of its own link.

    Of the worse direction; a host whose link was not measured counts as the
    mean of the others. NaN where the group's link, or every host's, is not
    known.
    """
    hosts = list(_hosts(group))
    ups = _mean([host.uplink_bytes_per_s for host in hosts])
    downs = _mean([host.downlink_bytes_per_s for host in hosts])
    return float(
        np.fmax(
            len(hosts) * ups / group.uplink_bytes_per_s,
            len(hosts) * downs / group.downlink_bytes_per_s,
        )
    )


def _hosts(node: Node) -> Iterator[Node]:
    if not node.children:
        yield node
    for child in node.children:
        yield from _hosts(child)


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else math.nan


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
