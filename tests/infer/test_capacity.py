from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from cloudcoll.infer import infer_fabric
from cloudcoll.infer.fit import with_capacities
from cloudcoll.infer.holdout import Figures
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Fabric, Node

EVEN = [4, 4, 4, 4]
UNEVEN = [5, 3, 6, 2]


@pytest.mark.many
@pytest.mark.parametrize("sizes", [EVEN, UNEVEN, [8] * 4], ids=str)
@pytest.mark.parametrize("uplink", [50e6, 100e6])
def test_capacities_follow_the_loaded_rounds(sizes: list[int], uplink: float) -> None:
    """Tests that uplinks and NICs come out within 20 % where rounds fill them."""
    planted = racks(sizes, nic=50e6, uplink=uplink, seed=7)
    fabric = infer_fabric(observe(planted, rounds=16, noise=0.05, seed=7))
    for node in fabric.root.children:
        size = len(node.children)
        up, down = node.uplink_bytes_per_s, node.downlink_bytes_per_s
        if size * 50e6 > 1.2 * uplink:
            assert (up, down) == pytest.approx((uplink, uplink), rel=0.2)
        else:  # its hosts cannot fill it: not known, or what it was seen to carry
            assert math.isnan(up) or up > 0.6 * uplink
            assert math.isnan(down) or down > 0.6 * uplink
        for host in node.children:
            nic = host.uplink_bytes_per_s, host.downlink_bytes_per_s
            assert nic == pytest.approx((50e6, 50e6), rel=0.15)


def test_directions_have_their_own_capacity() -> None:
    """Tests that an uplink slower in one direction is seen as such."""
    planted = racks(EVEN, nic=50e6, uplink=100e6, seed=3)
    first, *others = planted.root.children
    narrow = dataclasses.replace(first, uplink_bytes_per_s=40e6)
    fabric = Fabric(dataclasses.replace(planted.root, children=(narrow, *others)))
    inferred = infer_fabric(observe(fabric, rounds=24, noise=0.05, seed=3))
    links = {frozenset(node.leaves()): node for node in inferred.root.children}
    found = links[frozenset(first.leaves())]
    assert found.uplink_bytes_per_s == pytest.approx(40e6, rel=0.15)
    assert found.downlink_bytes_per_s == pytest.approx(100e6, rel=0.15)


def test_a_wide_uplink_that_never_filled_is_no_limit() -> None:
    """Tests that rounds held back elsewhere do not narrow a rack's uplink."""
    planted = racks(UNEVEN, nic=50e6, uplink=100e6, seed=3)
    fabric = infer_fabric(observe(planted, rounds=12, noise=0.1, seed=1))
    (pair,) = [node for node in fabric.root.children if len(node.children) == 2]
    assert math.isnan(pair.uplink_bytes_per_s)


@pytest.mark.slow
def test_a_small_rack_below_a_full_pod_is_not_narrow() -> None:
    """Tests that what the pods' uplinks hold back does not count against a rack's."""
    names = iter(f"vm-{i:02d}" for i in np.random.default_rng(0).permutation(44))
    pods = []
    for number, sizes in enumerate(([13, 3, 8], [4, 9, 7])):
        racks_of_pod = tuple(
            Node(
                f"rack-{number}-{i}",
                tuple(Node(next(names), (), 1e9, 1e9, 5e-6) for _ in range(size)),
                4e9,
                4e9,
                20e-6,
            )
            for i, size in enumerate(sizes)
        )
        pods.append(Node(f"pod-{number}", racks_of_pod, 6e9, 6e9, 100e-6))
    planted = Fabric(Node("core", tuple(pods)), origin="synthetic")
    inferred = infer_fabric(observe(planted, rounds=16, noise=0.05, seed=0))
    found = {
        frozenset(node.leaves()): node for level in inferred.groups() for node in level
    }
    for pod in pods:
        for rack in pod.children:
            node, needs = found[frozenset(rack.leaves())], min(4, len(rack.children))
            for rate in (node.uplink_bytes_per_s, node.downlink_bytes_per_s):
                assert math.isnan(rate) or rate > 0.8e9 * needs


def test_an_assumed_uplink_is_never_wider_than_its_cards() -> None:
    """Tests that a small rack does not get the wide uplink of large ones."""
    planted = racks([12, 12, 2], nic=50e6, uplink=200e6, seed=1)
    fabric = infer_fabric(observe(planted, rounds=20, noise=0.05, seed=1))
    for rack in fabric.root.children:
        cards = 50e6 * len(rack.children)
        for rate in (rack.uplink_bytes_per_s, rack.downlink_bytes_per_s):
            known = pytest.approx(200e6, rel=0.15)
            assert rate == known if cards > 200e6 else math.isnan(rate)


def test_a_flow_that_delivered_nothing_tells_nothing() -> None:
    """Tests that a direction dropped during the probe is not a capacity of 0."""
    snapshot = observe(racks(EVEN), rounds=16, seed=1)
    flows = snapshot.flows
    silent = dataclasses.replace(flows, window_bytes=flows.window_bytes.copy())
    for flow in range(len(flows.src)):
        if flows.src[flow] == 5:
            start = flows.ends[flow - 1] if flow else 0
            silent.window_bytes[start : flows.ends[flow]] = 0
    fabric = infer_fabric(dataclasses.replace(snapshot, flows=silent))
    assert (fabric.links.up > 0).all()
    assert (fabric.links.down > 0).all()


