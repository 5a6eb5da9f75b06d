"""Find the order of hosts in which a schedule runs fastest on a fabric."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cloudcoll.cost import CostModel, Ints
from cloudcoll.errors import UsageError
from cloudcoll.fabric.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.schedule import Schedule
from cloudcoll.schedule.workload import Workload
from cloudcoll.snapshot import NetworkSnapshot
from cloudcoll.solve.assumed import with_assumed_uplinks
from cloudcoll.solve.bounds import lower_bound
from cloudcoll.solve.orders import baseline_orders, laid_orders, random_orders
from cloudcoll.solve.search import (
    EXACT_HOSTS,
    UNWATCHED,
    Search,
    Watch,
    exhaustive,
    local_search,
)

__all__ = ["SOLVERS", "Watch", "fabric_of", "solve"]

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
    watch: Watch = UNWATCHED,
) -> RankMap:
    """Return the best order found, never worse than the one given.

    Parameters
    ----------
    snapshot : NetworkSnapshot
        Its fabric is inferred if it carries none. Of groups that only labels or
        others know, uplinks are assumed, and the map says so.
    schedule : Schedule or Workload
        Of as many ranks as the slots add up to.
    given : sequence of str, optional
        Host names in the user's order; the snapshot's order by default.
    slots : sequence of int, optional
        Ranks on each host of `given`; one each by default.
    seed : int
        Of the search and of the random baseline.
    free_rank0 : bool
        Let the host of rank 0 move. By default it stays, so that addresses,
        logs and checkpoints tied to rank 0 stay valid.
    solver : str, optional
        A key of `SOLVERS`; ``exact`` for few hosts, else ``local``.
    watch : Watch
        How long the search may take, and who is told how far it is.

    Raises
    ------
    UsageError
        A host that the snapshot does not have, an unknown solver, or slots
        that do not fit the schedule.
    """
    names = tuple(snapshot.names if given is None else given)
    counts = tuple([1] * len(names) if slots is None else slots)
    _check(names, counts, solver)
    fabric, assumption = with_assumed_uplinks(fabric_of(snapshot).restrict(names))
    slots_of = dict(zip(names, counts, strict=True))
    model = CostModel(schedule, fabric, [slots_of[name] for name in fabric.hosts])

    def positions(order: Sequence[str]) -> Ints:
        return np.array([fabric.position(name) for name in order])

    baselines = {
        name: positions(order) for name, order in baseline_orders(names, fabric).items()
    }
    pinned = 0 if free_rank0 else 1
    starts = _starts(schedule, baselines, counts, pinned)
    solver = solver or ("exact" if len(names) <= EXACT_HOSTS else "local")
    best, (found, _) = SOLVERS[solver](
        model, list(starts.values()), pinned, seed, watch
    )
    origin = _origin(model, starts, best)
    best = starts.get(origin, best)
    order = tuple(fabric.hosts[i] for i in best)
    randoms = [positions(some) for some in random_orders(names, RANDOM_ORDERS, seed)]
    return RankMap(
        order=order,
        slots=tuple(slots_of[name] for name in order),
        schedule=schedule.describe(),
        predicted={
            "cloudcoll": model.seconds(best),
            **{name: model.seconds(start) for name, start in baselines.items()},
            "random": float(np.median([model.seconds(some) for some in randoms])),
        },
        snapshot=snapshot.digest,
        seed=seed,
        lower_bound=found if solver == "exact" else lower_bound(model),
        origin=origin,
        assumption=assumption,
    )


def _check(names: Sequence[str], slots: Sequence[int], solver: str | None) -> None:
    if not names:
        raise UsageError("no hosts to order: name at least one")
    if len(slots) != len(names):
        raise UsageError(f"{len(names)} hosts but {len(slots)} slot counts")
    RankMap(tuple(names), tuple(slots))  # refuses hosts named twice, slots below 1
    if solver is not None and solver not in SOLVERS:
        raise UsageError(f"unknown solver {solver!r} (known: {', '.join(SOLVERS)})")


def fabric_of(snapshot: NetworkSnapshot) -> Fabric:
    """Return the fabric that a snapshot carries, or infer it now."""
    if snapshot.fabric is None:
        from cloudcoll.fabric.infer import infer_fabric

        return infer_fabric(snapshot)
    return snapshot.fabric


def _starts(
    sent: Schedule | Workload,
    baselines: dict[str, Ints],
    counts: Sequence[int],
    pinned: int,
) -> dict[str, Ints]:
    """Return where to search from: the order given, the others with its first host.

    For a workload also each operation's groups on hosts of one switch.
    """
    given = baselines["given"]
    orders = dict(baselines)
    if isinstance(sent, Workload) and len(set(counts)) == 1:
        laid = laid_orders(sent, baselines["grouped"], counts[0])
        orders |= {f"{name} side by side": order for name, order in laid.items()}
    starts = {"given": given}
    for name, order in orders.items():
        starts |= _pin(name, order, given[0], pinned)
    return starts


def _pin(name: str, order: Ints, first: int, pinned: int) -> dict[str, Ints]:
    """Return the ways to start from a baseline with host `first` in front.

    A rotation keeps every ring as it is, a swap keeps every other host in its
    place.
    """
    if not pinned or order[0] == first:
        return {name: order}
    place = int(np.flatnonzero(order == first)[0])
    swapped = order.copy()
    swapped[0], swapped[place] = order[place], order[0]
    return {f"{name}, rotated": np.roll(order, -place), f"{name}, swapped": swapped}


def _origin(model: CostModel, starts: dict[str, Ints], best: Ints) -> str:
    """Name the first start that is as good as the best order, else ``search``.

    Never move ranks for nothing: the order given comes first.
    """
    seconds = model.seconds(best)
    for name, order in starts.items():
        if math.isclose(model.seconds(order), seconds, rel_tol=1e-9):
            return name
    return "search"
