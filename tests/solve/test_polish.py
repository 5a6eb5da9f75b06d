from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.arrays import Ints
from cloudcoll.solve.finalists import DRAWS, PATIENCE, polished
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


def drawn(start: list[int], rules: Rules, tries: int) -> list[tuple[int, ...]]:
    """Return every order that a search draws, none of which may be taken."""
    found = list[tuple[int, ...]]()

    def never(order: Ints) -> bool:
        found.append(tuple(order.tolist()))
        return False

    polished(
        np.array(start),
        1.0,
        rules,
        tries=tries,
        seed=1,
        allowed=never,
        seconds=displaced,
    )
    return found


def moved(start: list[int], places: list[int]) -> set[tuple[int, ...]]:
    """Return what one move makes: blocks swapped, or a stretch moved on by one."""
    orders = set()
    for low in range(len(places)):
        for high in range(low + 1, len(places)):
            for length in range(1, min(high - low, len(places) - high) + 1):
                swapped = list(start)
                here, there = places[low : low + length], places[high : high + length]
                for one, other in zip(here, there, strict=True):
                    swapped[one], swapped[other] = start[other], start[one]
                orders.add(tuple(swapped))
            for turn in (1, -1):
                between, turned = places[low : high + 1], list(start)
                for at, place in enumerate(between):
                    turned[place] = start[between[(at - turn) % len(between)]]
                orders.add(tuple(turned))
    return orders


def test_moves_are_swaps_of_blocks_and_turns_by_one() -> None:
    """Tests that all of them are drawn and nothing else, around what is pinned."""
    start = [4, 2, 6, 0, 3, 1, 5]
    for pins in ({}, {2: 6, 6: 5}, {place: start[place] for place in range(5)}):
        places = [place for place in range(7) if place not in pins]
        seen = drawn(start, Rules.only(7, pins), 300)
        assert len(seen) == 300 * DRAWS
        assert set(seen) == moved(start, places)
    assert drawn([0], Rules.only(1), 9) == []
    assert drawn([1, 0], Rules.only(2, {0: 1}), 9) == []


def test_a_search_without_a_gain_ends_early() -> None:
    """Tests that an order as fast is no gain, and how many in a row end a search."""
    start, timed = np.arange(6), list[int]()

    def as_fast(order: Ints, limit: float) -> float:
        assert limit == 1.0
        timed.append(1)
        return 1.0

    found, taken = polished(
        start,
        1.0,
        Rules.only(6),
        tries=9999,
        seed=1,
        allowed=lambda order: True,
        seconds=as_fast,
    )
    assert (found is start, taken) == (True, 1.0)
    assert len(timed) == 6 * PATIENCE
