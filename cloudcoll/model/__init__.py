"""How long an order of hosts should take: the prediction that all commands use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.assumptions import with_alike_links, with_assumed_uplinks
from cloudcoll.model.cost import CostModel
from cloudcoll.model.pairs import shrunk_pairs
from cloudcoll.network.links import Pairs
from cloudcoll.network.tree import Fabric

__all__ = ["Problem", "fabric_of", "problem_of", "problem_on"]


@dataclass(frozen=True)
class Problem:
    """What is sent on which fabric: predicts what orders of hosts take.

    Attributes
    ----------
    fabric : Fabric
        Of the hosts to use; positions in it are those of the model.
    assumption : str
        What its rates rest on beside measurements; empty for nothing.
    model : CostModel
    """

    fabric: Fabric
    assumption: str
    model: CostModel

    def seconds(self, order: Sequence[str]) -> float:
        """Return the predicted seconds of an order of the hosts' names."""
        return self.model.seconds(self.positions(order))

    def positions(self, order: Sequence[str]) -> Ints:
        """Return an order of names as positions in the fabric."""
        return np.array([self.fabric.position(name) for name in order])


def problem_of(
    snapshot: NetworkSnapshot,
    sent: Schedule | Workload,
    slots_of: Mapping[str, int],
    *,
    fabric: Fabric | None = None,
    seats: int | None = None,
) -> Problem:
    """Return what all predictions for a snapshot are made with.

    Links that differ by no more than noise are taken as alike, uplinks of which
    nothing is known are assumed, and pairs have figures of their own where these
    tell more than the fabric.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none.
    sent : Schedule or Workload
        Of as many ranks as the slots, or those of the first seats, add up to.
    slots_of : mapping of str to int
        Ranks on each host to use.
    fabric : Fabric, optional
        Of these hosts and perhaps more, in place of the snapshot's.
    seats : int, optional
        How many hosts of an order have ranks, the first ones; all by default.
    """
    measured = (fabric_of(snapshot) if fabric is None else fabric).restrict(
        tuple(slots_of)
    )
    alike, assumption = with_assumed_uplinks(with_alike_links(measured))
    pairs = shrunk_pairs(snapshot, measured)
    problem = problem_on(alike, sent, slots_of, pairs=pairs, seats=seats)
    return replace(problem, assumption=assumption)


def problem_on(
    fabric: Fabric,
    sent: Schedule | Workload,
    slots_of: Mapping[str, int],
    *,
    pairs: Pairs | None = None,
    seats: int | None = None,
) -> Problem:
    """Return the problem on a fabric as it stands.

    For one that has changed since it was measured: what noise may explain of it, and
    what was measured of pairs, is then no guide.

    Parameters
    ----------
    fabric : Fabric
        Of exactly the hosts to use.
    sent, slots_of, seats
        As of `problem_of`.
    pairs : Pairs, optional
        Figures of pairs, by position in the fabric.
    """
    counts = [slots_of[name] for name in fabric.hosts]
    return Problem(fabric, "", CostModel(sent, fabric, counts, pairs, seats))


def fabric_of(snapshot: NetworkSnapshot) -> Fabric:
    """Return the fabric that a snapshot carries, or infer it now."""
    if snapshot.fabric is None:
        from cloudcoll.infer.fabric import infer_fabric

        return infer_fabric(snapshot)
    return snapshot.fabric
