from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from noisy import Noise, planted, probed

from cloudcoll.hosts import Host
from cloudcoll.infer import groups_found, infer_fabric, with_rates_of
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Alternative, Fabric, Node

EVEN = [4, 4, 4, 4]
UNEVEN = [5, 3, 6, 2]
SINGLETON = [1, 4, 8, 3]
LARGE = [11, 3, 9, 7, 13, 5, 10, 6]

Groups = list[set[str]]


def parts(node: Node) -> Groups:
    """Return the hosts of each child, a host by itself as a set of one."""
    return [set(child.leaves()) for child in node.children]


def bottom(fabric: Fabric) -> Groups:
    """Return the hosts that share a switch; hosts on a higher one are alone."""
    groups = [set(node.leaves()) for node in fabric.groups()[0]]
    grouped = set().union(*groups)
    return groups + [{name} for name in fabric.hosts if name not in grouped]


def adjusted_rand(one: Groups, other: Groups) -> float:
    """Return the adjusted Rand index (Hubert and Arabie 1985): 1 if equal."""

    def pairs(sizes: Iterable[int]) -> float:
        return sum(math.comb(size, 2) for size in sizes)

    both = pairs(len(a & b) for a in one for b in other)
    first, second = pairs(map(len, one)), pairs(map(len, other))
    chance = first * second / pairs([sum(map(len, one))])
    return (both - chance) / ((first + second) / 2 - chance)


def without(snapshot: NetworkSnapshot, pairs: Sequence[bool]) -> NetworkSnapshot:
    """Return the snapshot with only these pairs measured."""
    rtt, keep = snapshot.rtt, np.array(pairs)
    samples = [rtt.of(i) for i in np.flatnonzero(keep).tolist()]
    ends = np.cumsum([len(part) for part in samples], dtype=np.int64)
    left = RttSamples(
        rtt.src[keep], rtt.dst[keep], rtt.sent[keep], ends, np.concatenate(samples)
    )
    return dataclasses.replace(snapshot, rtt=left)


def pods(
    sizes: Sequence[Sequence[int]],
    trips: tuple[float, float, float] = (50e-6, 150e-6, 350e-6),
) -> Fabric:
    """Plant racks in pods; `trips` are the round trips in rack, pod and core."""
    numbers = iter(np.random.default_rng(5).permutation(sum(map(sum, sizes))))
    to_rack, to_pod, to_core = np.diff([0.0, *trips]) / 4

    def host() -> Node:
        return Node(f"vm-{next(numbers):03d}", (), 50e6, 50e6, to_rack)

    def rack(size: int) -> Node:
        return Node("rack", tuple(host() for _ in range(size)), 50e6, 50e6, to_pod)

    planted = [Node("pod", tuple(map(rack, pod)), 50e6, 50e6, to_core) for pod in sizes]
    return Fabric(Node("core", tuple(planted)), origin="synthetic")


def test_adjusted_rand_index() -> None:
    """Tests the measure itself: equal, unrelated and a known value between."""
    halves: Groups = [{"a", "b", "c"}, {"d", "e", "f"}]
    assert adjusted_rand(halves, halves[::-1]) == 1.0
    assert adjusted_rand(halves, [{"a", "d"}, {"b", "e"}, {"c", "f"}]) < 0
    assert adjusted_rand(halves, [{"a", "b"}, {"c", "d"}, {"e", "f"}]) == pytest.approx(
        8 / 33
    )


@pytest.mark.parametrize("noise", [0.1, 0.25, 0.4])
@pytest.mark.parametrize(
    "sizes", [EVEN, UNEVEN, SINGLETON, [1, 1, 6], [2, 2], LARGE, [8] * 8], ids=str
)
def test_racks_are_found(sizes: list[int], noise: float) -> None:
    """Tests that round trips alone show the planted racks, and only them."""
    for seed in range(5):
        planted = racks(sizes, seed=seed)
        fabric = infer_fabric(observe(planted, noise=noise, seed=seed))
        # Single hosts may be put side by side: no distance speaks against it.
        least = 0.9 if sizes.count(1) > 1 else 1.0
        assert adjusted_rand(parts(planted.root), parts(fabric.root)) >= least
        assert len(fabric.groups()) == 2
        assert fabric.warnings == ()


@pytest.mark.parametrize("rack_rtt", [80e-6, 125e-6])
@pytest.mark.parametrize("noise", [0.1, 0.25])
@pytest.mark.parametrize("sizes", [EVEN, LARGE], ids=str)
def test_racks_close_together_are_found(
    sizes: list[int], noise: float, rack_rtt: float
) -> None:
    """Tests racks whose far pairs take 1.6 and 2.5 times as long as near ones."""
    for seed in range(3):
        planted = racks(sizes, rack_rtt=rack_rtt, seed=seed)
        fabric = infer_fabric(observe(planted, noise=noise, seed=seed))
        assert adjusted_rand(parts(planted.root), parts(fabric.root)) > 0.95