def test_a_host_that_never_sent_has_no_rate() -> None:
    """Tests that the others' NICs are not made up for a dead host."""
    snapshot = observe(racks(EVEN), rounds=16, seed=1)
    flows = snapshot.flows
    dead = (flows.src == 5) | (flows.dst == 5)
    lengths = np.diff(flows.ends, prepend=0)
    mute = np.where(np.repeat(dead, lengths), 0, flows.window_bytes)
    fabric = infer_fabric(
        dataclasses.replace(
            snapshot, flows=dataclasses.replace(flows, window_bytes=mute)
        )
    )
    links = fabric.links
    free = np.isinf(links.up[links.member[1]]) & np.isinf(links.down[links.member[1]])
    assert [fabric.hosts[i] for i in np.flatnonzero(free)] == [snapshot.names[5]]


def test_without_rounds_capacities_are_not_known() -> None:
    """Tests that NaN, never zero, stands for what was not loaded."""
    fabric = infer_fabric(observe(racks(EVEN)))
    for node in fabric.root.children:
        for each in (node, *node.children):
            assert math.isnan(each.uplink_bytes_per_s)
            assert math.isnan(each.downlink_bytes_per_s)


@pytest.mark.parametrize(
    ("shares", "rate"),
    [
        ((1.0,), math.nan),
        ((0.9,), math.nan),
        ((0.8,), 160.0),
        ((0.5,), 100.0),
        # Of several full rounds the fullest tells.
        ((0.5, 0.7), 140.0),
        # A round that carried somewhat more may be noise, one of twice as much not.
        ((0.8, 0.9), 160.0),
        ((0.5, 1.0), math.nan),
    ],
)
def test_when_a_link_counts_as_full(shares: tuple[float, ...], rate: float) -> None:
    """Tests that flows within noise of their NICs' rate met no full link.

    Two racks of two: inside them hosts send at 100 B/s; out of both at once, in one
    round after the other, they get a share of that.
    """
    root = racks([2, 2]).root
    (a, b), (c, d) = (node.leaves() for node in root.children)
    inside = [(0, 1), (1, 0), (2, 3), (3, 2)]
    across = [(0, 2), (1, 3), (2, 0), (3, 1)]
    src, dst = np.array([*inside, *across * len(shares)]).T
    seen = Figures(
        names=(a, b, c, d),
        rtt=np.full((4, 4), math.nan),
        round=np.repeat(np.arange(1 + len(shares)), 4),
        src=src,
        dst=dst,
        rate=np.repeat([100.0, *(100.0 * share for share in shares)], 4),
    )
    for rack in with_capacities(root, seen).children:
        rates = rack.uplink_bytes_per_s, rack.downlink_bytes_per_s
        assert rates == pytest.approx((rate, rate), nan_ok=True)


@pytest.mark.parametrize("share", [0.84, 0.86])
def test_one_flow_fills_no_link(share: float) -> None:
    """Tests that a pair alone may be slow by itself, and tells no rate of its rack."""
    root = racks([2, 2]).root
    names = tuple(root.leaves())
    seen = Figures(
        names=names,
        rtt=np.full((4, 4), math.nan),
        round=np.array([0, 0, 0, 0, 1]),
        src=np.array([0, 1, 2, 3, 0]),
        dst=np.array([1, 0, 3, 2, 2]),
        rate=np.array([100.0, 100.0, 100.0, 100.0, 100.0 * share]),
    )
    for rack in with_capacities(root, seen).children:
        assert math.isnan(rack.uplink_bytes_per_s)
        assert math.isnan(rack.downlink_bytes_per_s)


@pytest.mark.parametrize(
    ("across", "rates"),
    [
        # Both ends of each pair of flows may be what held it back: the widest tells.
        (
            {(0, 2): 50.0, (1, 3): 50.0, (2, 4): 80.0, (3, 5): 80.0},
            {"up": (160.0, 160.0, math.nan), "down": (math.nan, 160.0, 160.0)},
        ),
        # The first rack's flows go apart: its link up held them back, and tells of
        # the third's, which carried less; what carried more is no narrower than that.
        (
            {
                (0, 2): 50.0,
                (1, 4): 50.0,
                (2, 4): 80.0,
                (3, 5): 80.0,
                (4, 0): 40.0,
                (5, 1): 40.0,
            },
            {"up": (100.0, 160.0, 100.0), "down": (100.0, math.nan, 160.0)},
        ),
    ],
)
def test_links_of_one_switch_are_taken_to_be_alike(
    across: dict[tuple[int, int], float], rates: dict[str, tuple[float, ...]]
) -> None:
    """Tests which links of three racks of two tell the rates of the others.

    Inside the racks hosts send at 100 B/s; across them in rounds of two flows.
    """
    root = racks([2, 2, 2]).root
    inside = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    src, dst = np.array([*inside, *across]).T
    rounds = len(across) // 2
    seen = Figures(
        names=tuple(name for rack in root.children for name in rack.leaves()),
        rtt=np.full((6, 6), math.nan),
        round=np.repeat(np.arange(1 + rounds), [6] + [2] * rounds),
        src=src,
        dst=dst,
        rate=np.array([100.0] * 6 + list(across.values())),
    )
    found = with_capacities(root, seen).children
    ups = [rack.uplink_bytes_per_s for rack in found]
    downs = [rack.downlink_bytes_per_s for rack in found]
    assert ups == pytest.approx(rates["up"], nan_ok=True)
    assert downs == pytest.approx(rates["down"], nan_ok=True)
