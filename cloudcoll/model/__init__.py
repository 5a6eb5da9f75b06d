"""How long an order of hosts should take: the prediction that all commands use.

It assumes more of links than was measured. Links that differ by no more than they
were measured to are taken as alike: an order tuned to the errors of a measurement is
slower than one that knows of no difference. Rates and latencies of one level are
shrunk toward their mean as far as the fabric's own error explains their spread.
Uplinks that were never seen full are given what uplinks of their kind carry. What
messages cost ranks is added where that was measured, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model.cost import CostModel
from cloudcoll.model.message_costs import beside
from cloudcoll.model.pairs import shrunk_pairs
from cloudcoll.network.tree import Fabric, Node, Pairs

__all__ = [
    "KnownNetwork",
    "Problem",
    "fabric_of",
    "network_of",
    "problem_of",
    "problem_on",
]


@dataclass(frozen=True)
class KnownNetwork:
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
        Of what the network takes.
    beside : float
        Seconds that messages cost ranks beside, in any order.
    """

    fabric: Fabric
    assumption: str
    model: CostModel
    beside: float

    @property
    def costs_known(self) -> bool:
        """Whether what messages cost is in the seconds: see `cost.interval`."""
        return self.beside > 0.0

    def seconds(self, order: Sequence[str]) -> float:
        """Return the predicted seconds of an order of the hosts' names."""
        return self.model.seconds(self.positions(order)) + self.beside

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
    nothing is known are assumed, pairs have figures of their own where these tell more
    than the fabric, and messages cost what was measured of the library.

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
    slots = list(slots_of.values())[:seats]
    return replace(
        problem, assumption=network.assumption, beside=beside(snapshot, sent, slots)
    )


def network_of(
    snapshot: NetworkSnapshot, names: Sequence[str], *, fabric: Fabric | None = None
) -> KnownNetwork:
    """Return what `problem_of` predicts on: for many predictions on the same hosts."""
    measured = (fabric_of(snapshot) if fabric is None else fabric).restrict(
        tuple(names)
    )
    alike, assumption = with_assumed_uplinks(with_alike_links(measured))
    return KnownNetwork(alike, assumption, shrunk_pairs(snapshot, measured))


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
    return Problem(fabric, "", CostModel(sent, fabric, counts, pairs, seats), 0.0)


def fabric_of(snapshot: NetworkSnapshot) -> Fabric:
    """Return the fabric that a snapshot carries, or infer it now."""
    if snapshot.fabric is None:
        from cloudcoll.infer import infer_fabric

        return infer_fabric(snapshot)
    return snapshot.fabric


FIGURES = ("uplink_bytes_per_s", "downlink_bytes_per_s", "latency_s")


def with_alike_links(fabric: Fabric) -> Fabric:
    """Return a fabric to search on: without differences that may be noise.

    The logarithm of a figure keeps the share ``1 - error^2 / variance`` of its
    distance from the mean of its level, or none (positive-part empirical Bayes,
    Efron and Morris 1973). The error is that on held-out measurements: more than
    that of most links, so that small true differences go, too. The fabric stays where
    that is not known.
    """
    if math.isnan(fabric.holdout_error):
        return fabric
    levels: dict[int, list[Node]] = {}
    for level, node in _levels(fabric.root, 0):
        levels.setdefault(level, []).append(node)
    shrunk = {
        (level, name): _shrunk([getattr(n, name) for n in nodes], fabric.holdout_error)
        for level, nodes in levels.items()
        for name in FIGURES
    }

    def walk(node: Node, level: int) -> Node:
        children = tuple(walk(child, level + 1) for child in node.children)
        figures = {
            name: shrunk[level, name].get(value, value)
            for name in FIGURES
            if not math.isnan(value := getattr(node, name))
        }
        return replace(node, children=children, **figures)

    return replace(fabric, root=walk(fabric.root, 0))


def _levels(node: Node, depth: int) -> Iterator[tuple[int, Node]]:
    """Yield every node with its distance from the root."""
    yield depth, node
    for child in node.children:
        yield from _levels(child, depth + 1)


def _shrunk(values: list[float], error: float) -> dict[float, float]:
    """Return what to take for each value that says something."""
    known = np.array([value for value in values if 0 < value < math.inf])
    if len(known) < 2:
        return {}
    logs = np.log(known)
    variance = float(logs.var(ddof=1))
    kept = max(0.0, 1 - error**2 / variance) if variance > 0 else 1.0
    shrunk = np.exp(logs.mean() + kept * (logs - logs.mean()))
    return dict(zip(known.tolist(), shrunk.tolist(), strict=True))


CARD = 1.25e9
"""Bytes/s assumed of a card of unknown rate: 10 Gbit/s."""

OVERSUBSCRIPTION = 4.0
"""Assumed of each group: its hosts' rates over that of its uplink."""

ASSUMPTION = (
    f"assumed, not measured: uplinks {OVERSUBSCRIPTION:g}:1, unknown cards alike; "
    "'cloudcoll probe' measures them"
)


def with_assumed_uplinks(fabric: Fabric) -> tuple[Fabric, str]:
    """Return a fabric to judge orders by, and what is assumed of it, empty for nothing.

    The same if it was measured by a probe, where any uplink or latency is known, or
    where there are no groups.
    """
    measured = fabric.origin not in ("labels", "imported")
    has_figures = measured or fabric.links.latency.any()
    if has_figures or not fabric.uplinks() or fabric.shares_links():
        return fabric, ""
    return replace(fabric, root=_assumed(fabric.root)[0]), ASSUMPTION


def _assumed(node: Node) -> tuple[Node, float]:
    """Return the node with assumed rates, and the bytes/s of its hosts."""
    if not node.children:
        ways = (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
        up, down = (CARD if math.isnan(rate) else rate for rate in ways)
        return replace(node, uplink_bytes_per_s=up, downlink_bytes_per_s=down), up
    children, rates = zip(*map(_assumed, node.children), strict=True)
    total = sum(rates)
    # No uplink is narrower than a card.
    uplink = total / min(OVERSUBSCRIPTION, len(list(node.leaves())))
    filled = replace(
        node,
        children=children,
        uplink_bytes_per_s=uplink,
        downlink_bytes_per_s=uplink,
    )
    return filled, total
