"""An order for a network that is not known for sure: good in all that it may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.cost import CostModel, Ints
from cloudcoll.fabric.tree import Fabric
from cloudcoll.schedule import Schedule
from cloudcoll.schedule.workload import Workload
from cloudcoll.snapshot import NetworkSnapshot
from cloudcoll.solve.alike import with_alike_links
from cloudcoll.solve.assumed import with_assumed_uplinks
from cloudcoll.solve.constraints import Constraints, bind
from cloudcoll.solve.orders import baseline_orders
from cloudcoll.solve.pairs import shrunk_pairs
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.starts import starting_orders

RISK = 0.05
"""How likely an order may be slower than the one given."""

NEAR = 1e-3
"""What another order has to gain over all fabrics, as a share of the expected time."""

SAME = 1e-6
"""A time longer than another by this share is as long: rounding."""

SEARCHED = 3
"""Alternatives that an order is sought for, the likeliest: each takes a search."""


@dataclass(frozen=True)
class Problem:
    """What an order is sought for on one fabric.

    Attributes
    ----------
    fabric : Fabric
        Its hosts' positions are those in all orders.
    assumption : str
        What its rates rest on beside measurements; empty for nothing.
    model : CostModel
    rules : Rules
    baselines : dict of str to ndarray of int64, shape (hosts,)
        Orders to compare with, whether they obey or not.
    starts : dict of str to ndarray of int64, shape (hosts,)
        Orders that obey.
    """

    fabric: Fabric
    assumption: str
    model: CostModel
    rules: Rules
    baselines: dict[str, Ints]
    starts: dict[str, Ints]


def posed(
    snapshot: NetworkSnapshot,
    sent: Schedule | Workload,
    measured: Fabric,
    slots_of: Mapping[str, int],
    *,
    constraints: Constraints,
    free_rank0: bool,
    also: Mapping[str, Sequence[str]],
) -> Problem:
    """Return the problem that a fabric poses.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        What the fabric was found in.
    sent : Schedule or Workload
    measured : Fabric
        Of the hosts to use.
    slots_of : mapping of str to int
        Ranks on each host, in the order given.
    constraints, free_rank0, also
        As of `cloudcoll.solve.solve`.

    Raises
    ------
    UsageError
        Constraints that nothing satisfies.
    """
    names, counts = tuple(slots_of), tuple(slots_of.values())
    fabric, assumption = with_assumed_uplinks(with_alike_links(measured))
    rules = bind(
        constraints,
        names,
        counts,
        fabric,
        free_rank0=free_rank0,
        silent=snapshot.silent,
    )
    model = CostModel(
        sent,
        fabric,
        [slots_of[name] for name in fabric.hosts],
        pairs=shrunk_pairs(snapshot, measured),
        seats=rules.seats,
    )
    orders = {**baseline_orders(names, fabric), **also}
    baselines = {name: positions(fabric, order) for name, order in orders.items()}
    starts = starting_orders(sent, baselines, fabric, rules, model.flat())
    return Problem(fabric, assumption, model, rules, baselines, starts)


def positions(fabric: Fabric, order: Sequence[str]) -> Ints:
    """Return an order of names as positions in a fabric."""
    return np.array([fabric.position(name) for name in order])


def hedged(
    problems: Sequence[Problem],
    shares: Sequence[float],
    answer: tuple[str, Ints],
    others: Sequence[Ints | None],
) -> tuple[str, Ints]:
    """Return the order to take where the fabric may be one of several.

    That is the one with the least expected time of those that are slower than the
    order given in at most `RISK` of the fabrics, by how likely these are.

    Parameters
    ----------
    problems : sequence of Problem
        The likeliest first; orders have to obey its rules.
    shares : sequence of float
        How likely each is.
    answer : (str, ndarray of int64)
        Name and order that is best for the first.
    others : sequence of ndarray or None
        What is best for each of the other problems, where that is known.

    Returns
    -------
    tuple of str and ndarray of int64
        As `answer`, by position in the first problem's fabric.
    """
    first = problems[0]
    candidates = [answer, *first.starts.items()]
    for problem, order in zip(problems[1:], others, strict=True):
        if order is not None:
            names = np.array(problem.fabric.hosts)[order]
            moved = positions(first.fabric, names.tolist())
            if first.rules.allows(moved):
                candidates.append(("search", moved))
    named = np.array(first.fabric.hosts)
    seconds = np.array(
        [
            [
                problem.model.seconds(positions(problem.fabric, named[order].tolist()))
                for problem in problems
            ]
            for _, order in candidates
        ]
    )
    given = next(i for i, (name, _) in enumerate(candidates) if i and name == "given")
    weight = np.array(shares)
    risk = (seconds > seconds[given] * (1 + SAME)) @ weight
    expected = np.where(risk <= RISK, seconds @ weight, np.inf)
    best = int(expected.argmin())
    if expected[0] <= expected[best] * (1 + NEAR):
        best = 0
    if best == given:
        return "given: any other may be slower", candidates[given][1]
    return candidates[best]
