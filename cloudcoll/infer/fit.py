"""Link rates that explain all loaded rounds together.

What a link was seen to carry is only where the search starts: the flows on it
may have been held back elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.infer.holdout import Figures
from cloudcoll.network.fair import Flows
from cloudcoll.network.tree import Fabric, Links, Node

Way = TypeVar("Way", int, Ints)
"""Links' positions, as of `with_rate_of`."""

SATURATED = 0.85
"""Flows that get less than this share of their hosts' NICs met a full link."""


def with_capacities(root: Node, seen: Figures) -> Node:
    """Return the tree with the link capacities that the loaded rounds show.

    Capacities that no round filled are NaN: not known to limit anything. The tree is of
    exactly the measured hosts.
    """
    position = {name: i for i, name in enumerate(seen.names)}
    fabric = Fabric(root)
    load = Load(seen, fabric.racks()[[fabric.position(name) for name in seen.names]])

    def members(node: Node) -> Ints:
        return np.array([position[name] for name in node.leaves()])

    switches = [node for node in _nodes(root) if _groups(node)]
    found = load.uplinks([[members(g) for g in _groups(node)] for node in switches])
    groups = [group for node in switches for group in _groups(node)]
    # By identity: groups of two switches may look alike.
    uplinks = {id(group): rates for group, rates in zip(groups, found, strict=True)}

    def fill(node: Node) -> Node:
        children = []
        for child in node.children:
            up, down = uplinks.get(id(child)) or load.nic(position[child.name])
            filled = replace(child, children=fill(child).children)
            children.append(
                replace(filled, uplink_bytes_per_s=up, downlink_bytes_per_s=down)
            )
        return replace(node, children=tuple(children))

    return fill(root)


def group_links(labels: Ints, load: Load) -> Links:
    """Return the links of hosts in groups below one core, with the rates seen.

    What `with_capacities` finds for a tree of a single level, but for cards: they are
    those of `load`, whatever groups are tried.

    Parameters
    ----------
    labels : ndarray of int64, shape (hosts,)
        The group of each measured host, from 0 on: a host that is alone in its
        group hangs on the core, and so do all where there is only one.
    load : Load
        Of hosts below one switch.

    Returns
    -------
    Links
        Host ``h`` is column ``h``. The links of hosts come first, then those of
        groups; infinite where no rate is known.
    """
    sizes = np.bincount(labels)
    groups = np.flatnonzero(sizes > 1) if len(sizes) > 1 else np.array([], np.int64)
    hosts = np.arange(len(labels))
    place = np.full(len(sizes), -1)
    place[groups] = len(hosts) + np.arange(len(groups))
    above = place[labels]
    alone = above < 0
    rates = load.uplinks([[np.flatnonzero(labels == group) for group in groups]])
    ways = np.array(rates).reshape(-1, 2).T
    # Where others have two links on the way to the core, these have one that is free.
    free = len(hosts) + len(groups) + np.cumsum(alone) - 1
    member = np.where(alone, [hosts, free], [above, hosts])
    beyond = np.full(np.count_nonzero(alone), math.nan)
    up, down = (
        np.concatenate([of_hosts, of_groups, beyond])
        for of_hosts, of_groups in zip((load.sent, load.received), ways, strict=True)
    )
    up[np.isnan(up)] = down[np.isnan(down)] = math.inf
    return Links(member, up, down, latency=np.zeros(len(up)))


def with_rate_of(
    links: Links, ways: Ints | list[int] | int, rate: Floats | float
) -> Links:
    """Return links some of which, of ``up`` followed by ``down``, have this rate."""
    rates = np.append(links.up, links.down)
    rates[ways] = rate
    count = len(links.up)
    return replace(links, up=rates[:count], down=rates[count:])


def with_one_rate(links: Links, alike: Ints) -> Links | None:
    """Return links of which those alike have one rate, both ways: their median.

    None where no rate of theirs is known.
    """
    ways = np.append(alike, alike + len(links.up))
    rates = np.append(links.up, links.down)[ways]
    if not (known := np.isfinite(rates)).any():
        return None
    return with_rate_of(links, ways, float(np.median(rates[known])))


def idle(fit: Fit, links: Iterable[Way], flows: Flows) -> list[Way]:
    """Return which links, as of `with_rate_of`, hold nothing back, one by one left out.

    Of two that are full together only one does.
    """
    found: list[Way] = []
    for ways in links:
        without = fit._replace(links=with_rate_of(fit.links, ways, math.inf))
        if np.isin(ways, fit.limits).any():
            without = Fit(without.links, *flows.shared(without.links))
        if not (without.due > fit.due * (1.0 + CLOSE)).any():
            found.append(ways)
            fit = without
    return found


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    for child in node.children:
        yield from _nodes(child)


