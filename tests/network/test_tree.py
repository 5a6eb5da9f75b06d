from __future__ import annotations

import math

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics

from cloudcoll.errors import UsageError
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric, Node, flat

UNEVEN = Fabric(
    Node(
        "core",
        (
            Node("near", (), 1.0, 2.0, 1e-6),
            Node("rack", (Node("a", (), 3.0), Node("b", (), 4.0)), 5.0, 6.0, 7e-6),
        ),
    )
)


def test_a_host_stands_in_one_place() -> None:
    """Tests that a name that two leaves share is refused."""
    with pytest.raises(UsageError, match="'a' stands twice"):
        flat(("a", "b", "a"))


def test_links_of_an_uneven_tree() -> None:
    """Tests by hand the arrays of a tree whose hosts stand at two depths."""
    links = UNEVEN.links
    near, a, b = (links.member[:, column] for column in range(3))
    assert a[0] == b[0] != near[0]
    assert len({near[1], a[1], b[1]}) == 3
    assert links.up[near].tolist() == [1.0, math.inf]
    assert links.up[a].tolist() == [5.0, 3.0]
    assert links.down[a].tolist() == [6.0, math.inf]
    assert links.latency[b].tolist() == [7e-6, 0.0]


@given(fabrics())
def test_two_hosts_differ_at_the_bottom_and_join_once(fabric: Fabric) -> None:
    """Tests that two paths share a head of the way down and nothing after it."""
    member = fabric.links.member
    shared = member[:, :, None] == member[:, None, :]
    assert (shared[1:] <= shared[:-1]).all()
    assert (shared[-1] == np.eye(len(fabric.hosts), dtype=bool)).all()


def test_groups_count_from_the_leaves_up() -> None:
    """Tests the levels of a tree with a host beside a rack."""
    assert [[node.name for node in level] for level in UNEVEN.groups()] == [
        ["rack"],
        ["core"],
    ]


def test_a_host_alone_has_no_group() -> None:
    """Tests a fabric that is one host."""
    fabric = Fabric(Node("a"))
    assert (fabric.groups(), fabric.lowest_groups()) == ([], {})
    assert fabric.racks().tolist() == [0]


def test_rtt_of_a_group() -> None:
    """Tests that a rack's and the core's round trips are those planted."""
    fabric = racks([4, 4, 3], rtt=50e-6, rack_rtt=250e-6)
    (rack, *_), (core,) = fabric.groups()
    assert fabric.rtt(rack) == pytest.approx(50e-6)
    assert fabric.rtt(core) == pytest.approx(250e-6)
    assert math.isnan(fabric.rtt(rack.children[0]))


def test_a_leg_that_is_not_known_takes_no_time() -> None:
    """Tests racks of which the hosts' latency is known, and their own link's not."""
    racks = [
        Node(f"rack-{i}", tuple(Node(f"{i}{n}", latency_s=1.0) for n in range(3)))
        for i in range(3)
    ]
    fabric = Fabric(Node("core", tuple(racks)))
    assert fabric.rtt(fabric.root) == fabric.rtt(racks[0]) == 4.0
    assert math.isnan(fabric.rtt(Node("core", tuple(map(Node, "ab")))))


@given(fabrics(min_hosts=2), st.data())
def test_restrict_keeps_order_and_links(fabric: Fabric, data: st.DataObject) -> None:
    """Tests that the hosts kept see the same links between each other."""
    kept = data.draw(st.sets(st.sampled_from(fabric.hosts), min_size=1))
    small = fabric.restrict(kept)
    assert small.hosts == tuple(name for name in fabric.hosts if name in kept)
    whole, part = fabric.links, small.links
    for name in kept:
        one = part.up[part.member[:, small.position(name)]]
        all_ = whole.up[whole.member[:, fabric.position(name)]]
        assert one.tolist() == all_[: len(one)].tolist()


def test_restrict_refuses_unknown_hosts_and_none() -> None:
    """Tests that the error names the host, and that none is no fabric."""
    with pytest.raises(UsageError, match="'z' is not in the fabric of 3 hosts"):
        UNEVEN.restrict(["a", "z"])
    with pytest.raises(UsageError, match="no hosts"):
        UNEVEN.restrict([])


def test_the_graph_has_all_links_and_what_is_known_of_them() -> None:
    """Tests that a fabric as a graph is the same tree, names made unique."""
    rack = Node("a", (Node("b", uplink_bytes_per_s=1e9), Node("c")), latency_s=2e-6)
    fabric = Fabric(Node("core", (rack, Node("a-1"), Node("core-1"))))
    graph = fabric.to_networkx()
    assert networkx.is_tree(graph)
    hosts = {name for name, kind in graph.nodes(data="kind") if kind == "host"}
    assert hosts == set(fabric.hosts)
    assert graph.edges["a", "b"] == {"up_bytes_per_s": 1e9}
    assert graph.edges["core", "a"] == {"latency_s": 2e-6}
    assert networkx.shortest_path(graph, "b", "a-1") == ["b", "a", "core", "a-1"]
