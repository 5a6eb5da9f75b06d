from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.collectives import build_schedule
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Alternative, Fabric, Node, flat
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import solve

CARD = 50e6
NAMES = tuple(f"h{i}" for i in range(8))
RING = build_schedule("allreduce", "ring", 8, 1 << 24)


def fabric_of(groups: str) -> Fabric:
    """Return racks behind uplinks of one card; hosts by digits, alone after commas."""
    children: list[Node] = []
    for number, part in enumerate(groups.split(",")):
        hosts = tuple(
            Node(f"h{digit}", (), CARD, CARD, 5e-6) for digit in part if digit.isdigit()
        )
        rack = Node(f"{number}", hosts, CARD, CARD, 5e-6)
        children += hosts if len(hosts) == 1 else [rack]
    return Fabric(Node("core", tuple(children)))


def answer(main: Fabric, *others: tuple[float, Fabric]) -> RankMap:
    alternatives = tuple(Alternative(share, other.root) for share, other in others)
    fabric = replace(main, alternatives=alternatives, confidence=0.8)
    hosts = tuple(Host(name) for name in NAMES)
    return solve(NetworkSnapshot(hosts, fabric=fabric, digest="abc"), RING)


def seconds(fabric: Fabric, order: tuple[str, ...]) -> float:
    model = CostModel(RING, fabric, [1] * 8)
    return model.seconds([fabric.position(name) for name in order])


def test_what_costs_nothing_is_done_for_an_alternative() -> None:
    """Tests that two hosts that may share an uplink stand together."""
    main, other = fabric_of("0246,135,7"), fabric_of("0246,13,57")
    for name in ("h5", "h7"):
        assert name in NAMES
    order = answer(main, (0.2, other)).order
    assert seconds(main, order) == pytest.approx(seconds(main, answer(main).order))
    assert seconds(other, order) <= seconds(other, answer(other).order) * 1.001


@pytest.mark.parametrize(
    "fabrics",
    [
        ("0471,6352", "047,63152", "04715,632", "047152,63"),
        ("0236,1547", "023,15647", "02364,157", "023647,15"),
        ("0273,5461", "027,54361", "02736,541", "027361,54"),
    ],
)
def test_hosts_of_either_group_stand_on_the_border(fabrics: tuple[str, ...]) -> None:
    """Tests the order that is best whichever group three hosts belong to.

    No search on one of the fabrics has a reason to find it.
    """
    main, *others = map(fabric_of, fabrics)
    order = answer(main, *((0.2, other) for other in others)).order
    for fabric in (main, *others):
        best = seconds(fabric, answer(fabric).order)
        assert seconds(fabric, order) == pytest.approx(best)


def test_no_order_is_a_risk() -> None:
    """Tests that the order given stays where another may be slower than that."""
    given = fabric_of("01,23,45,67")  # the order given is best
    crossed = fabric_of("04,15,26,37")  # and none is best for both
    taken = answer(crossed, (0.4, given))
    assert seconds(crossed, NAMES) > 1.5 * seconds(crossed, answer(crossed).order)
    assert taken.order == NAMES
    assert taken.kept == "any other may be slower: order kept"
    # A small risk is taken.
    likely = answer(crossed, (0.04, given))
    assert seconds(crossed, likely.order) < seconds(crossed, NAMES)


def test_an_alternative_without_groups_is_no_risk() -> None:
    """Tests that no order is slower where none can be."""
    crossed = fabric_of("0246,1357")
    even = Fabric(Node("core", tuple(Node(n, (), CARD, CARD, 5e-6) for n in NAMES)))
    taken = answer(crossed, (0.45, even))
    assert taken.order == answer(crossed).order


def test_an_order_is_found_by_an_alternative_alone() -> None:
    """Tests a network in which no groups were sure, but may be."""
    even = Fabric(Node("core", tuple(Node(n, (), CARD, CARD, 5e-6) for n in NAMES)))
    crossed = fabric_of("0246,1357")
    taken = answer(even, (0.3, crossed))
    assert seconds(crossed, taken.order) == pytest.approx(
        seconds(crossed, answer(crossed).order)
    )


def test_how_sure_the_groups_are_goes_with_the_map() -> None:
    """Tests that the map has the fabric's confidence, and its JSON too."""
    taken = answer(fabric_of("0246,1357"))
    assert taken.confidence == 0.8
    assert not taken.is_sure
    assert RankMap.from_json(taken.to_json()) == taken
    unknown = solve(
        NetworkSnapshot(tuple(map(Host, NAMES)), fabric=flat(NAMES), digest="a"), RING
    )
    assert unknown.confidence is None
    assert unknown.is_sure


def test_alternatives_of_some_hosts() -> None:
    """Tests that a fabric and its alternatives keep the same hosts, and shares."""
    main = racks([3, 3], nic=CARD, uplink=CARD, seed=1)
    other = Alternative(0.25, flat(main.hosts).root)
    some = replace(main, alternatives=(other,)).restrict(main.hosts[:4])
    drawn = some.drawn()
    assert [share for share, _ in drawn] == [0.75, 0.25]
    assert all(sorted(f.hosts) == sorted(main.hosts[:4]) for _, f in drawn)
    assert np.isclose(sum(share for share, _ in drawn), 1.0)
