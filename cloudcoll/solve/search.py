"""Searches over orders: exhaustive for a handful of hosts, local for the rest.

A search takes the cost model, starting orders and the positions that must not
move, and returns the best order it met with its cost. None ever returns
something worse than its best start.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cloudcoll.cost import Cost, CostModel, Ints

Search = Callable[[CostModel, Sequence[Ints], int, int], tuple[Ints, Cost]]
"""(model, starts, pinned, seed) -> best order and its cost. The first `pinned`
hosts of an order (0 or 1) keep their place."""

EXACT_HOSTS = 7
"""Hosts up to which every order is tried: 6! with rank 0 pinned, some 20 ms."""

EVALUATIONS = 6000
"""Budget of the local search: steps, not seconds, so that the same input gives
the same map on every machine. Some 150 ms for 16 hosts."""


def exhaustive(
    model: CostModel, starts: Sequence[Ints], pinned: int, seed: int
) -> tuple[Ints, Cost]:
    """Try every order. Factorial: for `EXACT_HOSTS` or tests."""
    best, cost = _best(model, starts)
    for head in {tuple(start[:pinned].tolist()) for start in starts}:
        rest = [host for host in starts[0].tolist() if host not in head]
        for tail in itertools.permutations(rest):
            order = np.array([*head, *tail])
            if (found := model.cost(order)) < cost:
                best, cost = order, found
    return best, cost


def local_search(
    model: CostModel, starts: Sequence[Ints], pinned: int, seed: int
) -> tuple[Ints, Cost]:
    """Improve each start by swaps, moves and reversals, then perturb the best.

    First-improvement descent over all pairs of positions in random order,
    restarted from the best order with a few random swaps (iterated local
    search, Lourenco, Martin and Stuetzle 2003) until `EVALUATIONS` are spent.
    """
    generator = np.random.default_rng(seed)
    budget = _Budget(EVALUATIONS)
    best, cost = _best(model, starts)
    ranked = sorted(starts, key=lambda order: model.cost(order))
    for start in itertools.chain(ranked, _perturbations(lambda: best, pinned, generator)):
        order, found = _descend(model, start, pinned, generator, budget)
        if found < cost:
            best, cost = order, found
        if budget.spent:
            return best, cost
    return best, cost


class _Budget:
    """A count of evaluations that runs out."""

    def __init__(self, evaluations: int) -> None:
        self.left = evaluations

    @property
    def spent(self) -> bool:
        return self.left <= 0


def _best(model: CostModel, orders: Sequence[Ints]) -> tuple[Ints, Cost]:
    costs = [model.cost(order) for order in orders]
    first = min(range(len(orders)), key=lambda i: costs[i])
    return orders[first], costs[first]


def _perturbations(
    best: Callable[[], Ints], pinned: int, generator: np.random.Generator
) -> Iterator[Ints]:
    """Yield the best order so far with three random swaps, for ever."""
    while True:
        order = best().copy()
        for _ in range(3):
            i, j = generator.integers(pinned, len(order), 2)
            order[i], order[j] = order[j], order[i]
        yield order


def _descend(
    model: CostModel,
    start: Ints,
    pinned: int,
    generator: np.random.Generator,
    budget: _Budget,
) -> tuple[Ints, Cost]:
    order, cost = start, model.cost(start)
    pairs = list(itertools.combinations(range(pinned, len(order)), 2))
    improved = True
    while improved and not budget.spent:
        improved = False
        for index in generator.permutation(len(pairs)).tolist():
            for candidate in _neighbours(order, *pairs[index]):
                budget.left -= 1
                if (found := model.cost(candidate)) < cost:
                    order, cost, improved = candidate, found, True
                    break
            if budget.spent:
                break
    return order, cost


def _neighbours(order: Ints, i: int, j: int) -> Iterator[Ints]:
    """Yield `order` with i and j swapped, i moved to j, j to i, i..j reversed."""
    swapped = order.copy()
    swapped[i], swapped[j] = order[j], order[i]
    yield swapped
    if j - i > 1:
        for shift in (-1, 1):
            moved = order.copy()
            moved[i : j + 1] = np.roll(order[i : j + 1], shift)
            yield moved
        reversed_ = order.copy()
        reversed_[i : j + 1] = order[i : j + 1][::-1]
        yield reversed_
