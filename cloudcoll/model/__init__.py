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

__all__ = [
    "Network",
    "Problem",
    "fabric_of",
    "network_of",
    "problem_of",
    "problem_on",
]


@dataclass(frozen=True)
class Network:
    """What is sent on: all that predictions for some hosts of a snapshot share.

    Attributes
    ----------
    fabric : Fabric
        Of the hosts to use, links that differ by noise alone taken as alike.
    assumption : str
        What its rates rest on beside measurements; empty for nothing.
    pairs : Pairs or None
        Figures of pairs, where these tell more than the fabric.
    """

    fabric: Fabric
    assumption: str
    pairs: Pairs | None


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
    network = network_of(snapshot, tuple(slots_of), fabric=fabric)
    problem = problem_on(
        network.fabric, sent, slots_of, pairs=network.pairs, seats=seats
    )
    return replace(problem, assumption=network.assumption)


def network_of(
    snapshot: NetworkSnapshot, names: Sequence[str], *, fabric: Fabric | None = None
) -> Network:
    """Return what `problem_of` predicts on: for many predictions on the same hosts.

    Parameters
    ----------
    snapshot, fabric
        As of `problem_of`.
    names : sequence of str
        Of the hosts to use.
    """
    measured = (fabric_of(snapshot) if fabric is None else fabric).restrict(
        tuple(names)
    )
    alike, assumption = with_assumed_uplinks(with_alike_links(measured))
    return Network(alike, assumption, shrunk_pairs(snapshot, measured))


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
