from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.cost import Ints
from cloudcoll.solve.polish import polished
from cloudcoll.solve.rules import Rules


def displaced(order: Ints, limit: float) -> float:
    """Return how far hosts are from their own numbers."""
    return float(np.abs(order - np.arange(len(order))).sum())


@given(
    st.integers(1, 40).flatmap(lambda n: st.permutations(range(n))),
    st.integers(0, 99),
    st.booleans(),
)
def test_no_order_gets_worse(start: list[int], seed: int, pinned: bool) -> None:
    """Tests that a permutation comes back, as good at least, with pins kept."""
    rules = Rules.only(len(start), {0: start[0]} if pinned else {})
    found, taken = polished(
        np.array(start),
        displaced(np.array(start), np.inf),
        rules,
        tries=50,
        seed=seed,
        allowed=lambda order: True,
        seconds=displaced,
    )
    assert sorted(found.tolist()) == list(range(len(start)))
    assert rules.allows(found)
    assert taken == displaced(found, 0) <= displaced(np.array(start), 0)


def test_moves_lead_to_the_best_order() -> None:
    """Tests a search that only has to sort, and that forbidden orders stay out."""
    start = np.random.default_rng(0).permutation(8)
    rules = Rules.only(8)

    def search(fixed: int, seed: int) -> tuple[Ints, float]:
        return polished(
            start,
            displaced(start, np.inf),
            rules,
            tries=2000,
            seed=seed,
            allowed=lambda order: bool((order[:fixed] == start[:fixed]).all()),
            seconds=displaced,
        )

    assert min(search(0, seed)[1] for seed in range(9)) == 0
    kept, taken = search(3, 0)
    assert kept[:3].tolist() == start[:3].tolist()
    assert taken < displaced(start, 0)


def test_no_more_orders_are_timed_than_may_be() -> None:
    """Tests that tries count those that were timed, and not those forbidden."""
    start, timed = np.arange(12), list[list[int]]()

    def never_better(order: Ints, limit: float) -> float:
        timed.append(order.tolist())
        return np.inf

    for tries in (0, 1, 7):
        timed.clear()
        polished(
            start,
            1.0,
            Rules.only(12),
            tries=tries,
            seed=1,
            allowed=lambda order: bool(order[0] == 0),
            seconds=never_better,
        )
        assert len(timed) == tries
        assert all(order[0] == 0 for order in timed)
