"""What stands out in a snapshot: hosts and uplinks, in SI units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer.holdout import known_median
from cloudcoll.infer.host_delays import best, beyond_chance, late_hosts
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Links, Node, flat
from cloudcoll.rankmap import SURE

SLOW_LINK = 0.7
"""A link stands out with less than this share of the rate of its peers. Cards of
healthy hosts that are busy with other work were seen to carry down to .79."""

LATE = 0.1
"""A host is called late from this share of the usual round trip on: that says something
of the host, long before an order could make up for it."""

SWAYED = 4
"""Hosts of a group up to which any one of them is in half of its pairs: what inference
makes of their round trips is as late as a late host among them."""

FULL = 0.8
"""A round tells of a link that should have carried this share of its rate in it."""


@dataclass(frozen=True)
class HostEffect:
    """What a host does to all its pairs.

    Attributes
    ----------
    late_s : float
        Median over its pairs of the round trip beyond what the fabric
        explains, in seconds: a delay that the host itself adds.
    sends_bytes_per_s, receives_bytes_per_s : float
        What its own link carries.
    is_late, is_slow : bool
        Whether it is later, or its link slower, than chance explains.
    """

    name: str
    late_s: float
    sends_bytes_per_s: float
    receives_bytes_per_s: float
    is_late: bool
    is_slow: bool


@dataclass(frozen=True)
class UplinkFinding:
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
        Whether it is less than its peers, beyond chance.
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
    arrived = flows.bytes_per_s > 0.0
    sent = {snapshot.names[host] for host in flows.src[arrived].tolist()}
    got = {snapshot.names[host] for host in flows.dst[arrived].tolist()}

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
    """Return every host, the worst first, by a `honest_fabric`."""
    late, is_late, usual = _late(snapshot, fabric)
    cards = {node.name: node for node in _hosts(fabric.root)}
    links = [cards[name] for name in snapshot.names]
    share, is_slow = _weak(snapshot, fabric, links)
    is_slow &= ~_misplaced(snapshot.names, fabric, is_slow)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = np.fmax(late / usual / LATE, SLOW_LINK / share)
    order = np.lexsort((-np.nan_to_num(worst), ~(is_late | is_slow)))
    return [
        HostEffect(
            name=snapshot.names[host],
            late_s=float(late[host]),
            sends_bytes_per_s=links[host].uplink_bytes_per_s,
            receives_bytes_per_s=links[host].downlink_bytes_per_s,
            is_late=bool(is_late[host]),
            is_slow=bool(is_slow[host]),
        )
        for host in order.tolist()
    ]


def worst_hosts(snapshot: NetworkSnapshot, fabric: Fabric) -> list[HostEffect]:
    """Return the hosts that are late or slow, the worst first."""
    effects = host_effects(snapshot, fabric)
    return [host for host in effects if host.is_late or host.is_slow]


def _late(snapshot: NetworkSnapshot, fabric: Fabric) -> tuple[Floats, Bools, float]:
    """Return each host's own delay, whether it is late, and the usual round trip.

    In seconds; NaN where there are no round trips at all.
    """
    hosts = len(snapshot.hosts)
    if not len(snapshot.rtt.src):
        return np.full(hosts, math.nan), np.zeros(hosts, dtype=bool), math.nan
    measured = snapshot.latency.values
    usual = known_median(measured)
    columns = [fabric.position(name) for name in snapshot.names]
    alike = Fabric(_levelled(fabric.root))
    explained = alike.links.pair_rtt()[np.ix_(columns, columns)]
    if not explained.any():
        explained = np.full_like(measured, usual)
    extra = measured - explained
    position = {name: i for i, name in enumerate(snapshot.names)}
    for group in fabric.lowest():
        members = [position[name] for name in group.leaves() if name in position]
        if len(members) <= SWAYED:
            extra[np.ix_(members, members)] = math.nan
    return *late_hosts(extra, LATE * usual), usual


def _weak(
    snapshot: NetworkSnapshot, fabric: Fabric, nodes: Sequence[Node]
) -> tuple[Floats, Bools]:
    """Return the share of their peers' rate that links have, and which are weak.

    `nodes` are the lower ends of links that should be alike; the worse direction
    counts. A rate that others state is taken at their word. A link that was measured
    is weak if it carried less than `SLOW_LINK` of what its peers did in its best
    rounds, and less than chance explains, one way or both ways taken together, also
    without any one of its peers: of two hosts in a rack whose cards only fill among
    themselves both look slow. What peers carried with it alone does not count for
    them. With few rounds none is weak.
    """
    rates = np.array([(n.uplink_bytes_per_s, n.downlink_bytes_per_s) for n in nodes])
    usual = np.array([known_median(way) for way in rates.T])
    share = np.fmin(*(rates / usual).T)
    if fabric.origin != "measured":
        return share, share < SLOW_LINK
    links, places = fabric.links, _places(fabric)
    these = np.array([places[id(node)] for node in nodes])
    links.up[these], links.down[these] = np.nan_to_num(usual, nan=math.inf)
    cases = _carried(snapshot, fabric, links)
    weak = np.zeros(len(nodes), dtype=bool)
    alike = cases.tells & np.isin(cases.link, these)
    for node, link in enumerate(these.tolist()):
        mine = cases.link == link
        others = cases.carried[alike & ~mine & (cases.other != link)]
        for way in (cases.is_down, ~cases.is_down, np.ones_like(cases.is_down)):
            own = _Cases(*(each[mine & way] for each in cases))
            if not len(others) or not own.tells.any():
                continue
            # Where peers carry far more than what is usual, that is known badly.
            peers = min(best(others), 1.0 / FULL)
            if own.best_without_a_peer() < SLOW_LINK * peers:
                said = own.carried[own.tells]
                weak[node] |= beyond_chance(said, others, 3 * len(nodes))
    return share, weak


def _misplaced(names: Sequence[str], fabric: Fabric, is_slow: Bools) -> Bools:
    """Return whose card may be slow only because its group is wrong.

    Hosts that are not in one rack send to each other through its link. So of groups
    that are not sure, of which several cards and half of all look slow, none is.
    """
    found = np.zeros(len(names), dtype=bool)
    if fabric.confidence < SURE:
        for group in fabric.lowest():
            members = np.isin(names, [*group.leaves()])
            several = (is_slow & members).sum()
            found |= members & (several > 1) & (2 * several >= members.sum())
    return found


class _Cases(NamedTuple):
    """What links carried in rounds in which they were full or should have been.

    Attributes
    ----------
    link : ndarray of int64, shape (cases,)
    is_down, tells : ndarray of bool, shape (cases,)
    carried : ndarray of float64, shape (cases,)
        Bytes over what max-min fairness predicts.
    other : ndarray of int64, shape (cases,)
        The link of that level at the other end; -1 if there were several.
    """

    link: Ints
    is_down: Bools
    tells: Bools
    carried: Floats
    other: Ints

    def best_without_a_peer(self) -> float:
        """Return what was carried at best, whichever peer is left out.

        Infinite if without one of them nothing tells: that one may be slow.
        """
        peers = np.unique(self.other[self.other >= 0])
        rests = [self.other != peer for peer in peers] or [np.ones_like(self.tells)]
        return max(
            best(self.carried[rest]) if self.tells[rest].any() else math.inf
            for rest in rests
        )


def _carried(snapshot: NetworkSnapshot, fabric: Fabric, links: Links) -> _Cases:
    """Return what links carried in each round.

    Only rounds tell in which a link should have been nearly full: what a full
    uplink takes from a card's transfers is no fault of the card. How TCP shares a
    link among transfers says nothing of it either: of a group's link their sum
    counts, and of a card only what met no other link that might have been full.
    Rounds in which a link was full all the same clear a host that the fabric has in a
    wrong rack. They need no pairing: what slows one down slows it for all who take
    part.
    """
    flows = snapshot.flows
    column = np.array([fabric.position(name) for name in snapshot.names], dtype=int)
    src, dst = column[flows.src], column[flows.dst]
    due, _ = fair_rounds(links, flows.round, src, dst)
    out, into = links.member[:, src], links.member[:, dst]
    across = np.tile(out != into, (2, 1))
    capacity = np.concatenate([links.up, links.down])
    path = np.concatenate([out, into + len(links.up)])
    case, number = np.unique(
        (path + flows.round * len(capacity))[across], return_inverse=True
    )
    flow = np.broadcast_to(np.arange(len(src)), path.shape)[across]
    # What flows did, should have done, and would do if nobody else sent.
    alone = np.where(across, capacity[path], math.inf).min(axis=0)
    got, most, asked = (
        np.bincount(number, rates[flow], len(case))
        for rates in (np.nan_to_num(flows.bytes_per_s), due, alone)
    )
    there = np.concatenate([into, out])[across]
    other = np.zeros(len(case), dtype=np.int64)
    other[number] = there
    other[number[there != other[number]]] = -1
    at = case % len(capacity)
    # A link of unknown rate carries what was seen to pass, at least.
    seen = np.zeros(len(capacity))
    np.maximum.at(seen, at, got)
    crowded = FULL * asked > np.where(np.isfinite(capacity), capacity, seen)[at]
    crowded &= np.bincount(number, minlength=len(case)) > 1
    elsewhere = np.bincount(flow, crowded[number], len(src))[flow] > crowded[number]
    held_back = np.bincount(number, elsewhere, len(case)) > 0
    is_down, link = np.divmod(at, len(links.up))
    is_card = np.bincount(links.member.ravel()) == 1
    nearly = FULL * capacity[at]
    tells = (most >= nearly) & ~(held_back & is_card[link])
    full = np.maximum(got, most) >= nearly
    carried = got / np.maximum(most, nearly)
    found = _Cases(link, is_down > 0, tells, carried, other)
    return _Cases(*(each[full] for each in found))


def _places(fabric: Fabric) -> dict[int, int]:
    """Return the link of each node, by its identity, in the fabric's `links`."""
    member = fabric.links.member
    places: dict[int, int] = {}

    def walk(node: Node, depth: int) -> None:
        for child in node.children:
            host = fabric.position(next(child.leaves()))
            places[id(child)] = int(member[depth, host])
            walk(child, depth + 1)

    walk(fabric.root, 0)
    return places


