"""The orders a daemon keeps: solved from a snapshot, changed only for a gain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cloudcoll.daemon.judge import predicted_seconds
from cloudcoll.fabric.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.schedule import Schedule
from cloudcoll.schedule.workload import Workload
from cloudcoll.snapshot import NetworkSnapshot
from cloudcoll.solve import Watch, solve

SEARCH_S = 45.0
"""Seconds that the search for one order may take."""


@dataclass(frozen=True)
class Question:
    """What an order is wanted for.

    Attributes
    ----------
    key : str
        Names it: the same that ``cloudcoll run`` has for this job.
    sent : Schedule or Workload
    hosts : tuple of str
        In the user's order.
    slots : tuple of int
    free_rank0 : bool
        Whether the host of rank 0 may move.
    """

    key: str
    sent: Schedule | Workload
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    free_rank0: bool = False

    def solved(self, snapshot: NetworkSnapshot) -> RankMap:
        """Return the best order."""
        return solve(
            snapshot,
            self.sent,
            given=self.hosts,
            slots=self.slots,
            free_rank0=self.free_rank0,
            watch=Watch(SEARCH_S),
        )

    def gain(self, snapshot: NetworkSnapshot, order: RankMap) -> float:
        """Return what the best order gains over `order`, as a share of its time."""
        best = self._against(snapshot, order)
        now = best.predicted["given"]
        return 1.0 - best.predicted["cloudcoll"] / now if now > 0 else 0.0

    def kept(self, snapshot: NetworkSnapshot, order: RankMap) -> RankMap:
        """Return the map of the same order, with what a new snapshot says of it."""
        fresh = self.solved(snapshot)
        seconds = self._against(snapshot, order).predicted["given"]
        predicted = {**fresh.predicted, "cloudcoll": seconds}
        return replace(
            fresh,
            order=order.order,
            slots=order.slots,
            origin=order.origin,
            predicted=predicted,
        )

    def _against(self, snapshot: NetworkSnapshot, order: RankMap) -> RankMap:
        """Return the best order, to which `order` is the one given."""
        return replace(self, hosts=order.order, slots=order.slots).solved(snapshot)

    def drift(self, order: RankMap, then: Fabric, now: Fabric) -> float:
        """Return the order's predicted time by one fabric over that by another."""
        before = predicted_seconds(then, self.sent, order.order, order.slots)
        after = predicted_seconds(now, self.sent, order.order, order.slots)
        return after / before if before > 0 else math.nan