def _groups(node: Node) -> list[Node]:
    return [child for child in node.children if child.children]


class Load:
    """The loaded rounds, asked for what a link carried.

    Each host is below a `switch`, shape (hosts,): all below one if that is not given.
    """

    def __init__(self, seen: Figures, switch: Ints | None = None) -> None:
        self.round, self.rate = seen.round, seen.rate
        self.src, self.dst = seen.src, seen.dst
        if switch is None:
            switch = np.zeros(len(seen.names), dtype=np.int64)
        near = switch[self.src] == switch[self.dst]
        self.sent = self._nics(self.src, near, len(switch))
        self.received = self._nics(self.dst, near, len(switch))
        # Of a host that took no part nothing is known.
        silent = np.ones(len(switch), dtype=bool)
        silent[self.src] = silent[self.dst] = False
        self.sent[silent] = self.received[silent] = math.nan
        self.free = np.minimum(self.sent[self.src], self.received[self.dst])
        self.slow = self.rate < SATURATED * self.free

    def _nics(self, end: Ints, near: Bools, hosts: int) -> Floats:
        """Return the highest rate of each host at this end of its flows.

        Flows that stay below one switch tell; others only where there are
        none of those at all. A host without any is taken to be like the rest.
        """
        chosen = near if near.any() else ~near
        best = np.full(hosts, math.nan)
        np.fmax.at(best, end[chosen], self.rate[chosen])
        if chosen.any() and (unknown := np.isnan(best)).any():
            best[unknown] = np.nanmedian(best)
        return best

    def nic(self, host: int) -> tuple[float, float]:
        """Return the bytes/s that a host's card sends and receives; NaN if unknown."""
        return float(self.sent[host]), float(self.received[host])

    def uplinks(self, switches: Sequence[Sequence[Ints]]) -> list[tuple[float, float]]:
        """Return (up, down) of each group below each switch.

        Groups of one switch are taken to be alike where nothing speaks
        against it: a link that was never the one full link of a flow's path
        may carry more than it did, and gets the capacity of the widest of
        those that were; where none was, of the widest. NaN where that is more
        than its members' NICs can fill: it would limit nothing.
        """
        groups = [members for below in switches for members in below]
        if not groups:
            return []
        masks = np.array([mask for group in groups for mask in self._crossing(group)])
        totals = self._totals(masks)
        capacity = np.array(
            [self._full(*pair) for pair in zip(masks, totals, strict=True)]
        )
        with np.errstate(invalid="ignore"):
            busy = masks & (totals[:, self.round] >= SATURATED * capacity[:, None])
        limited = (busy & self.slow & (busy.sum(axis=0) == 1)).any(axis=1)
        ends = np.cumsum([2 * len(below) for below in switches])
        for alike in np.split(np.arange(len(masks)), ends[:-1]):
            sure = alike[limited[alike]] if limited[alike].any() else alike
            rest = alike[~limited[alike]]
            widest = np.fmax.reduce(capacity[sure], initial=0.0)
            capacity[rest] = np.maximum(capacity[rest], widest)
        cards = [
            way[group].sum() for group in groups for way in (self.sent, self.received)
        ]
        with np.errstate(invalid="ignore"):
            capacity[~limited & (capacity >= np.array(cards))] = math.nan
        return [(float(up), float(down)) for up, down in capacity.reshape(-1, 2)]

    def _crossing(self, members: Ints) -> tuple[Bools, Bools]:
        """Return which flows leave a group and which enter it."""
        inside = np.zeros(len(self.sent), dtype=bool)
        inside[members] = True
        leaves, enters = inside[self.src], inside[self.dst]
        return leaves & ~enters, enters & ~leaves

    def _totals(self, masks: Bools) -> Floats:
        """Return bytes/s that each set of flows carried, by round."""
        rounds = int(self.round.max(initial=-1)) + 1
        return np.array(
            [np.bincount(self.round[m], self.rate[m], rounds) for m in masks]
        )

    def _full(self, crossing: Bools, totals: Floats) -> float:
        """Return what a link carried in the rounds that filled it.

        A round filled it if several flows crossed and together got less than
        their hosts' NICs could have carried. Other links hold flows back too,
        so the fullest of those rounds tells. NaN if no round filled it, or if
        one that did not carried clearly more.
        """
        rounds = self.round[crossing]
        several = np.bincount(rounds, minlength=len(totals)) > 1
        free = np.bincount(rounds, self.free[crossing], len(totals))
        filled = several & (totals < SATURATED * free)
        capacity = float(totals[filled].max(initial=0.0))
        wider = SATURATED * totals[several & ~filled].max(initial=0.0) > capacity
        return math.nan if wider or not capacity else capacity


