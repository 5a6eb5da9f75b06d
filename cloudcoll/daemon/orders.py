"""The orders a daemon keeps: solved from a snapshot, changed only for a gain."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.collectives.workload import Workload, read_workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import SURE, RankMap

SEARCH_S = 45.0
"""Seconds that the search for one order may take."""
MOST_ERROR = 0.5
"""An order that takes less than half of the time is taken whatever the error."""
IN_FORCE = "in force"
"""What the order in force is called among those that a search begins with."""


@dataclass(frozen=True)
class FoundOrder:
    """The best order by a snapshot for one question, and the one in force.

    Attributes
    ----------
    best : RankMap
        The best order, never slower than the one in force.
    kept : RankMap or None
        The order in force, with this snapshot's figures; None for no such order.
    """

    best: RankMap
    kept: RankMap | None = None

    @property
    def gain(self) -> float:
        """What the best order gains over the one in force, as a share of its time."""
        if self.kept is None:
            return 0.0
        now = self.kept.predicted["cloudcoll"]
        return 1.0 - self.best.predicted["cloudcoll"] / now if now > 0 else 0.0


@dataclass(frozen=True)
class OrderQuestion:
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

    def found(
        self, snapshot: NetworkSnapshot, order: RankMap | None = None
    ) -> FoundOrder:
        """Return the best order, and the one in force by the same figures.

        Parameters
        ----------
        snapshot : NetworkSnapshot
        order : RankMap, optional
            In force: the search begins with it, too.
        """
        # A daemon without anything to solve needs none of this.
        from cloudcoll.solve import Watch, solve
        from cloudcoll.solve.constraints import Constraints

        # Below what the model misses, a gain may be none, unless it is sure who shares
        # a link: that is what an order gains by.
        fabric = snapshot.fabric
        error = fabric.holdout_error if fabric else math.nan
        sure = fabric is not None and fabric.confidence >= SURE
        least = 0.0 if sure or math.isnan(error) else round(min(error, MOST_ERROR), 2)
        best = solve(
            snapshot,
            self.sent,
            given=self.hosts,
            slots=self.slots,
            free_rank0=self.free_rank0,
            constraints=Constraints(keep_below=least),
            also={IN_FORCE: order.order} if order else None,
            watch=Watch(SEARCH_S),
        )
        if order is None:
            return FoundOrder(best)
        others = {name: s for name, s in best.predicted.items() if name != IN_FORCE}
        seconds = {**others, "cloudcoll": best.predicted[IN_FORCE]}
        kept = replace(
            best,
            order=order.order,
            slots=order.slots,
            origin=order.origin,
            reason=order.reason,
            predicted=seconds,
        )
        return FoundOrder(replace(best, predicted=others), kept)

    def seconds(self, order: RankMap, fabric: Fabric) -> float:
        """Return what an order takes on a fabric that beats follow, in seconds."""
        from cloudcoll.model import problem_on

        slots = dict(zip(order.order, order.slots, strict=True))
        problem = problem_on(fabric.restrict(order.order), self.sent, slots)
        return problem.seconds(order.order)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-ready values; `from_dict` reads them back."""
        return {**vars(self), "sent": self.sent.describe()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> OrderQuestion:
        """Return the question that `to_dict` made these values of.

        Raises
        ------
        UsageError
            What is sent is not known here.
        """
        lists = {name: tuple(data[name]) for name in ("hosts", "slots")}
        return cls(**{**data, **lists, "sent": _sent(data["sent"])})


def _sent(form: Mapping[str, Any]) -> Schedule | Workload:
    """Return the schedule or workload that describes itself so."""
    if "operations" in form:
        return read_workload(json.dumps(form), "the daemon's question")
    collective, algorithm, ranks, size = (
        form[name] for name in ("collective", "algorithm", "ranks", "size")
    )
    library, parameters = form.get("run_by", ""), form.get("parameters", {})
    return build_schedule(collective, algorithm, ranks, size, library, **parameters)