@pytest.mark.parametrize("noise", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("size", [2, 3, 6, 16, 40])
def test_a_flat_network_stays_flat(size: int, noise: float) -> None:
    """Tests that no groups are made up out of noise."""
    for seed in range(5):
        planted = racks([size], rack_rtt=50e-6, seed=seed)
        fabric = infer_fabric(observe(planted, noise=noise, seed=seed))
        assert len(fabric.groups()) == 1
        assert fabric.root.children
        assert sorted(fabric.hosts) == sorted(planted.hosts)


@pytest.mark.parametrize("noise", [0.1, 0.25])
@pytest.mark.parametrize(
    "trips", [(50e-6, 150e-6, 350e-6), (50e-6, 250e-6, 600e-6)], ids=str
)
@pytest.mark.parametrize(
    "sizes", [[[4, 4], [4, 4], [4, 4]], [[5, 3, 4], [6, 2], [3, 4, 3]]], ids=str
)
def test_pods_of_racks_are_found(
    sizes: list[list[int]], trips: tuple[float, float, float], noise: float
) -> None:
    """Tests that two levels appear, whether racks or pods stand out more."""
    planted = pods(sizes, trips)
    for seed in range(3):
        fabric = infer_fabric(observe(planted, noise=noise, seed=seed))
        assert adjusted_rand(bottom(planted), bottom(fabric)) > 0.95
        assert adjusted_rand(parts(planted.root), parts(fabric.root)) == 1.0
        assert len(fabric.groups()) == 3


@pytest.mark.parametrize("planted", [racks(UNEVEN, seed=2), pods([[4, 3], [5, 4]])])
def test_the_fabric_predicts_the_round_trips(planted: Fabric) -> None:
    """Tests that link latencies add up to what was measured."""
    snapshot = observe(planted, noise=0.01, seed=1)
    fabric = infer_fabric(snapshot)
    order = [snapshot.names.index(name) for name in fabric.hosts]
    measured = snapshot.latency.values[np.ix_(order, order)]
    measured = np.fmax(measured, measured.T)
    off = ~np.eye(len(order), dtype=bool)
    predicted = fabric.links.pair_rtt()
    assert predicted[off] == pytest.approx(measured[off], rel=0.02)


def test_dead_hosts_hang_on_the_core() -> None:
    """Tests that hosts never heard cost the others nothing, and are named."""
    planted = racks(UNEVEN, seed=4)
    whole = observe(planted, seed=4)
    dead = {3, 9}
    alive = [
        not dead & {src, dst}
        for src, dst in zip(whole.rtt.src.tolist(), whole.rtt.dst.tolist(), strict=True)
    ]
    failed = {whole.names[host]: "no answer" for host in sorted(dead)}
    snapshot = dataclasses.replace(without(whole, alive), failed=failed)
    fabric = infer_fabric(snapshot)
    expected = [part - set(failed) for part in parts(planted.root)]
    assert adjusted_rand(
        [*expected, *({name} for name in failed)], parts(fabric.root)
    ) == pytest.approx(1.0)
    assert {node.name for node in fabric.root.children} >= set(failed)
    assert fabric.warnings == tuple(
        f"nothing measured with {name}: no answer" for name in failed
    )


@pytest.mark.parametrize(("share", "least"), [(0.3, 0.85), (0.5, 0.95), (0.8, 0.98)])
def test_missing_pairs_are_filled_in(share: float, least: float) -> None:
    """Tests that racks appear with only a share of the pairs measured."""
    for seed in range(8):
        planted = racks(LARGE, seed=seed)
        whole = observe(planted, noise=0.1, seed=seed)
        kept = np.random.default_rng(seed).random(len(whole.rtt.src)) < share
        fabric = infer_fabric(without(whole, kept.tolist()))
        assert adjusted_rand(parts(planted.root), parts(fabric.root)) >= least


def test_nothing_measured_is_flat() -> None:
    """Tests that hosts without any sample all hang on the core."""
    fabric = infer_fabric(NetworkSnapshot(tuple(Host(name) for name in "abc")))
    assert fabric.hosts == ("a", "b", "c")
    assert len(fabric.groups()) == 1


@pytest.mark.parametrize("delay", [200e-6, 400e-6, 5e-3])
@pytest.mark.parametrize("planted", [racks(EVEN, seed=1), pods([[4, 3], [5, 4]])])
def test_a_slow_host_has_a_long_link(planted: Fabric, delay: float) -> None:
    """Tests that a late answerer keeps its rack, and its link has the delay."""
    whole = observe(planted, noise=0.05, seed=1)
    slow = whole.names[6]
    rtt = whole.rtt
    late = np.repeat((rtt.src == 6) | (rtt.dst == 6), np.diff(rtt.ends, prepend=0))
    samples = dataclasses.replace(rtt, seconds=rtt.seconds + delay * late)
    fabric = infer_fabric(dataclasses.replace(whole, rtt=samples))
    assert adjusted_rand(bottom(planted), bottom(fabric)) == 1.0
    assert adjusted_rand(parts(planted.root), parts(fabric.root)) == 1.0
    (home,) = [node for node in fabric.groups()[0] if slow in node.leaves()]
    legs = {host.name: host.latency_s for host in home.children}
    own = legs.pop(slow) - float(np.median(list(legs.values())))
    assert 2 * own == pytest.approx(delay, rel=0.1)
    assert fabric.warnings == ()
    assert fabric.holdout_error < 0.1


def test_group_names_count_left_to_right() -> None:
    """Tests that groups are 1, 2, ... and theirs 1.1, and hosts keep theirs."""
    fabric = infer_fabric(observe(pods([[2, 2], [2, 2]]), noise=0.01))
    pods_, (root,) = fabric.groups()[-2:]
    assert [node.name for node in root.children] == ["1", "2"]
    assert [node.name for node in pods_[0].children] == ["1.1", "1.2"]


def test_only_late_hosts_get_longer_links() -> None:
    """Tests heavy tails and starved hosts beside a late one, and without it."""
    noise = Noise(scatter=0.3, stalls=0.2, tails=0.6, starved=2)
    for seed in range(12):
        for late in ({}, {"vm-05": 150e-6}):
            fabric = planted((16,), 50e6, 150e-6, seed)
            seen = probed(fabric, noise, seed, rounds=2, late=late)
            root = infer_fabric(seen).root
            legs = {node.name: node.latency_s for node in root.children}
            usual = sorted(legs.values())[len(legs) // 2]
            assert {n for n, leg in legs.items() if leg > 1.2 * usual} == set(late)


def test_what_was_found_is_not_looked_for_again() -> None:
    """Tests that a probe's last look at all it measured stands, and is judged."""
    snapshot = observe(racks((4, 4), seed=1), rounds=8, seed=1)
    found, whole = groups_found(snapshot), infer_fabric(snapshot)
    assert infer_fabric(snapshot, found) == whole
    other = dataclasses.replace(found, confidence=0.25)
    assert infer_fabric(snapshot, other) == dataclasses.replace(whole, confidence=0.25)


@pytest.mark.parametrize("planted", [racks((4, 4)), pods([[4, 3], [5, 4]])])
def test_sure_groups_are_not_looked_for_again_to_be_judged(planted: Fabric) -> None:
    """Tests that groups found anew are judged where those that were found may be wrong.

    Where they are right both have the same error, to the last digit.
    """
    snapshot = observe(planted, rounds=8, seed=1)
    found = groups_found(snapshot)
    another = dict(zip(found.hosts, np.roll(found.hosts, 2).tolist(), strict=True))

    def dealt(node: Node) -> Node:
        below = tuple(map(dealt, node.children))
        name = another.get(node.name, node.name)
        return dataclasses.replace(node, name=name, children=below)

    wrong = dataclasses.replace(found, root=dealt(found.root))

    def error(groups: Fabric, confidence: float) -> float:
        known = dataclasses.replace(groups, confidence=confidence)
        return infer_fabric(snapshot, known).holdout_error

    assert error(found, 1.0) == error(found, 0.5) == error(wrong, 0.5)
    assert error(wrong, 1.0) > error(found, 1.0)


def test_links_of_known_groups_are_measured_alone() -> None:
    """Tests that rates come from a snapshot, and all else from the fabric."""
    snapshot = observe(racks((4, 4), seed=1), rounds=8, seed=1)
    found = groups_found(snapshot)

    def bare(node: Node) -> Node:
        below = tuple(map(bare, node.children))
        return Node(node.name, below, latency_s=node.latency_s)

    other = Alternative(0.25, bare(found.root))
    sure = dataclasses.replace(
        found, root=bare(found.root), confidence=0.75, alternatives=(other,)
    )
    measured = with_rates_of(snapshot, sure)
    assert str(measured.root) == str(found.root) == str(measured.alternatives[0].root)
    assert measured.confidence == 0.75
    assert measured.alternatives[0].share == 0.25
    assert np.isfinite(measured.links.up).any()
