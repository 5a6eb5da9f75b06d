"""Searches over orders: exhaustive for a handful of hosts, local for the rest.

A search takes the cost model, starting orders and the rules that they obey, and
returns the best order it met with its cost. That obeys, too, and is never worse
than the best start. Budgets are counted in steps, not seconds, so that the same
input gives the same map on every machine.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.cost import Cost, CostModel, FlatSteps, Ints
from cloudcoll.solve.kernel import Kernel, library
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
    """

    limit_s: float = LIMIT_S
    tell: Callable[[int, int], None] = lambda done, planned: None


UNWATCHED = Watch()

Search = Callable[[CostModel, Sequence[Ints], Rules, int, Watch], tuple[Ints, Cost]]
"""(model, starts, rules, seed, watch) -> best order and its cost."""

EXACT_HOSTS = 7
"""Hosts up to which every order is tried: 6! with rank 0 pinned, some 20 ms."""

EVALUATIONS = 100_000
"""Moves that the local search tries, at most: some 80 ms for 16 hosts."""

MESSAGES = 100_000_000
"""Messages that it counts again, about: some 1.5 s where hosts are many."""

ROUNDS = 8
"""Annealings that share the budget; one may end in a poor order."""

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
    order = best.copy()
    for chosen in itertools.permutations(free, len(seated)):
        order[seated] = chosen
        order[rules.seats :] = [host for host in free if host not in chosen]
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

    Swaps of hosts and of blocks, moves and reversals of segments at random. The
    tie-break counts in the beginning, when it shows the way past plateaus; in
    the end only moves for the better are taken. Simulated annealing
    (Kirkpatrick, Gelatt and Vecchi 1983), restarted.
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
    waiting = sorted(unlike, key=model.cost)[: ROUNDS // 2]
    until = time.monotonic() + watch.limit_s
    for number in range(ROUNDS):
        start = waiting.pop(0) if waiting else best
        heat, smooth = TEMPERS[number % 2]
        own = seed * ROUNDS + number
        order = _anneal(kernel, start, rules, own, steps, heat * cost[0], smooth, until)
        if (found := model.cost(order)) < cost:
            best, cost = order, found
        watch.tell(number + 1, ROUNDS)
        if time.monotonic() > until:
            _logger.warning(
                "cloudcoll: the search ended after %g s, with %d of %d rounds: the "
                "order may differ on another machine",
                watch.limit_s,
                number + 1,
                ROUNDS,
            )
            break
    return best, cost


def _anneal(
    kernel: Kernel,
    start: Ints,
    rules: Rules,
    seed: int,
    steps: int,
    heat: float,
    smooth: float,
    until: float,
) -> Ints:
    """Return the best order of a walk that cools down, then only improves."""
    order = start
    for part, warmth, taken in ((0, heat, steps - steps // 5), (1, 0.0, steps // 5)):
        order = kernel.search(
            order,
            steps=taken,
            rules=rules,
            seed=2 * seed + part,
            heat=warmth,
            smooth=smooth,
            limit_s=until - time.monotonic(),
        ).order
    return order


def _affordable(flat: FlatSteps) -> int:
    """Return how many moves fit the budget.

    A move of a segment shifts some twelfth of the hosts on average, a swap two.
    """
    hosts = len(flat.slots)
    counted = 2 * len(flat.src) / hosts * (4 + hosts / 12)
    return int(min(EVALUATIONS, MESSAGES / max(counted, 1)))


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
