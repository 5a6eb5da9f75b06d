"""How fast the links of a fabric are: what the loaded rounds show.

Flows that share a link slow each other down; flows between hosts of one
switch meet nothing but their own NICs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cloudcoll.infer.measured import Measured
from cloudcoll.network.links import Links
from cloudcoll.network.tree import Fabric, Node

SATURATED = 0.85
"""Flows that get less than this share of their hosts' NICs met a full link."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def with_capacities(root: Node, seen: Measured) -> Node:
    """Return the tree with the link capacities that the loaded rounds show.

    Capacities that no round filled are NaN: not known to limit anything.

    Parameters
    ----------
    root : Node
        Of exactly the measured hosts.
    seen : Measured
    """
    position = {name: i for i, name in enumerate(seen.names)}
    load = _Load(seen, _switches(root, position))

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


def group_links(labels: Ints, seen: Measured) -> Links:
    """Return the links of hosts in groups below one core, with the rates seen.

    What `with_capacities` finds for a tree of a single level.

    Parameters
    ----------
    labels : ndarray of int64, shape (hosts,)
        The group of each measured host, from 0 on: a host that is alone in its
        group hangs on the core, and so do all where there is only one.
    seen : Measured

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
    load = _Load(seen, np.where(alone, 0, above))
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


def _nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    for child in node.children:
        yield from _nodes(child)


def _groups(node: Node) -> list[Node]:
    return [child for child in node.children if child.children]


def _switches(root: Node, position: dict[str, int]) -> Ints:
    """Return for each host the number of the group that it hangs on."""
    switch = np.zeros(len(position), dtype=np.int64)
    groups = [group for level in Fabric(root).groups() for group in level]
    for number, group in enumerate(groups):
        for child in group.children:
            if not child.children:
                switch[position[child.name]] = number
    return switch


class _Load:
    """The loaded rounds, asked for what a link carried."""

    def __init__(self, seen: Measured, switch: Ints) -> None:
        self.round, self.rate = seen.round, seen.rate
        self.src, self.dst = seen.src, seen.dst
        near = switch[self.src] == switch[self.dst]
        self.sent = self._nics(self.src, near, len(switch))
        self.received = self._nics(self.dst, near, len(switch))
        ends = np.concatenate([self.src, self.dst])
        # Of a host that took no part nothing is known.
        silent = np.setdiff1d(np.arange(len(switch)), ends)
        self.sent[silent] = self.received[silent] = math.nan
        self.free = np.minimum(self.sent[self.src], self.received[self.dst])
        self.slow = self.rate < SATURATED * self.free

    def _nics(self, end: Ints, near: Flags, hosts: int) -> Floats:
        """Return the highest rate of each host at this end of its flows.

        Flows that stay below one switch tell; others only where there are
        none of those at all. A host without any is taken to be like the rest.
        """
        chosen = near if near.any() else ~near
        best = np.full(hosts, math.nan)
        np.fmax.at(best, end[chosen], self.rate[chosen])
        if chosen.any():
            best[np.isnan(best)] = np.nanmedian(best)
        return best

    def nic(self, host: int) -> tuple[float, float]:
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
        told = (busy & self.slow & (busy.sum(axis=0) == 1)).any(axis=1)
        ends = np.cumsum([2 * len(below) for below in switches])
        for alike in np.split(np.arange(len(masks)), ends[:-1]):
            sure = alike[told[alike]] if told[alike].any() else alike
            rest = alike[~told[alike]]
            widest = np.fmax.reduce(capacity[sure], initial=0.0)
            capacity[rest] = np.maximum(capacity[rest], widest)
        cards = [
            way[group].sum() for group in groups for way in (self.sent, self.received)
        ]
        with np.errstate(invalid="ignore"):
            capacity[~told & (capacity >= np.array(cards))] = math.nan
        return [(float(up), float(down)) for up, down in capacity.reshape(-1, 2)]

    def _crossing(self, members: Ints) -> tuple[Flags, Flags]:
        """Return which flows leave a group and which enter it."""
        inside = np.zeros(len(self.sent), dtype=bool)
        inside[members] = True
        leaves, enters = inside[self.src], inside[self.dst]
        return leaves & ~enters, enters & ~leaves

    def _totals(self, masks: Flags) -> Floats:
        """Return bytes/s that each set of flows carried, by round."""
        rounds = int(self.round.max(initial=-1)) + 1
        return np.array(
            [np.bincount(self.round[m], self.rate[m], rounds) for m in masks]
        )

    def _full(self, crossing: Flags, totals: Floats) -> float:
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
