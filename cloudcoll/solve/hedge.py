"""Choose an order that is good on every fabric that the network may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import Problem, problem_of
from cloudcoll.network.tree import Fabric
from cloudcoll.solve.constraints import Constraints, bind
from cloudcoll.solve.orders import baseline_orders
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
class Choice(Problem):
    """The problem of one fabric, with its rules and where a search starts.

    Attributes
    ----------
    fabric, assumption, model
        As of `Problem`; positions of hosts are those in all orders.
    rules : Rules
    baselines : dict of str to ndarray of int64, shape (hosts,)
        Orders to compare with, whether they obey or not.
    starts : dict of str to ndarray of int64, shape (hosts,)
        Orders that obey.
    """

    rules: Rules
    baselines: dict[str, Ints]
    starts: dict[str, Ints]


def choice_of(
    snapshot: NetworkSnapshot,
    sent: Schedule | Workload,
    fabric: Fabric,
    slots_of: Mapping[str, int],
    *,
    constraints: Constraints,
    free_rank0: bool,
    also: Mapping[str, Sequence[str]],
) -> Choice:
    """Return the problem of a fabric, with its rules and where a search starts.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        What the fabric was found in.
    sent : Schedule or Workload
    fabric : Fabric
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
    rules = bind(
        constraints,
        names,
        counts,
        fabric,
        free_rank0=free_rank0,
        silent=snapshot.silent,
    )
    problem = problem_of(snapshot, sent, slots_of, fabric=fabric, seats=rules.seats)
    orders = {**baseline_orders(names, problem.fabric), **also}
    baselines = {name: problem.positions(order) for name, order in orders.items()}
    flat = problem.model.flat()
    starts = starting_orders(sent, baselines, problem.fabric, rules, flat)
    return Choice(**vars(problem), rules=rules, baselines=baselines, starts=starts)


def hedged(
    problems: Sequence[Choice],
    shares: Sequence[float],
    answer: tuple[str, Ints],
    others: Sequence[Ints | None],
) -> tuple[str, Ints]:
    """Return the order to take where the fabric may be one of several.

    That is the one with the least expected time of those that are slower than the
    order given in at most `RISK` of the fabrics, by how likely these are.

    Parameters
    ----------
    problems : sequence of Choice
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
            moved = first.positions(names.tolist())
            if first.rules.allows(moved):
                candidates.append(("search", moved))
    named = np.array(first.fabric.hosts)
    seconds = np.array(
        [
            [problem.seconds(named[order].tolist()) for problem in problems]
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
    return candidates[best]
