from __future__ import annotations

import math
from dataclasses import replace

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics

from cloudcoll.errors import UsageError
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Alternative, Fabric, Node, flat

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


def test_leaves_have_names_of_hosts() -> None:
    """Tests that what no host can be called is refused."""
    with pytest.raises(UsageError, match="a leaf of the fabric: 'b c' is not a host"):
        flat(("a", "b c"))


def test_a_fabric_is_a_value() -> None:
    """Tests that equal ones are one in a set, and that the text of one makes it."""
    again = eval(repr(UNEVEN), {"Fabric": Fabric, "Node": Node, "nan": math.nan})
    assert {again, UNEVEN} == {UNEVEN}


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


def tree(name: str, *children: Node | str) -> Node:
    """Return a group without figures."""
    nodes = (Node(one) if isinstance(one, str) else one for one in children)
    return Node(name, tuple(nodes))


def test_the_group_of_each_host() -> None:
    """Tests the lowest groups, and the switches of all hosts, by number upwards."""
    pod = tree("pod", tree("left", "a", "b"), tree("right", "c"))
    fabric = Fabric(tree("core", pod, "d"))
    assert fabric.lowest_groups() == {"a": "left", "b": "left", "c": "right"}
    assert fabric.racks().tolist() == [0, 0, 1, 3]
    assert flat(("a", "b")).lowest_groups() == {}


def test_a_host_alone_has_no_group() -> None:
    """Tests a fabric that is one host."""
    fabric = Fabric(Node("a"))
    assert (fabric.groups(), fabric.lowest_groups()) == ([], {})
    assert fabric.racks().tolist() == [0]


@pytest.mark.parametrize(
    ("child", "speeds", "shared"),
    [
        (tree("rack", "a", "b"), False, False),
        (Node("a", latency_s=0.0), True, False),
        (tree("rack", "a", Node("b", downlink_bytes_per_s=1.0)), True, False),
        (Node("rack", (Node("a"), Node("b")), latency_s=1e-6), True, False),
        (Node("rack", (Node("a"), Node("b")), downlink_bytes_per_s=1.0), True, True),
    ],
)
def test_which_figures_are_known(child: Node, speeds: bool, shared: bool) -> None:
    """Tests that one figure of any link is enough, and that the core's own are none."""
    fabric = Fabric(Node("core", (child, Node("x")), 1.0, 1.0, 1.0))
    assert (fabric.has_speeds(), fabric.shares_links()) == (speeds, shared)


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


def test_rtt_is_that_of_the_median_host() -> None:
    """Tests hosts at different distances, and a group of two legs."""
    legs = [*zip("abcde", (9.0, 1.0, 3.0, 2.0, 9.0), strict=True)]
    left, right = (
        Node(side, tuple(Node(side + one, latency_s=leg) for one, leg in legs))
        for side in ("left", "right")
    )
    fabric = Fabric(tree("core", *(replace(x, latency_s=0.5) for x in (left, right))))
    # The median host is 3 s from its rack's switch, which is 0.5 s from the core.
    assert fabric.rtt(left) == 12.0
    assert fabric.rtt(fabric.root) == 14.0
    # Hosts of the one are 3.5 s from the core, of the other 3 s: 6.5 s there.
    uneven = Fabric(tree("core", replace(left, latency_s=0.5), right))
    assert uneven.rtt(uneven.root) == 13.0


def test_the_shares_of_what_a_fabric_may_be_are_1_together() -> None:
    """Tests that the likeliest tree has what its alternatives leave of 1."""
    roots = [tree("core", "a", "b"), tree("one", "b", "a"), tree("two", "a", "b")]
    others = (Alternative(0.25, roots[1]), Alternative(0.5, roots[2]))
    fabric = Fabric(roots[0], "labels", alternatives=others)
    shares, drawn = zip(*fabric.drawn(), strict=True)
    assert shares == (0.25, 0.25, 0.5)
    assert drawn == tuple(Fabric(root, "labels") for root in roots)
    # Shares that were rounded up may be more than 1.
    (first, _), *_ = replace(fabric, alternatives=others * 2).drawn()
    assert first == 0.0


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


def test_groups_of_one_name_are_numbered_in_a_graph() -> None:
    """Tests that a second rack "a" is "a-2", or "a-3" where a host is called so."""
    for host, second in (("b", "a-2"), ("a-2", "a-3")):
        racks = tree("a", host), tree("a", "c")
        graph = Fabric(tree("core", *racks)).to_networkx()
        assert set(graph) == {"core", "a", second, host, "c"}
        assert graph.has_edge(second, "c")
