from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics, schedules, slot_counts

from cloudcoll.collectives import build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node, Pairs, flat
from cloudcoll.solve.bounds import lower_bound, places_of
from cloudcoll.solve.rules import Rules
from cloudcoll.solve.search import exhaustive


@st.composite
def models(draw: st.DrawFn) -> CostModel:
    """Draw a handful of hosts, alike or not, and what their ranks send."""
    fabric = draw(fabrics(min_hosts=2, max_hosts=6))
    hosts = len(fabric.hosts)
    slots = draw(slot_counts(hosts) | st.just([2] * hosts))
    ranks = sum(slots)
    schedule = draw(schedules(ranks))
    if draw(st.booleans()):
        schedule = dataclasses.replace(schedule, turns=draw(st.sampled_from([0, 1e5])))
    pairs = draw(
        st.none() | st.integers(0, 99).map(lambda seed: some_pairs(hosts, seed))
    )
    if draw(st.integers(0, 3)) or ranks % 2:
        return CostModel(schedule, fabric, slots, pairs=pairs)
    halves = np.arange(ranks).reshape(2, -1).T
    exchange = Operation("sendrecv", "both", 1 << 20, halves, calls=3)
    world = Operation("allreduce", "ring", 1 << 20, [np.arange(ranks)])
    both = Workload("both", ranks, (exchange, world))
    return CostModel(both, fabric, slots, pairs=pairs)


def some_pairs(hosts: int, seed: int) -> Pairs:
    """Draw figures of pairs that no tree explains."""
    generator = np.random.default_rng(seed)
    alpha, s_per_byte = generator.exponential(1.0, (2, hosts, hosts))
    return Pairs(alpha * 20e-6, s_per_byte * 20e-9)


@given(models())
def test_no_order_beats_the_bound(model: CostModel) -> None:
    """Tests any tree, slots and schedule against the best of all orders."""
    hosts = len(model.slots)
    _, (best, _) = exhaustive(model, [np.arange(hosts)], Rules.only(hosts), 0)
    bound = lower_bound(model)
    assert bound <= best
    # The same on every processor: not what sums differ by.
    assert bound == float(f"{bound:.11g}")


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [5, 3, 6, 2], [7, 1, 9]], ids=str)
@pytest.mark.parametrize("algorithm", ["ring", "gloo_ring"])
def test_rings_reach_the_bound(sizes: list[int], algorithm: str) -> None:
    """Tests that a ring along the racks is known to be perfect."""
    fabric = racks(sizes)
    schedule = build_schedule("allreduce", algorithm, sum(sizes), 16 << 20)
    model = CostModel(schedule, fabric, [1] * sum(sizes))
    by_racks = model.seconds(range(sum(sizes)))
    assert lower_bound(model) == pytest.approx(by_racks, rel=1e-6)


def test_a_level_that_all_share_changes_nothing() -> None:
    """Tests racks below the one pod of a core: no message crosses its links."""
    fabric = racks([3, 3])
    pod = Node("pod", fabric.root.children, 1.0, 1.0, 1.0)
    schedule = build_schedule("allreduce", "ring", 6, 16 << 20)
    below, plain = (
        lower_bound(CostModel(schedule, one, [1] * 6))
        for one in (Fabric(Node("core", (pod,))), fabric)
    )
    assert below == plain > 0.0


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("algorithm", ["rabenseifner", "gloo_halving_doubling"])
def test_halving_doubling_reaches_the_bound(algorithm: str, slots: int) -> None:
    """Tests regular racks whose uplinks are the bottleneck of all they carry."""
    fabric = racks([4, 4, 4, 4], uplink=25e6)
    schedule = build_schedule("allreduce", algorithm, 16 * slots, 16 << 20)
    model = CostModel(schedule, fabric, [slots] * 16)
    bound = lower_bound(model)
    assert bound <= model.seconds(range(16)) <= 1.25 * bound


def test_all_to_all_reaches_the_bound() -> None:
    """Tests that nothing can be gained where every pair talks alike."""
    schedule = build_schedule("alltoall", "linear", 9, 9 << 20)
    model = CostModel(schedule, racks([5, 4]), [1] * 9)
    assert lower_bound(model) == pytest.approx(model.seconds(range(9)), rel=1e-6)


