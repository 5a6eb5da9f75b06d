"""Find the order of hosts in which what a job sends is fastest, by a snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.errors import UsageError
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import fabric_of
from cloudcoll.model.cost import CostModel, interval
from cloudcoll.model.pairs import measured_share
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.solve.bounds import lower_bound
from cloudcoll.solve.constraints import Constraints
from cloudcoll.solve.finalists import (
    SEARCHED,
    RuledProblem,
    hedged,
    ruled_problem,
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
    solver = solver or ("exact" if len(names) <= EXACT_HOSTS else "local")
    slots_of = dict(zip(names, counts, strict=True))

    def choice(fabric: Fabric) -> RuledProblem:
        return ruled_problem(
            snapshot,
            schedule,
            fabric,
            slots_of,
            constraints=constraints,
            free_rank0=free_rank0,
            also=also or {},
        )

    drawn = fabric_of(snapshot).restrict(names).drawn()
    shares = [share for share, _ in drawn]
    choices = [choice(fabric) for _, fabric in drawn]
    main, *others = choices
    reason = ""
    origin, best, bound = _found(main, solver, seed, watch)
    if others and "given" in main.starts and not main.rules.rooms:
        tried = [
            _found(other, solver, seed, watch)[1] if place < SEARCHED else None
            for place, other in enumerate(others)
        ]
        found = origin
        origin, best = hedged(choices, shares, (origin, best), tried)
        reason = "any other may be slower" if found != origin == "given" else ""
    if origin != "given" and _gains_less(main, best, constraints.keep_below):
        origin, best = "given", main.starts["given"]
        reason = f"less than {100 * constraints.keep_below:g}% to gain"
    order = tuple(np.array(main.fabric.hosts)[best].tolist())
    used, left_out = order[: main.rules.seats], order[main.rules.seats :]
    confidence = drawn[0][1].confidence
    named = {"cloudcoll": best, **main.baselines}
    return RankMap(
        order=used,
        slots=tuple(slots_of[name] for name in used),
        schedule=schedule.describe(),
        predicted=_predicted(main.model, named, _random(main, names, seed)),
        intervals=_intervals(choices, shares, named),
        snapshot=snapshot.digest,
        seed=seed,
        lower_bound=bound,
        origin=origin,
        reason=reason,
        assumption=main.assumption,
        measured=measured_share(snapshot, used),
        confidence=None if math.isnan(confidence) else confidence,
        constraints=constraints.describe(),
        dropped=tuple(sorted(left_out, key=names.index)),
        breaking=_breaking(constraints, main.baselines, main.rules),
        addresses={n: at for n, at in snapshot.addresses.items() if n in used},
    )


def _found(
    problem: RuledProblem, solver: str, seed: int, watch: Watch
) -> tuple[str, Ints, float]:
    """Return where the best order comes from, the order, and its lower bound."""
    met: list[Ints] = []
    watch = replace(watch, met=met.append)
    model, starts, rules = problem.model, problem.starts, problem.rules
    best, (seconds, _) = SOLVERS[solver](
        model, list(starts.values()), rules, seed, watch
    )
    origin, taken = settle(model, starts, [best, *met], rules, seed)
    return origin, taken, seconds if solver == "exact" else lower_bound(model)


def _predicted(
    model: CostModel, orders: dict[str, Ints], randoms: Sequence[Ints]
) -> dict[str, float]:
    """Return seconds by the name of the order, and the median of random ones."""
    random = float(np.median([model.seconds(order) for order in randoms]))
    return {name: model.seconds(o) for name, o in orders.items()} | {"random": random}


def _intervals(
    choices: Sequence[RuledProblem], shares: Sequence[float], orders: dict[str, Ints]
) -> dict[str, tuple[float, float]]:
    """Return between which seconds each order should be, by its name."""
    hosts = np.array(choices[0].fabric.hosts)
    return {
        name: interval([one.seconds(hosts[o].tolist()) for one in choices], shares)
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


def _gains_less(problem: RuledProblem, order: Ints, share: float) -> bool:
    """Return whether an order gains less than `share` over the one given."""
    given = problem.starts.get("given")
    if given is None:
        return False
    kept, seconds = problem.model.seconds(given), problem.model.seconds(order)
    return bool(kept - seconds < share * kept)
