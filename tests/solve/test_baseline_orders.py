from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics

from cloudcoll.network.tree import Fabric, Node
from cloudcoll.solve.orders import baseline_orders, grouped_order, random_orders

RACKS = Fabric(
    Node(
        "core",
        (
            Node("1", (Node("vm-2"), Node("vm-10"))),
            Node("2", (Node("vm-1"), Node("vm-3"))),
        ),
    )
)


def test_baselines_by_hand() -> None:
    """Tests each order on a case where all of them differ."""
    given_ = ("vm-3", "vm-10", "vm-1", "vm-2")
    assert baseline_orders(given_, RACKS) == {
        "given": given_,
        "sorted": ("vm-1", "vm-10", "vm-2", "vm-3"),
        "natural": ("vm-1", "vm-2", "vm-3", "vm-10"),
        "grouped": ("vm-3", "vm-1", "vm-10", "vm-2"),
    }


@given(fabrics(), st.data())
def test_baselines_are_permutations(fabric: Fabric, data: st.DataObject) -> None:
    """Tests that no order loses or repeats a host, and grouped keeps the first."""
    order = data.draw(st.permutations(fabric.hosts))
    for found in baseline_orders(order, fabric).values():
        assert sorted(found) == sorted(order)
    assert grouped_order(order, fabric)[0] == order[0]


@given(fabrics(), st.data())
def test_grouped_keeps_every_group_together(
    fabric: Fabric, data: st.DataObject
) -> None:
    """Tests that the hosts of every group, at every level, are neighbours."""
    order = grouped_order(data.draw(st.permutations(fabric.hosts)), fabric)
    for level in fabric.groups():
        for group in level:
            places = sorted(order.index(name) for name in group.leaves())
            assert places == list(range(places[0], places[0] + len(places)))


def test_random_orders_repeat_with_their_seed() -> None:
    """Tests that the seed alone decides, and orders of one call differ."""
    hosts = [f"vm-{i}" for i in range(20)]
    one = random_orders(hosts, 5, seed=1)
    assert one == random_orders(hosts, 5, seed=1)
    assert one != random_orders(hosts, 5, seed=2)
    assert len(set(one)) == 5
    assert all(sorted(order) == sorted(hosts) for order in one)
