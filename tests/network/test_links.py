from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from strategies import fabrics

from cloudcoll.arrays import Floats
from cloudcoll.network.tree import Fabric, Node, Pairs


def way(fabric: Fabric, src: str, dst: str) -> tuple[list[Node], list[Node]]:
    """Return the nodes whose links a message goes up, and those it comes down."""

    def above(node: Node, host: str) -> list[Node]:
        if not node.children:
            return [node] if node.name == host else []
        for child in node.children:
            if found := above(child, host):
                return [node, *found]
        return []

    out, into = above(fabric.root, src), above(fabric.root, dst)
    return (
        [node for node in out if node not in into],
        [node for node in into if node not in out],
    )


@given(fabrics())
def test_figures_of_pairs_are_those_of_their_paths(fabric: Fabric) -> None:
    """Tests round trips and rates of every two hosts against a walk over the tree."""
    links = fabric.links
    trips, slowest = links.pair_rtt(), links.pair_s_per_byte()
    for (a, src), (b, dst) in itertools.permutations(enumerate(fabric.hosts), 2):
        up, down = way(fabric, src, dst)
        legs = [node.latency_s for node in (*up, *down)]
        trip = 2 * math.fsum(leg for leg in legs if not math.isnan(leg))
        assert trips[a, b] == pytest.approx(trip)
        assert links.trips(np.array([a]), np.array([b])) == pytest.approx([trip])
        rates = [node.uplink_bytes_per_s for node in up]
        rates += [node.downlink_bytes_per_s for node in down]
        needs = [1 / rate for rate in rates if not math.isnan(rate)]
        assert slowest[a, b] == pytest.approx(max(needs, default=0.0))
    assert not np.diag(trips).any()
    assert not np.diag(slowest).any()


THREE = Fabric(Node("core", tuple(Node(name, (), 4.0, 2.0) for name in "abc"))).links


def test_no_pair_is_faster_than_its_links() -> None:
    """Tests that a slower pair stays, a faster one does not, and oneself is free."""
    figures = np.array([[9.0, 0.1, 3.0], [3.0, 9.0, 0.1], [0.1, 3.0, 9.0]])
    pairs = Pairs(figures, figures).over(THREE)
    assert pairs.alpha.tolist() == [[0.0, 0.1, 3.0], [3.0, 0.0, 0.1], [0.1, 3.0, 0.0]]
    slow = [[0.0, 0.5, 3.0], [3.0, 0.0, 0.5], [0.5, 3.0, 0.0]]
    assert pairs.s_per_byte.tolist() == slow
    assert pairs.seconds(10.0)[0].tolist() == [0.0, 5.1, 33.0]


@pytest.mark.parametrize(
    ("alpha", "s_per_byte", "message"),
    [
        (np.zeros((3, 3)), np.zeros((2, 2)), "pairs of 3"),
        (np.zeros((3, 3)), np.full((3, 3), -1e-9), "0 or more"),
        (np.full((3, 3), np.nan), np.zeros((3, 3)), "0 or more"),
        (np.full((3, 3), np.inf), np.zeros((3, 3)), "0 or more"),
    ],
)
def test_figures_that_cannot_be_are_refused(
    alpha: Floats, s_per_byte: Floats, message: str
) -> None:
    """Tests shapes, signs and what is not a number."""
    with pytest.raises(ValueError, match=message):
        Pairs(alpha, s_per_byte)


def test_pairs_of_other_hosts_are_refused() -> None:
    """Tests that as many hosts are meant as there are."""
    with pytest.raises(ValueError, match="3 hosts, but pairs of 4"):
        Pairs(np.zeros((4, 4)), np.zeros((4, 4))).over(THREE)