STEPS = 12
"""Corrections tried at most."""
FULLEST = 0.85
"""Quantile of the rounds that filled a link which tells its rate: flows that
meet often get less out of a link together, and never more than there is."""

SURELY = 0.85
"""Share of the highest rate of a flow that was alone on a link which the link carries
for sure: a rate is read too high by 10 to 15 % now and then."""

BETTER = 10.0
"""Nats by which groups, or a narrower link, must explain more than a fit without:
errors of flows that ran at the same time are not as independent as the likelihood
takes them to be."""

LEAST_ERROR = 0.01
"""Of log errors of flows: no fit is believed to be better."""

CLOSE = 0.05
"""Log ratio of rates up to which links are alike in any case: no probe tells more."""


def fitted(root: Node, seen: Figures) -> Node:
    """Return the tree with the link rates that predict the rounds best.

    The tree's rates are where it starts from. Links of unknown rate stay so, unless
    those of the groups beside them tell. The tree is of exactly the measured hosts.
    """
    fabric = Fabric(root)
    links = fabric.links
    column = np.array([fabric.position(name) for name in seen.names])
    flows = Flows(links, seen.round, column[seen.src], column[seen.dst])
    carried = SURELY * flows.alone(seen.rate)
    fit = fitted_links(links, flows, seen.rate, carried)
    for _ in range(2 * len(links.up)):
        start = _narrower(fit, flows, seen.rate)
        if start is None:
            break
        narrower = fitted_links(start, flows, seen.rate, carried)
        if not _nats(fit.due, narrower.due, seen.rate) > BETTER:
            break
        fit = narrower
    links = fit.links
    for alike in _siblings(root, fabric):
        links = _pooled(links, alike, flows, seen.rate, carried)
    return with_rates(root, fabric, links)


def refitted(root: Node, seen: Figures) -> Node:
    """Return the tree with the link rates that predict the rounds best, from none."""
    return fitted(with_capacities(root, seen), seen)


def _siblings(root: Node, fabric: Fabric) -> Iterator[Ints]:
    """Yield the links of the groups below each switch that has several."""

    def below(node: Node, depth: int) -> Iterator[Ints]:
        groups = _groups(node)
        if len(groups) > 1:
            first = [fabric.position(next(group.leaves())) for group in groups]
            yield fabric.links.member[depth, first]
        for group in groups:
            yield from below(group, depth + 1)

    return below(root, 0)


def _pooled(
    links: Links, alike: Ints, flows: Flows, rate: Floats, carried: Floats
) -> Links:
    """Return links of which those alike have one rate, unless one is surely another.

    Racks mostly have the same links, and of each by itself a probe knows little. A link
    keeps its own rate if that explains the flows better by more than it takes to say
    the rate (Schwarz 1978) and which link it is.
    """
    pooled = with_one_rate(links, alike)
    if pooled is None:
        return links
    fit = fitted_links(pooled, flows, rate, carried, alike)
    own, count = np.append(links.up, links.down), len(links.up)
    left = np.append(alike, alike + count)
    least = math.log(len(rate)) / 2.0 + math.log(len(left))
    while True:
        now = np.append(fit.links.up, fit.links.down)[left]
        off = left[np.abs(np.log(own[left] / now)) > CLOSE]
        others = (with_rate_of(fit.links, way, own[way]) for way in off.tolist())
        gain = np.array([_nats(fit.due, flows.shared(one)[0], rate) for one in others])
        if not gain.max(initial=0.0) > least:
            break
        # No flow crosses two of one direction: all of these are sure at once.
        same = (off < count) == (off[gain.argmax()] < count)
        taken = off[same & (gain > least)]
        links = with_rate_of(fit.links, taken, own[taken])
        fit = Fit(links, *flows.shared(links))
        left = np.setdiff1d(left, taken)
    unknown: list[int] = left[np.isinf(own[left])].tolist()
    return with_rate_of(fit.links, idle(fit, unknown, flows), math.inf)


def _narrower(fit: Fit, flows: Flows, rate: Floats) -> Links | None:
    """Return links of which the one that was most overrated has what it carried.

    The fit blames the link that holds a flow back. One that starts with the rate of
    others, and whose flows all cross a second full link, is never blamed: what it
    carried in its fullest rounds shows that it is narrower.
    """
    link, (got, due) = flows.on_shared(rate, fit.due)
    known = np.isfinite(due)
    which, ratio = _fullest(link[known], got[known] / due[known])
    if not ratio.min(initial=1.0) < SATURATED:
        return None
    worst = which[ratio.argmin()]
    carried = float(np.quantile(got[link == worst], FULLEST))
    return with_rate_of(fit.links, worst, carried)


