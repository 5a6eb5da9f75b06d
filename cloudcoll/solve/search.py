"""Searches over orders: exhaustive for a handful of hosts, local for the rest.

A search takes the cost model, starting orders and the rules that they obey, and
returns the best order it met with its cost. That obeys, too, and is never worse
than the best start. Budgets are counted in steps, not seconds, so that the same
input gives the same map on every machine.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.engine import library
from cloudcoll.model.cost import Cost, CostModel, FlatSteps
from cloudcoll.solve.kernel import Kernel
from cloudcoll.solve.rules import Rules

_logger = logging.getLogger(__name__)

LIMIT_S = 60.0
"""Seconds after which the local search ends whatever its budget."""


@dataclass(frozen=True)
class Watch:
    """How long the local search may take, and who is told how far it is.

    Attributes
    ----------
    limit_s : float
        Seconds after which it ends with the best order so far.
    tell : callable
        Called now and then with what is done and what is planned.
    met : callable
        Called with each order that a walk ended in, in the same order every time.
    """

    limit_s: float = LIMIT_S
    tell: Callable[[int, int], None] = lambda done, planned: None
    met: Callable[[Ints], None] = lambda order: None


UNWATCHED = Watch()

Search = Callable[[CostModel, Sequence[Ints], Rules, int, Watch], tuple[Ints, Cost]]
"""(model, starts, rules, seed, watch) -> best order and its cost."""

EXACT_HOSTS = 7
"""Hosts up to which every order is tried: 6! with rank 0 pinned, some 20 ms."""

EVALUATIONS = 400_000
"""Moves that the local search tries, at most."""

OF_A_HOST = 6_000
"""Moves for each host, at most: some 80 ms for 16 hosts. With less, trees on racks of
64 hosts are as fast but cross racks with more bytes (benchmarks/orders_uneven.py)."""

MESSAGES = 50_000_000
"""Messages that it counts again, about: some 1 s where hosts are many."""

ROUNDS = 8
"""Annealings that share the budget; one may end in a poor order."""

WAVE = 4
"""Annealings that begin at once, whatever the number of cores: those of a wave know
nothing of each other, so that threads change nothing but the time."""

TEMPERS = ((3e-4, 3.0), (3e-2, 0.0))
"""What annealing begins with, by turns: how much worse an order may get, as a share
of the time, and the weight of the tie-break. The first is the best of 1e-4 to 1e-2
and 0 to 30 on the racks and pods of benchmarks/solver.py; the second also finds
orders that the tie-break leads away from."""

PLAIN_EVALUATIONS = 6000
"""Budget of the local search without the engine: some 150 ms for 16 hosts."""


def exhaustive(
    model: CostModel,
    starts: Sequence[Ints],
    rules: Rules,
    seed: int,
    watch: Watch = UNWATCHED,
) -> tuple[Ints, Cost]:
    """Try every order, however long it takes. Factorial: for `EXACT_HOSTS` or tests."""
    best, cost = _best(model, starts)
    seated = rules.movable[rules.movable < rules.seats]
    free = [h for h in range(rules.hosts) if h not in rules.pins.values()]
    bench = rules.movable[rules.movable >= rules.seats]
    order = best.copy()
    for chosen in itertools.permutations(free, len(seated)):
        order[seated] = chosen
        order[bench] = [host for host in free if host not in chosen]
        if rules.allows(order) and (found := model.cost(order)) < cost:
            best, cost = order.copy(), found
    return best, cost


def local_search(
    model: CostModel,
    starts: Sequence[Ints],
    rules: Rules,
    seed: int,
    watch: Watch = UNWATCHED,
) -> tuple[Ints, Cost]:
    """Anneal from the best starts, then from the best order so far.

    Swaps of hosts, groups and blocks, moves and reversals of segments at random.
    The tie-break counts in the beginning, when it shows the way past plateaus; in
    the end only moves for the better are taken. Simulated annealing
    (Kirkpatrick, Gelatt and Vecchi 1983), restarted; a wave at a time, on all cores.
    """
    engine = library()
    if engine is None:
        return plain_search(model, starts, rules, seed, watch)
    best, cost = _best(model, starts)
    if len(rules.movable) < 2:
        return best, cost
    flat = model.flat()
    kernel, steps = Kernel(engine, flat), _affordable(flat) // ROUNDS
    unlike = {tuple(start.tolist()): start for start in starts}.values()
    waiting = sorted(unlike, key=model.cost)[:WAVE]
    until = time.monotonic() + watch.limit_s
    with ThreadPoolExecutor(min(WAVE, _cores())) as pool:
        for begun in range(0, ROUNDS, WAVE):
            waiting += [best] * (begun + WAVE - len(waiting))
            walks = [
                _Walk(waiting[i], rules, seed * ROUNDS + i, steps, cost[0], until)
                for i in range(begun, begun + WAVE)
            ]
            ends = pool.map(partial(_anneal, kernel), walks)
            for done, order in enumerate(ends, begun + 1):
                if (found := model.cost(order)) < cost:
                    best, cost = order, found
                watch.met(order)
                watch.tell(done, ROUNDS)
            if time.monotonic() > until:
                _say_cut_short(watch.limit_s, begun + WAVE)
                break
    return best, cost


def _say_cut_short(limit_s: float, rounds: int) -> None:
    _logger.warning(
        "cloudcoll: the search ended after %g s, with %d of %d rounds: the "
        "order may differ on another machine",
        limit_s,
        rounds,
        ROUNDS,
    )


class _Walk(NamedTuple):
    """One annealing: where from, its number, moves, scale of its heat, its end."""

    start: Ints
    rules: Rules
    number: int
    steps: int
    seconds: float
    until: float


def _anneal(kernel: Kernel, walk: _Walk) -> Ints:
    """Return the best order of a walk that cools down, then only improves."""
    order, last = walk.start, walk.steps // 5
    heat, smooth = TEMPERS[walk.number % 2]
    parts = ((heat * walk.seconds, walk.steps - last), (0.0, last))
    for part, (warmth, steps) in enumerate(parts):
        order = kernel.search(
            order,
            steps=steps,
            rules=walk.rules,
            seed=2 * walk.number + part,
            heat=warmth,
            smooth=smooth,
            limit_s=walk.until - time.monotonic(),
        ).order
    return order


def _cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _affordable(flat: FlatSteps) -> int:
    """Return how many moves fit the budget.

    A move of a segment shifts some twelfth of the hosts on average, a swap two.
    """
    hosts = len(flat.slots)
    counted = 2 * len(flat.src) / hosts * (4 + hosts / 12)
    return int(min(EVALUATIONS, OF_A_HOST * hosts, MESSAGES / max(counted, 1)))


def plain_search(
    model: CostModel,
    starts: Sequence[Ints],
    rules: Rules,
    seed: int,
    watch: Watch = UNWATCHED,
) -> tuple[Ints, Cost]:
    """Improve each start by swaps, moves and reversals, then perturb the best.

    First-improvement descent over all pairs of positions in random order,
    restarted from the best order with a few random swaps (iterated local
    search, Lourenco, Martin and Stuetzle 2003) until `PLAIN_EVALUATIONS` are
    spent. What there is where the engine was not built.
    """
    generator = np.random.default_rng(seed)
    left = PLAIN_EVALUATIONS
    best, cost = _best(model, starts)
    if len(rules.movable) < 2:
        return best, cost
    waiting = sorted(starts, key=lambda order: model.cost(order), reverse=True)
    until = time.monotonic() + watch.limit_s
    while left > 0 and time.monotonic() < until:
        start = waiting.pop() if waiting else _perturbed(best, rules, generator)
        order, found, left = _descend(model, start, rules, generator, left)
        if found < cost:
            best, cost = order, found
        watch.met(order)
        watch.tell(PLAIN_EVALUATIONS - left, PLAIN_EVALUATIONS)
    return best, cost


def _best(model: CostModel, orders: Sequence[Ints]) -> tuple[Ints, Cost]:
    costs = [model.cost(order) for order in orders]
    first = min(range(len(orders)), key=lambda i: costs[i])
    return orders[first], costs[first]


def _perturbed(order: Ints, rules: Rules, generator: np.random.Generator) -> Ints:
    """Return the order after three random swaps, put right where rules ask for it."""
    changed = order.copy()
    for _ in range(3):
        i, j = generator.choice(rules.movable, 2)
        changed[i], changed[j] = changed[j], changed[i]
    return rules.adapt(changed)


def _descend(
    model: CostModel,
    start: Ints,
    rules: Rules,
    generator: np.random.Generator,
    left: int,
) -> tuple[Ints, Cost, int]:
    """Take improving moves until there is none, or no evaluations are left."""
    order, cost = start, model.cost(start)
    left -= 1
    movable = rules.movable
    pairs = [
        pair
        for pair in itertools.combinations(range(len(movable)), 2)
        if movable[pair[0]] < rules.seats
    ]
    improved = True
    while improved:
        improved = False
        for index in generator.permutation(len(pairs)).tolist():
            for candidate in _neighbours(order, movable, *pairs[index]):
                if left <= 0:
                    return order, cost, left
                left -= 1
                if not rules.allows(candidate):
                    continue
                if (found := model.cost(candidate)) < cost:
                    order, cost, improved = candidate, found, True
                    break
    return order, cost, left


def _neighbours(order: Ints, movable: Ints, i: int, j: int) -> Iterator[Ints]:
    """Yield `order` with i and j swapped, i moved to j, j to i, i..j reversed.

    These number the positions that may change.
    """
    places = movable[i : j + 1]
    hosts = order[places]
    ways = [np.concatenate([hosts[-1:], hosts[1:-1], hosts[:1]])]
    if j - i > 1:
        ways += [np.roll(hosts, -1), np.roll(hosts, 1), hosts[::-1]]
    for way in ways:
        changed = order.copy()
        changed[places] = way
        yield changed
