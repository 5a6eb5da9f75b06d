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
    left = EVALUATIONS
    best, cost = _best(model, starts)
    if len(best) - pinned < 2:
        return best, cost
    waiting = sorted(starts, key=lambda order: model.cost(order), reverse=True)
    while left > 0:
        start = waiting.pop() if waiting else _perturbed(best, pinned, generator)
        order, found, left = _descend(model, start, pinned, generator, left)
        if found < cost:
            best, cost = order, found
    return best, cost


def _best(model: CostModel, orders: Sequence[Ints]) -> tuple[Ints, Cost]:
    costs = [model.cost(order) for order in orders]
    first = min(range(len(orders)), key=lambda i: costs[i])
    return orders[first], costs[first]


def _perturbed(order: Ints, pinned: int, generator: np.random.Generator) -> Ints:
    """Return the order after three random swaps."""
    changed = order.copy()
    for _ in range(3):
        i, j = generator.integers(pinned, len(order), 2)
        changed[i], changed[j] = changed[j], changed[i]
    return changed


def _descend(
    model: CostModel,
    start: Ints,
    pinned: int,
    generator: np.random.Generator,
    left: int,
) -> tuple[Ints, Cost, int]:
    """Take improving moves until there is none, or no evaluations are left."""
    order, cost = start, model.cost(start)
    left -= 1
    pairs = list(itertools.combinations(range(pinned, len(order)), 2))
    improved = True
    while improved:
        improved = False
        for index in generator.permutation(len(pairs)).tolist():
            for candidate in _neighbours(order, *pairs[index]):
                if left <= 0:
                    return order, cost, left
                left -= 1
                if (found := model.cost(candidate)) < cost:
                    order, cost, improved = candidate, found, True
                    break
    return order, cost, left


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
