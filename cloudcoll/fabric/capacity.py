"""How fast the links of a fabric are: what the loaded rounds show.

Flows that share a link slow each other down; flows between hosts of one
switch meet nothing but their own NICs.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.tree import Fabric, Node
from cloudcoll.snapshot import NetworkSnapshot

SATURATED = 0.85
"""Flows that get less than this share of their hosts' NICs met a full link."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def with_capacities(root: Node, snapshot: NetworkSnapshot) -> Node:
    """Return the tree with the link capacities that the loaded rounds show.

    Capacities that no round filled are NaN: not known to limit anything.

    Parameters
    ----------
    root : Node
        Of exactly the snapshot's hosts.
    snapshot : NetworkSnapshot
    """
    position = {name: i for i, name in enumerate(snapshot.names)}
    load = _Load(snapshot, _switches(root, position))

    def fill(node: Node) -> Node:
        children = tuple(map(fill, node.children))
        members = np.array([position[name] for name in node.leaves()])
        up, down = load.uplink(members) if children else load.nic(members[0])
        return replace(
            node, children=children, uplink_bytes_per_s=up, downlink_bytes_per_s=down
        )

    return replace(root, children=tuple(map(fill, root.children)))


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

    def __init__(self, snapshot: NetworkSnapshot, switch: Ints) -> None:
        flows = snapshot.flows
        # A flow of which nothing arrived says nothing of the links.
        good = np.nan_to_num(flows.bytes_per_s) > 0.0
        self.round, self.rate = flows.round[good], flows.bytes_per_s[good]
        self.src, self.dst = flows.src[good], flows.dst[good]
        near = switch[self.src] == switch[self.dst]
        self.sent = self._nics(self.src, near, len(switch))
        self.received = self._nics(self.dst, near, len(switch))

    def _nics(self, end: Ints, near: npt.NDArray[np.bool_], hosts: int) -> Floats:
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

    def uplink(self, members: Ints) -> tuple[float, float]:
        inside_src = np.isin(self.src, members)
        inside_dst = np.isin(self.dst, members)
        up = self._full(inside_src & ~inside_dst)
        down = self._full(inside_dst & ~inside_src)
        return up, down

    def _full(self, crossing: npt.NDArray[np.bool_]) -> float:
        """Return what the link carried in the rounds that filled it.

        A round filled it if several flows crossed and together got less than
        their hosts' NICs could have carried. Other links hold flows back too,
        so the fullest of those rounds tells. NaN if no round filled it, or if
        one that did not carried clearly more.
        """
        filled: list[float] = []
        free: list[float] = []
        for number in np.unique(self.round[crossing]):
            mine = crossing & (self.round == number)
            nics = np.minimum(self.sent[self.src[mine]], self.received[self.dst[mine]])
            total = float(self.rate[mine].sum())
            if mine.sum() > 1:
                full = total < SATURATED * float(nics.sum())
                (filled if full else free).append(total)
        capacity = max(filled, default=math.nan)
        wider = SATURATED * max(free, default=0.0) > capacity
        return math.nan if wider else capacity