def _levelled(node: Node) -> Node:
    """Return the tree with the hosts of a switch all as near to it as most are.

    Inference gives a late host a long link, which would explain its delay, or even
    a place beside all groups: the only host there is no farther than those in them.
    """
    children = tuple(_levelled(c) if c.children else c for c in node.children)
    hosts = [child for child in children if not child.children]
    usual = _low_median(host.latency_s for host in hosts)
    if len(hosts) == 1 < len(children):
        groups = (child for child in children if child.children)
        ways = [c.latency_s + way for c in groups for way in _ways_down(c)]
        usual = float(np.fmin(usual, _low_median(ways)))
    return replace(
        node,
        children=tuple(
            child if child.children else replace(child, latency_s=usual)
            for child in children
        ),
    )


def _ways_down(node: Node) -> Iterator[float]:
    """Yield the seconds from a group's switch down to each of its hosts."""
    for child in node.children:
        ways = _ways_down(child) if child.children else (0.0,)
        yield from (child.latency_s + way for way in ways)


def _low_median(values: Iterable[float]) -> float:
    """Return the median of what is known, the lower one of two; NaN for nothing."""
    known = sorted(value for value in values if not math.isnan(value))
    return known[(len(known) - 1) // 2] if known else math.nan


def uplinks(snapshot: NetworkSnapshot, fabric: Fabric) -> list[UplinkFinding]:
    """Return every group's link, those that stand out and have the least first.

    By a `honest_fabric`.
    """
    found = [
        uplink
        for level, nodes in enumerate(fabric.groups())
        for uplink in _level(
            snapshot, fabric, [n for n in nodes if n is not fabric.root], level
        )
    ]
    return sorted(
        found,
        key=lambda link: (not link.stands_out, np.nan_to_num(link.share, nan=np.inf)),
    )


def _level(
    snapshot: NetworkSnapshot, fabric: Fabric, nodes: Sequence[Node], level: int
) -> Iterator[UplinkFinding]:
    if not nodes:
        return
    shares, weak = _weak(snapshot, fabric, nodes)
    for node, share, stands_out in zip(
        nodes, shares.tolist(), weak.tolist(), strict=True
    ):
        yield UplinkFinding(
            name=node.name,
            level=level,
            up_bytes_per_s=node.uplink_bytes_per_s,
            down_bytes_per_s=node.downlink_bytes_per_s,
            oversubscription=oversubscription(node),
            share=share,
            stands_out=stands_out,
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


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
