from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

from cloudcoll.arrays import Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.engine import library
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.solve import search
from cloudcoll.solve.kernel import Kernel
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import (
    PLAIN_EVALUATIONS,
    Watch,
    _cores,
    _neighbours,
    _perturbed,
    exhaustive,
    local_search,
    plain_search,
)

GIVEN = np.array([0, 3, 1, 4, 2, 5])


def ring() -> CostModel:
    """Return a ring of two racks of three, whose link up carries one card."""
    fabric = racks([3, 3], nic=1e6, uplink=1e6)
    return CostModel(build_schedule("allreduce", "ring", 6, 60_000), fabric, [1] * 6)


@pytest.mark.skipif(library() is None, reason="no engine: no C compiler built it")
def test_progress_is_told_round_by_round() -> None:
    """Tests that the first round is one of eight, and the last one the eighth."""
    told: list[tuple[int, int]] = []
    met: list[tuple[int, ...]] = []
    watch = Watch(
        tell=lambda done, planned: told.append((done, planned)),
        met=lambda order: met.append(tuple(order.tolist())),
    )
    local_search(ring(), [GIVEN], Rules.only(6), 0, watch)
    assert told == [(done, 8) for done in range(1, 9)]
    assert len(met) == 8
    assert all(sorted(order) == [*range(6)] for order in met)


@pytest.mark.skipif(library() is None, reason="no engine: no C compiler built it")
def test_later_rounds_begin_at_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests where annealings start: from what there is, then from what they found."""
    best, begun = np.arange(6), dict[int, list[int]]()

    def anneal(kernel: Kernel, walk: search._Walk) -> Ints:
        begun[walk.number] = walk.start.tolist()
        return best

    monkeypatch.setattr(search, "_anneal", anneal)
    worse = np.array([0, 3, 4, 1, 2, 5])
    found, cost = local_search(ring(), [GIVEN, worse], Rules.only(6), 0)
    assert (found.tolist(), cost) == (best.tolist(), ring().cost(best))
    starts = {tuple(order) for number, order in begun.items() if number < 4}
    assert starts == {tuple(GIVEN.tolist()), tuple(worse.tolist())}
    assert [begun[number] for number in range(4, 8)] == [best.tolist()] * 4


def test_the_slow_search_finds_the_best_of_all_orders() -> None:
    """Tests a case with a known optimum, its progress, and its budget."""
    model, told = ring(), list[tuple[int, int]]()
    watch = Watch(tell=lambda done, planned: told.append((done, planned)))
    order, cost = plain_search(model, [GIVEN], Rules.only(6), 0, watch)
    assert cost == min(map(model.cost, itertools.permutations(range(6))))
    assert cost == exhaustive(model, [GIVEN], Rules.only(6), 0)[1] == model.cost(order)
    assert told == sorted(told)
    assert told[-1] == (PLAIN_EVALUATIONS, PLAIN_EVALUATIONS)


def test_the_slow_search_goes_down_from_each_start() -> None:
    """Tests that what it ends in has no better order one step away."""
    fabric = racks([4, 4, 4], nic=1e6, uplink=1e6)
    schedule = build_schedule("allreduce", "ring", 12, 60_000)
    model, ends = CostModel(schedule, fabric, [1] * 12), list[Ints]()
    start = np.arange(12).reshape(3, 4).T.ravel()
    plain_search(model, [start], Rules.only(12), 0, Watch(met=ends.append))
    near = itertools.chain.from_iterable(
        _neighbours(ends[0], np.arange(12), *pair)
        for pair in itertools.combinations(range(12), 2)
    )
    assert model.cost(ends[0]) <= min(map(model.cost, near)) < model.cost(start)


@pytest.mark.parametrize("find", [local_search, plain_search])
def test_two_hosts_that_may_move_change_places(find: object) -> None:
    """Tests the least that leaves a choice."""
    assert callable(find)
    rules = Rules.only(6, {0: 0, 2: 2, 4: 4, 5: 5})
    order, _ = find(ring(), [np.array([0, 3, 2, 1, 4, 5])], rules, 0)
    assert order.tolist() == [*range(6)]


def test_the_slow_search_ends_in_time() -> None:
    """Tests that without any time left the best start is the answer."""
    model = ring()
    best = np.arange(6)
    assert model.cost(best) < model.cost(GIVEN)
    order, cost = plain_search(model, [GIVEN, best], Rules.only(6), 0, Watch(0.0))
    assert (order.tolist(), cost) == ([*range(6)], model.cost(best))


@pytest.mark.parametrize("find", [exhaustive, plain_search])
def test_hosts_that_are_pinned_stay(find: object) -> None:
    """Tests that what is found obeys, though a better order does not."""
    assert callable(find)
    rules = Rules.only(6, {0: 0, 1: 3})
    order, _ = find(ring(), [GIVEN], rules, 0)
    assert order.tolist()[:2] == [0, 3]
    assert sorted(order.tolist()) == [*range(6)]


def test_a_search_begins_anew_somewhere_else() -> None:
    """Tests that three swaps lead away from an order, and that pins stay."""
    order, rules = np.arange(9), Rules.only(9, {0: 0})
    generator = np.random.default_rng(1)
    away = [_perturbed(order, rules, generator).tolist() for _ in range(20)]
    assert order.tolist() == [*range(9)]
    assert all(sorted(one) == [*range(9)] and one[0] == 0 for one in away)
    moved = [sum(host != place for place, host in enumerate(one)) for one in away]
    assert max(moved) <= 6
    assert sum(moved) > 20 * 2


def test_only_cores_that_this_process_may_use_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests three of eight cores, and a system that tells of no process."""
    mine = {1, 2, 5}
    may_use = {0: mine, os.getpid(): mine}
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: may_use.get(pid, range(8)), raising=False
    )
    assert _cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert _cores() == 8
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert _cores() == 1


def test_moves_by_hand() -> None:
    """Tests a swap, both moves and a reversal among the places that may change.

    Of neighbours all are the same swap.
    """
    order, movable = np.array([7, 5, 3, 1, 9, 8]), np.array([1, 2, 4, 5])
    for i, swapped in ((0, [7, 3, 5, 1, 9, 8]), (1, [7, 5, 9, 1, 3, 8])):
        near = [way.tolist() for way in _neighbours(order, movable, i, i + 1)]
        assert near == [swapped]
    wide = [way.tolist() for way in _neighbours(order, movable, 0, 3)]
    assert wide == [
        [7, 8, 3, 1, 9, 5],
        [7, 3, 9, 1, 8, 5],
        [7, 8, 5, 1, 3, 9],
        [7, 8, 9, 1, 3, 5],
    ]
    assert order.tolist() == [7, 5, 3, 1, 9, 8]