def _nats(before: Floats, after: Floats, rate: Floats) -> float:
    """Return how many nats better flows are explained by the rates predicted after.

    Log errors are taken to have Laplace's distribution.
    """
    known = np.isfinite(before) & np.isfinite(after)
    if not known.any():
        return 0.0
    errors = [
        max(float(np.mean(np.abs(np.log(due[known] / rate[known])))), LEAST_ERROR)
        for due in (before, after)
    ]
    return float(known.sum()) * math.log(errors[0] / errors[1])


class Fit(NamedTuple):
    """Links, and what they predict: bytes/s of each flow, and the link that limits it.

    As of `Flows.shared`.
    """

    links: Links
    due: Floats
    limits: Ints


def fitted_links(
    links: Links,
    flows: Flows,
    rate: Floats,
    carried: Floats | None = None,
    alike: Ints | None = None,
) -> Fit:
    """Return links with the rates that predict the rounds best, and what they predict.

    Each step predicts all rounds with max-min fairness and scales each link by
    what it carried when it was full over what it should have carried: in the
    median round, because a flow that stalls says nothing of the link. It ends
    when the mean error no longer falls, so the result is never worse than the
    start.

    Parameters
    ----------
    links : Links
        With rates to start from; infinite ones stay so.
    rate : ndarray of float64, shape (flows,)
        Bytes/s that were measured.
    carried : ndarray of float64, shape (2 links,), optional
        What each link, up ones and then down ones, carries at least; NaN for no such
        bound. Who shares a link is judged without: groups that are wrong then look
        as good as those that are right.
    alike : ndarray of int64, optional
        Positions of links that have one rate, both ways, and are corrected as one.
    """
    best, least = None, math.inf
    for _ in range(STEPS):
        if carried is not None:
            links = _at_least(links, carried)
        fit = Fit(links, *flows.shared(links))
        held = fit.limits >= 0
        error = math.inf
        if held.any():
            # Of each flow, not of each full link: which links are full changes.
            error = float(np.mean(np.abs(np.log(fit.due[held] / rate[held]))))
        if best is not None and not error < least:
            break
        best, least = fit, error
        full, (got, due) = flows.on_full(fit.limits, rate, fit.due)
        links = _corrected(links, full, got / due, alike)
    assert best is not None
    return best


def _at_least(links: Links, carried: Floats) -> Links:
    """Return links that can carry what they did carry; NaN says nothing."""
    up, down = np.split(carried, 2)
    return replace(links, up=np.fmax(links.up, up), down=np.fmax(links.down, down))


def _corrected(
    links: Links, full: Ints, ratio: Floats, alike: Ints | None = None
) -> Links:
    """Scale each link by its ratio in the fullest of its rounds, those alike as one."""
    count = len(links.up)
    part = np.arange(2 * count)
    if alike is not None:
        part[alike] = part[alike + count] = alike[0]
    which, quantiles = _fullest(part[full], ratio)
    scale = np.ones(2 * count)
    scale[which] = quantiles
    scale = scale[part]
    up, down = links.up * scale[:count], links.down * scale[count:]
    return replace(links, up=up, down=down)


def _fullest(link: Ints, ratio: Floats) -> tuple[Ints, Floats]:
    """Return the links there are, and for each the ratio in its fullest rounds."""
    # All quantiles at once, as numpy.quantile interpolates them.
    order = np.lexsort((ratio, link))
    link, ratio = link[order], ratio[order]
    first = np.append(0, np.flatnonzero(link[1:] != link[:-1]) + 1)[: len(link)]
    cases = np.append(first[1:], len(link)) - first
    place = FULLEST * (cases - 1)
    low = first + place.astype(np.int64)
    high = first + np.ceil(place).astype(np.int64)
    return link[first], ratio[low] + (place % 1.0) * (ratio[high] - ratio[low])


def with_rates(root: Node, fabric: Fabric, links: Links) -> Node:
    """Return the tree with the rates of `links`, NaN where these are free."""
    rates: dict[int, tuple[float, float]] = {}

    def read(node: Node, depth: int) -> str:
        """Note the rates of a node's link, and return one of its hosts."""
        name = [read(child, depth + 1) for child in node.children] or [node.name]
        if depth >= 0:
            link = links.member[depth, fabric.position(name[0])]
            rates[id(node)] = (float(links.up[link]), float(links.down[link]))
        return name[0]

    read(root, -1)

    def fill(node: Node) -> Node:
        up, down = rates.get(id(node), (math.inf, math.inf))
        return replace(
            node,
            children=tuple(map(fill, node.children)),
            uplink_bytes_per_s=up if math.isfinite(up) else math.nan,
            downlink_bytes_per_s=down if math.isfinite(down) else math.nan,
        )

    return fill(root)
