from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.arrays import Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.engine import library
from cloudcoll.errors import UsageError
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve.kernel import Kernel
from cloudcoll.solve.rules import Rules


def kernel_of(hosts: int, seats: int) -> Kernel:
    """Return an engine that judges orders of some hosts on one switch."""
    names = [f"vm-{number}" for number in range(hosts)]
    fabric = Fabric(Node("core", tuple(Node(name, (), 1e7, 1e7) for name in names)))
    ring = build_schedule("allreduce", "ring", seats, 1 << 20)
    engine = library()
    assert engine is not None, "the engine was not built: pip install -e ."
    return Kernel(engine, CostModel(ring, fabric, [1] * hosts, seats=seats).flat())


@pytest.mark.parametrize(
    "rules",
    [
        Rules(np.array([0, 0, 1, 1, 2]), 3, {}, ((0, 2),)),
        Rules(np.array([0, 0, 0, 1, 1]), 5, {}, ((1, 3), (0, 4))),
        Rules(np.array([0, 0, 0, 1, 1]), 5, {2: 3}, ((0, 4),)),
        Rules(np.array([0, 1, 0, 1, 0]), 5, {2: 3}, ((2, 4),)),
        Rules(np.array([0, 0, 1, 1, 2, 2]), 4, {1: 0}, ((0, 2),)),
        Rules.only(5, {1: 3, 4: 0}),
        Rules(np.zeros(5, dtype=np.int64), 2),
        Rules(np.zeros(4, dtype=np.int64), 1),
    ],
)
def test_a_hot_walk_reaches_every_order_that_obeys(rules: Rules) -> None:
    """Tests that moves leave no seating out, and never lead to another one."""
    kernel = kernel_of(rules.hosts, rules.seats)
    orders = filter(rules.allows, itertools.permutations(range(rules.hosts)))
    all_ = {order[: rules.seats] for order in orders}
    start = rules.adapt(np.arange(rules.hosts))
    reached = set()
    for seed in range(20 * len(all_)):
        last = kernel.search(start, steps=40, rules=rules, seed=seed, heat=1e9).last
        assert rules.allows(last)
        reached.add(tuple(last.tolist())[: rules.seats])
    assert reached == all_


@pytest.mark.parametrize("racks", [6, 7])
def test_six_sizes_are_said(racks: int) -> None:
    """Tests that more than six racks are not listed, and that it is seen."""
    rack = np.arange(racks)
    said = ", ".join(["1"] * 6) + (", ..." if racks > 6 else "")
    with pytest.raises(UsageError, match=f"do not fit into racks of {said}: "):
        Rules(rack, racks, {}, ((0, 1),)).adapt(rack)


def test_what_stays_is_never_moved() -> None:
    """Tests a problem in which there is one order."""
    rules = Rules(np.array([0, 1, 2]), 3, {0: 0}, ())
    pinned = Rules.only(3, {0: 2, 1: 0})
    found = kernel_of(3, 3).search([2, 0, 1], steps=50, rules=pinned, heat=1e9)
    assert (found.last.tolist(), found.steps) == ([2, 0, 1], 0)
    assert kernel_of(3, 3).search(range(3), steps=50, rules=rules).steps == 50


@st.composite
def all_rules(draw: st.DrawFn) -> tuple[Rules, Ints]:
    """Draw rules that an order is known to obey, and some other order."""
    hosts = draw(st.integers(1, 30))
    rack = np.array(draw(st.lists(st.integers(0, 4), min_size=hosts, max_size=hosts)))
    order = draw(st.permutations(range(hosts)))
    seats = draw(st.integers(1, hosts))
    pins = draw(st.lists(st.integers(0, seats - 1), max_size=3, unique=True))
    rooms = []
    for number in range(5):
        places = [place for place in range(seats) if rack[order[place]] == number]
        cut = draw(st.integers(0, len(places)))
        rooms += [places[:cut], places[cut : 2 * cut]]
    kept = tuple(tuple(room) for room in rooms if len(room) > 1)
    rules = Rules(rack, seats, {place: order[place] for place in pins}, kept)
    return rules, np.array(draw(st.permutations(range(hosts))))


@settings(max_examples=200)
@given(all_rules())
def test_any_order_is_made_to_obey(problem: tuple[Rules, Ints]) -> None:
    """Tests rules that can be kept, whatever is pinned and however tight the racks."""
    rules, order = problem
    adapted = rules.adapt(order)
    assert sorted(adapted.tolist()) == list(range(rules.hosts))
    assert rules.allows(adapted)
    assert rules.adapt(adapted) is adapted


def test_those_at_the_end_of_an_order_are_taken_last() -> None:
    """Tests that rooms use hosts of the bench, but not the worst of it."""
    rack = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    rules = Rules(rack, 4, {}, ((0, 1), (2, 3)))
    order = np.array([0, 3, 6, 1, 4, 7, 2, 5])
    assert set(rules.adapt(order)[:4].tolist()) == {0, 1, 3, 4}


def test_rules_as_the_engine_reads_them() -> None:
    """Tests rings of rooms, and who is pinned or bound to a pinned one, by hand."""
    rack = np.array([0, 0, 1, 0, 1, 1])
    rules = Rules(rack, 5, {1: 3, 5: 0}, ((0, 1, 3), (2, 4)))
    assert {name: array.tolist() for name, array in rules.arrays().items()} == {
        "at": [0, 2, 3, 4],
        "number": [0, -1, 1, 2, 3, -1],
        "ring": [1, 3, 4, 0, 2, 5],
        "back": [3, 0, 4, 1, 2, 5],
        "room": [0, 0, 1, 0, 1, -1],
        "bound": [1, 1, 0, 1, 0, 0],
        "rack": rack.tolist(),
    }
    assert not rules.allows([1, 3, 2, 4, 5, 0])
    assert not rules.allows([1, 0, 2, 3, 4, 5])


def test_a_pin_is_a_swap() -> None:
    """Tests that everybody else keeps the place."""
    pinned = Rules.only(5, {0: 3})
    assert pinned.adapt(np.arange(5)).tolist() == [3, 1, 2, 0, 4]


def test_rooms_that_do_not_fit_are_refused() -> None:
    """Tests words with and without pins that are in the way."""
    rack = np.array([0, 0, 0, 1, 1])
    with pytest.raises(UsageError, match=r"groups of 2, 2 .* racks of 3, 2 beside"):
        Rules(rack, 5, {4: 4}, ((0, 1), (2, 3))).adapt(np.array([4, 0, 1, 2, 3]))
    with pytest.raises(UsageError, match=r"groups of 3, 2 .* racks of 2, 2, 1: ask"):
        Rules(np.array([0, 0, 1, 1, 2]), 5, {}, ((0, 1, 2), (3, 4))).adapt(np.arange(5))


def test_thousands_of_rooms() -> None:
    """Tests 4096 hosts in pairs: as many rooms as there can be."""
    hosts = 4096
    rack = np.arange(hosts) // 31
    rooms = tuple((2 * n, 2 * n + 1) for n in range(hosts // 2 - 200))
    rules = Rules(rack, hosts, {0: 5}, rooms)
    order = np.random.default_rng(1).permutation(hosts)
    assert rules.allows(rules.adapt(order))