@pytest.mark.parametrize("slow", ["up", "down", "late"])
def test_a_slow_host_is_in_every_order(slow: str) -> None:
    """Tests four hosts that exchange all their bytes: one card holds back each step."""
    cards = [Node(name, (), 100.0, 100.0, 1.0) for name in "abc"]
    worse = {"up": (10.0, 100.0, 1.0), "down": (100.0, 10.0, 1.0)}
    cards.append(Node("d", (), *worse.get(slow, (100.0, 100.0, 5.0))))
    sent = build_schedule("allreduce", "recursive_doubling", 4, 1000)
    turns = dataclasses.replace(sent, turns=0)
    model = CostModel(turns, Fabric(Node("core", tuple(cards))), [1] * 4)
    # Twice the latency, the message alone, and the load of the busiest card.
    each = 1 + 5 + 10 + 10 if slow == "late" else 2 + 100 + 100
    assert model.seconds(range(4)) == pytest.approx(2 * each)
    assert lower_bound(model) == pytest.approx(2 * each)


def test_pairs_are_waited_for_in_each_step() -> None:
    """Tests pairs that are all alike: no order waits for less than the two steps."""
    schedule = build_schedule("allreduce", "recursive_doubling", 4, 1 << 20)
    alike = Pairs(np.full((4, 4), 20e-6), np.full((4, 4), 20e-9))
    model = CostModel(schedule, flat(tuple("abcd")), [1] * 4, pairs=alike)
    assert lower_bound(model) == pytest.approx(model.seconds(range(4)), rel=1e-6)


def test_links_by_hand() -> None:
    """Tests two hosts in a rack and one beside it: what each is by itself, and above.

    Between them a path takes 1 + 10 + 7 s at least; out of the rack it crosses a card
    of 100 B/s, out of the other host one of 50 B/s, and the ways in are slower.
    """
    inside = Node("a", (), 100.0, 80.0, 1.0), Node("b", (), 100.0, 40.0, 2.0)
    rack = Node("rack", inside, 200.0, 25.0, 10.0)
    fabric = Fabric(Node("core", (rack, Node("c", (), 50.0, 20.0, 7.0))))
    ring = build_schedule("allreduce", "ring", 3, 1 << 20)
    places = places_of(CostModel(ring, fabric, [1] * 3).flat())
    assert 1 / places.up == pytest.approx([100.0, 100.0, 50.0])
    assert 1 / places.down == pytest.approx([80.0, 40.0, 20.0])
    assert places.own == pytest.approx([1.0, 2.0, 7.0])
    assert [group.held for group in places.groups] == [2]
    assert places.groups[0][1:] == pytest.approx([1 / 200, 1 / 25, 1 / 225])
    cut, hosts = places.levels
    assert cut.latency == pytest.approx([1 + 10 + 7, 1 + 10 + 7])
    assert 1 / cut.per_byte == pytest.approx([100.0, 50.0])
    assert hosts.counts.tolist() == [1, 1, 1]


def test_nothing_known_bounds_nothing() -> None:
    """Tests links without speeds, and a single host."""
    ring = build_schedule("allreduce", "ring", 4, 1 << 20)
    assert lower_bound(CostModel(ring, flat(tuple("abcd")), [1] * 4)) == 0.0
    assert lower_bound(CostModel(ring, racks([1]), [4])) == 0.0


def test_hosts_to_choose_from_are_not_bounded() -> None:
    """Tests that the slow ones, which may be left out, bound nothing."""
    ring = build_schedule("allreduce", "ring", 4, 1 << 20)
    assert lower_bound(CostModel(ring, racks([3, 3]), [1] * 6, seats=4)) == 0.0


def test_two_phases_are_bounded_one_by_one() -> None:
    """Tests all to all that fills uplinks, then partners that fill their cards."""
    every = Operation("alltoall", "linear", 4 << 20, [np.arange(4)])
    near = Operation("sendrecv", "both", 4 << 20, list(np.arange(4).reshape(2, 2)))
    job = Workload("job", 4, (every, near))
    model = CostModel(job, racks([2, 2], uplink=25e6), [1] * 4)
    assert model.flat().phases == 2
    assert lower_bound(model) == pytest.approx(model.seconds(range(4)), rel=1e-6)
