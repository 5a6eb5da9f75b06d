from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from cloudcoll.arrays import Ints
from cloudcoll.collectives import build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node, Pairs
from cloudcoll.solve.orders import starting_orders
from cloudcoll.solve.rules import Rules

RACKS = (2, 4, 3)
RACK = np.repeat(np.arange(3), RACKS)
GIVEN = (3, 0, 6, 1, 4, 7, 2, 8, 5)


def started(
    pins: Mapping[int, int],
    *,
    seats: int = 9,
    slots: Sequence[int] = (1,) * 9,
    fabric: Fabric | None = None,
    pairs: Pairs | None = None,
    sent: Workload | None = None,
) -> dict[str, list[int]]:
    """Return the starts for nine hosts in racks of 2, 4 and 3, numbered by rack."""
    fabric = fabric or racks(RACKS)
    whole = sent or build_schedule("allreduce", "ring", sum(slots[:seats]), 1 << 20)
    model = CostModel(whole, fabric, list(slots), seats=seats, pairs=pairs)
    baselines: dict[str, Ints] = {"given": np.array(GIVEN), "grouped": np.arange(9)}
    rules = Rules(RACK, seats, pins)
    found = starting_orders(whole, baselines, fabric, rules, model.flat())
    assert all(rules.allows(order) for order in found.values())
    return {name: order.tolist() for name, order in found.items()}


def test_the_front_of_partners() -> None:
    """Tests that the host pinned to place 0 stands there, else the first one given."""
    assert started({})["partners in one group"][0] == 3
    assert started({0: 7})["partners in one group"][0] == 7
    assert started({1: 5})["partners in one group, swapped"][:2] == [3, 5]


def test_what_a_pin_makes_of_an_order() -> None:
    """Tests that a host pinned to the front is rotated there, another one swapped."""
    front = started({0: 4})
    assert next(iter(front)) == "given, rotated"
    assert front["given, rotated"] == [4, 7, 2, 8, 5, 3, 0, 6, 1]
    assert front["given, swapped"] == [4, 0, 6, 1, 3, 7, 2, 8, 5]
    second = started({1: 4})
    assert second["given, swapped"] == [3, 4, 6, 1, 0, 7, 2, 8, 5]
    assert "given, rotated" not in second
    assert started({0: 3})["given"] == list(GIVEN)


def test_largest_groups_come_first() -> None:
    """Tests the order that needs the fewest racks, behind that of the front host."""
    by_size = [2, 3, 4, 5, 6, 7, 8, 0, 1]
    assert started({}, seats=5)["largest groups"] == by_size
    pinned = started({0: 0}, seats=5)["largest groups"]
    assert pinned == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert "largest groups" not in started({})


@pytest.mark.parametrize("what", ["slowest", "latest"])
@pytest.mark.parametrize("way", ["up", "down"])
def test_the_worst_hosts_are_left_out(what: str, way: str) -> None:
    """Tests that they end on the bench, unless pinned, the worst one last."""

    def card(number: int) -> Node:
        behind = {4: 30, 6: 90, 0: 60}.get(number, 0)
        late, rate = 1e-5 * (1 + behind), 1e8 / (1 + behind)
        if what == "latest":
            return Node(f"vm-{number}", (), 1e8, 1e8, late)
        up, down = (rate, 1e8) if way == "up" else (1e8, rate)
        return Node(f"vm-{number}", (), up, down, 1e-5)

    fabric = Fabric(Node("core", tuple(map(card, range(9)))))
    bench = started({}, seats=6, fabric=fabric)[f"given without the {what}"]
    assert bench == [3, 1, 7, 2, 8, 5, 4, 0, 6]
    pinned = started({1: 6}, seats=7, fabric=fabric)[f"given without the {what}"]
    assert pinned == [3, 6, 1, 7, 2, 8, 5, 4, 0]


def test_hosts_with_unlike_slots_have_baselines_alone() -> None:
    """Tests that what needs the same slots on every host is left out."""
    assert set(started({}, slots=(2, *(1,) * 8))) == {"given", "grouped"}


@pytest.mark.parametrize("slots", [1, 2])
def test_the_fastest_ring_is_of_measured_pairs(slots: int) -> None:
    """Tests nine hosts that are fast along one ring: it is found, from any order."""
    ring = np.random.default_rng(4).permutation(9)
    seconds = np.full((9, 9), 5e-3)
    seconds[ring, np.roll(ring, -1)] = 1e-3
    pairs = Pairs(seconds, np.full((9, 9), 1e-9))
    found = started({}, slots=(slots,) * 9, pairs=pairs)["fastest ring"]
    assert seconds[found, np.roll(found, -1)].max() == 1e-3
    assert "fastest ring" not in started({}, slots=(slots,) * 9)


def test_no_ring_of_pairs_without_a_ring() -> None:
    """Tests that pairs are of no use to a schedule that goes round no ring."""
    pairs = Pairs(np.full((9, 9), 1e-3), np.full((9, 9), 1e-9))
    every = Operation("alltoall", "linear", 1 << 20, [np.arange(9)])
    found = started({}, pairs=pairs, sent=Workload("all", 9, (every,)))
    assert "fastest ring" not in found
    # A workload's groups are laid side by side as well.
    assert [name for name in found if name.endswith(" side by side")]
