"""Find the order of hosts in which what a job sends is fastest, by a snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.errors import UsageError
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import fabric_of
from cloudcoll.model.cost import interval
from cloudcoll.model.pairs import measured_share
from cloudcoll.rankmap import RankMap
from cloudcoll.solve.bounds import lower_bound
from cloudcoll.solve.constraints import Constraints, RuledProblem, ruled_problem
from cloudcoll.solve.finalists import (
    SEARCHED,
    gain_as_flows,
    hedged,
    settle,
)
from cloudcoll.solve.orders import random_orders
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import (
    EXACT_HOSTS,
    UNWATCHED,
    Search,
    Watch,
    exhaustive,
    local_search,
)

__all__ = ["SOLVERS", "Constraints", "Watch", "solve"]

SOLVERS: dict[str, Search] = {"exact": exhaustive, "local": local_search}
"""Name -> search."""

RANDOM_ORDERS = 5
"""Random orders whose median stands as the ``random`` baseline."""


def solve(
    snapshot: NetworkSnapshot,
    schedule: Schedule | Workload,
    *,
    given: Sequence[str] | None = None,
    slots: Sequence[int] | None = None,
    seed: int = 0,
    free_rank0: bool = False,
    solver: str | None = None,
    constraints: Constraints | None = None,
    also: Mapping[str, Sequence[str]] | None = None,
    watch: Watch = UNWATCHED,
) -> RankMap:
    """Return the best order found, never worse than the one given.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none. Of groups that only labels or
        others know, uplinks are assumed, and the map says so.
    schedule : Schedule or Workload
        Of as many ranks as the slots of the hosts to use add up to.
    given : sequence of str, optional
        Host names in the user's order; the snapshot's order by default.
    slots : sequence of int, optional
        Ranks on each host of `given`; one each by default.
    seed : int
        Of the search and of the random baseline, 0 or more.
    free_rank0 : bool
        Let the host of rank 0 move. By default it stays, so that addresses,
        logs and checkpoints tied to rank 0 stay valid.
    solver : str, optional
        A key of `SOLVERS`; ``exact`` for few hosts, else ``local``.
    constraints : Constraints, optional
        What else the order has to keep. A baseline that does not is predicted
        all the same, but never taken.
    also : mapping of str to sequence of str, optional
        More orders of the same hosts, by name: predicted, never beaten by worse.
    watch : Watch
        How long the search may take, and who is told how far it is.

    Raises
    ------
    UsageError
        A host that the snapshot does not have, an unknown solver, slots that
        do not fit the schedule, or constraints that nothing satisfies.
    """
    names = tuple(snapshot.names if given is None else given)
    counts = tuple([1] * len(names) if slots is None else slots)
    constraints = constraints or Constraints()
    _check(names, counts, solver, seed)
    drawn = fabric_of(snapshot).restrict(names).drawn()
    choices = [
        ruled_problem(
            snapshot,
            schedule,
            fabric,
            dict(zip(names, counts, strict=True)),
            constraints=constraints,
            free_rank0=free_rank0,
            also=also or {},
        )
        for _, fabric in drawn
    ]
    shares = [share for share, _ in drawn]
    solver = solver or ("exact" if len(names) <= EXACT_HOSTS else "local")
    found = _hedged(choices, shares, solver, seed, watch)
    found = _worth_it(choices, shares, found, constraints.keep_below)
    rank_map = _rank_map(choices, shares, found, names, counts, seed)
    confidence = drawn[0][1].confidence
    return replace(
        rank_map,
        schedule=schedule.describe(),
        snapshot=snapshot.digest,
        measured=measured_share(snapshot, rank_map.order),
        confidence=None if math.isnan(confidence) else confidence,
        constraints=constraints.describe(),
        breaking=_breaking(constraints, choices[0].baselines, choices[0].rules),
        addresses={
            n: at for n, at in snapshot.addresses.items() if n in rank_map.order
        },
    )


class _Found(NamedTuple):
    """An order, where it comes from, its lower bound, and why it was taken if told."""

    origin: str
    order: Ints
    bound: float
    reason: str = ""


def _hedged(
    choices: Sequence[RuledProblem],
    shares: Sequence[float],
    solver: str,
    seed: int,
    watch: Watch,
) -> _Found:
    """Return the best order on the first of several fabrics that is safe on all."""
    main, *others = choices
    found = _best(main, solver, seed, watch)
    if not others or "given" not in main.starts or main.rules.rooms:
        return found
    tried = [
        _best(other, solver, seed, watch).order if place < SEARCHED else None
        for place, other in enumerate(others)
    ]
    origin, order = hedged(choices, shares, (found.origin, found.order), tried)
    kept = found.origin != origin == "given"
    reason = "any other may be slower" if kept else ""
    return _Found(origin, order, found.bound, reason)


def _worth_it(
    choices: Sequence[RuledProblem],
    shares: Sequence[float],
    found: _Found,
    least: float,
) -> _Found:
    """Return what was found, or the order given if less than `least` is to gain."""
    main = choices[0]
    given = main.starts.get("given")
    if found.origin == "given" or given is None:
        return found
    slower = main.model.seconds(found.order) > main.model.seconds(given)
    # Of orders that take as long by the cost model one may win as flows.
    if not slower and (
        not least
        or _expected_gain(choices, shares, given, found.order) >= least
        or gain_as_flows(given, found.order, main.model) >= least
    ):
        return found
    reason = f"less than {100 * least:g}% to gain"
    return _Found("given", given, found.bound, reason)


def _expected_gain(
    choices: Sequence[RuledProblem], shares: Sequence[float], given: Ints, order: Ints
) -> float:
    """Return the share of its time that an order should save, over all fabrics."""
    hosts = np.array(choices[0].fabric.hosts)
    seconds = np.array(
        [
            [one.seconds(hosts[each].tolist()) for each in (given, order)]
            for one in choices
        ]
    )
    kept, taken = np.array(shares) @ seconds
    return float(1 - taken / kept) if kept > 0 else 0.0


def _rank_map(
    choices: Sequence[RuledProblem],
    shares: Sequence[float],
    found: _Found,
    names: Sequence[str],
    counts: Sequence[int],
    seed: int,
) -> RankMap:
    """Return the map of an order, with its predictions on all fabrics."""
    main = choices[0]
    slots_of = dict(zip(names, counts, strict=True))
    order = tuple(np.array(main.fabric.hosts)[found.order].tolist())
    used, left_out = order[: main.rules.seats], order[main.rules.seats :]
    named = {"cloudcoll": found.order, **main.baselines}
    return RankMap(
        order=used,
        slots=tuple(slots_of[name] for name in used),
        predicted=_predicted(main, named, _random(main, names, seed)),
        intervals=_intervals(choices, shares, named),
        seed=seed,
        lower_bound=found.bound + main.beside,
        origin=found.origin,
        reason=found.reason,
        assumption=main.assumption,
        dropped=tuple(sorted(left_out, key=names.index)),
    )


def _best(problem: RuledProblem, solver: str, seed: int, watch: Watch) -> _Found:
    """Return the best order of one fabric."""
    met: list[Ints] = []
    watch = replace(watch, met=met.append)
    model, starts, rules = problem.model, problem.starts, problem.rules
    best, (seconds, _) = SOLVERS[solver](
        model, list(starts.values()), rules, seed, watch
    )
    origin, taken = settle(model, starts, [best, *met], rules, seed)
    return _Found(origin, taken, seconds if solver == "exact" else lower_bound(model))


def _predicted(
    main: RuledProblem, orders: dict[str, Ints], randoms: Sequence[Ints]
) -> dict[str, float]:
    """Return seconds by the name of the order, and the median of random ones."""
    seconds = {name: main.model.seconds(order) for name, order in orders.items()}
    seconds["random"] = float(np.median([main.model.seconds(one) for one in randoms]))
    return {name: each + main.beside for name, each in seconds.items()}


def _intervals(
    choices: Sequence[RuledProblem], shares: Sequence[float], orders: dict[str, Ints]
) -> dict[str, tuple[float, float]]:
    """Return between which seconds each order should be, by its name."""
    main, hosts = choices[0], np.array(choices[0].fabric.hosts)
    return {
        name: interval(
            [one.seconds(hosts[o].tolist()) for one in choices],
            shares,
            costs_known=main.costs_known,
        )
        for name, o in orders.items()
    }


def _random(main: RuledProblem, names: Sequence[str], seed: int) -> list[Ints]:
    orders = random_orders(names, RANDOM_ORDERS, seed)
    return [main.positions(order) for order in orders]


def _check(
    names: Sequence[str], slots: Sequence[int], solver: str | None, seed: int
) -> None:
    if not names:
        raise UsageError("no hosts to order: name at least one")
    if len(slots) != len(names):
        raise UsageError(f"{len(names)} hosts but {len(slots)} slot counts")
    RankMap(tuple(names), tuple(slots))  # refuses hosts named twice, slots below 1
    if solver is not None and solver not in SOLVERS:
        raise UsageError(f"unknown solver {solver!r} (known: {', '.join(SOLVERS)})")
    if seed < 0:
        raise UsageError(f"seed {seed}: give 0 or more")


def _breaking(
    constraints: Constraints, baselines: dict[str, Ints], rules: Rules
) -> tuple[str, ...]:
    """Name the baselines that break a constraint, if any was set.

    Without, they may have another host in front; nobody asked for that one.
    """
    if not (constraints.pins or constraints.same_rack):
        return ()
    return tuple(name for name, order in baselines.items() if not rules.allows(order))
