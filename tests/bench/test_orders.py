from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.bench.job import named_orders
from cloudcoll.errors import UsageError
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.rankmap import RankMap

GIVEN = ("b10", "b9", "a1", "a2")
FABRIC = Fabric(
    Node(
        "core",
        (
            Node("1", (Node("b10"), Node("a2"))),
            Node("2", (Node("b9"), Node("a1"))),
        ),
    )
)
MAP = RankMap(("b10", "a1", "b9", "a2"), (1, 1, 1, 1))


def orders(text: str) -> dict[str, tuple[str, ...]]:
    found = named_orders(text, GIVEN, FABRIC, MAP, seed=1)
    return {order.name: order.hosts for order in found}


def test_each_name_has_its_order() -> None:
    """Tests the order behind every name."""
    assert orders("given,sorted,natural,grouped,cloudcoll") == {
        "given": GIVEN,
        "sorted": ("a1", "a2", "b10", "b9"),
        "natural": ("a1", "a2", "b9", "b10"),
        "grouped": ("b10", "a2", "b9", "a1"),
        "cloudcoll": MAP.order,
    }


def test_equal_orders_are_measured_once() -> None:
    """Tests that a name whose order stands already becomes an alias."""
    kept = RankMap(GIVEN, (1, 1, 1, 1))
    (order,) = named_orders("given,cloudcoll", GIVEN, FABRIC, kept, seed=0)
    assert order.name == "given"
    assert order.same_as == ("cloudcoll",)


def test_random_orders_are_permutations_by_seed() -> None:
    """Tests count, permutation and repeatability of random orders."""
    first, again = orders("random:4"), orders("random:4")
    assert first == again
    assert all(sorted(hosts) == sorted(GIVEN) for hosts in first.values())
    assert list(first) == [f"random-{number}" for number in (1, 2, 3, 4)]


def test_as_many_random_orders_as_asked_for() -> None:
    """Tests five where no number is said, and the most there may be."""
    names = tuple("abcdefghij")
    kept = RankMap(names, (1,) * 10)
    for text, count in (("random", 5), ("random:1", 1), ("random:100", 100)):
        found = named_orders(text, names, flat(names), kept, seed=1)
        assert [order.name for order in found] == [
            f"random-{number}" for number in range(1, count + 1)
        ]


def test_an_order_can_come_from_a_file(tmp_path: Path) -> None:
    """Tests that a path names a file with hosts in order."""
    path = tmp_path / "true.hosts"
    path.write_text("a1\na2\nb9\nb10\n")
    assert orders(str(path)) == {"true": ("a1", "a2", "b9", "b10")}


@pytest.mark.parametrize("stem", ["given", "cloudcoll", "random-1", "twice"])
def test_a_file_takes_no_other_orders_name(tmp_path: Path, stem: str) -> None:
    """Tests that a file called as another order, or file, stands beside it."""
    first, other = tmp_path / f"{stem}.hosts", tmp_path / f"{stem}.txt"
    first.write_text("a1\na2\nb9\nb10\n")
    other.write_text("a2\na1\nb9\nb10\n")
    found = orders(f"given,cloudcoll,random:1,{first},{other}")
    assert set(found.values()) >= {GIVEN, ("a1", "a2", "b9", "b10")}
    assert found[str(other)] == ("a2", "a1", "b9", "b10")


def test_a_file_with_other_hosts_is_refused(tmp_path: Path) -> None:
    """Tests that a file must name exactly the hosts of the job."""
    path = tmp_path / "other.hosts"
    path.write_text("a1\na2\nb9\nc3\n")
    with pytest.raises(UsageError, match="b10"):
        orders(str(path))


@pytest.mark.parametrize("text", ["", "fastest", "random:0", "random:x", "random:101"])
def test_unknown_orders_are_refused(text: str) -> None:
    """Tests that a wrong name is answered with the right ones."""
    with pytest.raises(UsageError):
        orders(text)
