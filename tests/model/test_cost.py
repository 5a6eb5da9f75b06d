from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics, pair_figures, schedules, slot_counts

from cloudcoll.collectives import Schedule, Step, build_schedule
from cloudcoll.collectives.steps import pipelined
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.errors import UsageError
from cloudcoll.measured.synth import racks
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node, Pairs, flat


def host(name: str, nic: float = 100.0, latency: float = 1.0) -> Node:
    return Node(name, (), nic, nic, latency)


def two_racks(uplink: float = 100.0) -> Fabric:
    """Plant a, b | c, d: NICs of 100 B/s, 1 s to the rack, 10 s to the core."""
    pairs = [(host("a"), host("b")), (host("c"), host("d"))]
    groups = [
        Node(f"rack-{i}", pair, uplink, uplink, 10.0) for i, pair in enumerate(pairs)
    ]
    return Fabric(Node("core", tuple(groups)))


def one_step(*messages: tuple[int, int, float], repeat: int = 1) -> Step:
    src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    return Step(src, dst, size.astype(float), repeat)


def plan(ranks: int, *steps: Step) -> Schedule:
    return Schedule("allreduce", "test", "none", ranks, 1, steps)


def seconds(schedule: Schedule, fabric: Fabric, order: list[int]) -> float:
    slots = [1] * len(fabric.hosts)
    return CostModel(schedule, fabric, slots).seconds(order)


def test_ring_over_two_racks_by_hand() -> None:
    """Tests that one block on each uplink takes half as long as two."""
    ring = build_schedule("allreduce", "ring", 4, 400)
    # 6 steps of 100 B: a path between racks is 22 s, one in a rack 2 s.
    assert seconds(ring, two_racks(), [0, 1, 2, 3]) == pytest.approx(6 * (22 + 1))
    assert seconds(ring, two_racks(), [0, 2, 1, 3]) == pytest.approx(6 * (22 + 2))
    assert seconds(ring, two_racks(50.0), [0, 2, 1, 3]) == pytest.approx(6 * (22 + 4))


def test_ranks_that_trade_take_turns() -> None:
    """Tests that what is large of messages both ways of a pair waits for the other."""
    both, one = one_step((0, 2, 100.0), (2, 0, 100.0)), one_step((0, 2, 100.0))
    for turns, waiting in ((math.inf, 0.0), (100.0, 0.0), (75.0, 0.5), (0.0, 2.0)):
        schedule = dataclasses.replace(plan(4, both, one), turns=turns)
        # The uplink of 50 B/s is the slowest link: 2 s for each message alone.
        by_hand = (22 + 2 + waiting) + (22 + 2)
        assert seconds(schedule, two_racks(50.0), [0, 1, 2, 3]) == by_hand
    # In a rack the cards of 100 B/s are.
    schedule = dataclasses.replace(plan(4, both), turns=0.0)
    assert seconds(schedule, two_racks(50.0), [0, 2, 1, 3]) == 2 + 1 + 1


def test_a_turn_takes_the_slower_end() -> None:
    """Tests cards that are slow one way, and ranks that share one."""
    trade = plan(2, one_step((0, 1, 100.0), (1, 0, 100.0)))
    turns = dataclasses.replace(trade, turns=0.0)
    # The way back takes 4 s out of the second card and 2 or 5 s into the first, beside
    # what waits for it.
    for into, slower in ((50.0, 4.0), (20.0, 5.0)):
        one, other = Node("a", (), 100.0, into, 0.0), Node("b", (), 25.0, 100.0, 0.0)
        fabric = Fabric(Node("core", (one, other)))
        assert seconds(trade, fabric, [0, 1]) == slower
        assert seconds(turns, fabric, [0, 1]) == 2 * slower
    assert CostModel(turns, flat(("a",)), [2]).seconds([0]) == 0.0


def test_only_what_takes_turns_waits_alone() -> None:
    """Tests what a search engine counts: bytes each way, 0 where nobody trades."""
    both, one = one_step((0, 2, 100.0), (2, 0, 300.0)), one_step((0, 2, 200.0))
    schedule = dataclasses.replace(plan(4, both, one), turns=40.0)
    counted = CostModel(schedule, two_racks(), [1] * 4).flat()
    assert counted.alone.tolist() == [60.0, 260.0, 0.0]
    assert counted.sent.tolist() == [160.0, 560.0, 200.0]


def test_who_takes_turns() -> None:
    """Tests that ranks of Open MPI do beyond what it sends at once, Gloo's never."""
    open_mpi = build_schedule("allreduce", "rabenseifner", 4, 1 << 20)
    gloo = build_schedule("allreduce", "gloo_ring", 4, 1 << 20)
    assert (open_mpi.turns, gloo.turns) == (192 << 10, math.inf)


def test_steps_add_up_and_repeat() -> None:
    """Tests that each step waits for its own slowest part."""
    near, far = one_step((0, 1, 300.0), repeat=2), one_step((0, 2, 100.0))
    assert seconds(plan(4, near, far), two_racks(), [0, 1, 2, 3]) == 2 * (2 + 3) + 23


def test_directions_are_loaded_apart() -> None:
    """Tests that a link carries both ways at once, and each at its own rate."""
    one, other = Node("a", (), 100.0, 50.0, 0.0), Node("b", (), 25.0, 100.0, 0.0)
    fabric = Fabric(Node("core", (one, other)))
    there, back = (0, 1, 100.0), (1, 0, 100.0)
    assert seconds(plan(2, one_step(there)), fabric, [0, 1]) == 1.0
    assert seconds(plan(2, one_step(back)), fabric, [0, 1]) == 4.0
    assert seconds(plan(2, one_step(there, back)), fabric, [0, 1]) == 4.0


def test_ranks_of_one_host_talk_for_free() -> None:
    """Tests that only what leaves a host loads its NIC, with uneven slots."""
    fabric = two_racks()
    ring = build_schedule("allreduce", "ring", 8, 800)
    model = CostModel(ring, fabric, [4, 1, 2, 1])
    # Eight blocks of 100 B a step, of which four cross from host to host.
    assert model.seconds([0, 1, 2, 3]) == pytest.approx(14 * (22 + 1))
    inside = plan(8, one_step((0, 1, 1e9), (4, 4, 1.0)))
    assert CostModel(inside, fabric, [4, 1, 2, 1]).seconds([0, 1, 2, 3]) == 0.0


def test_slots_follow_their_host() -> None:
    """Tests that ranks are counted along the order, not along the fabric."""
    one_message = plan(4, one_step((0, 2, 100.0)))
    fabric = Fabric(Node("core", (host("a"), host("b"))))
    model = CostModel(one_message, fabric, [1, 3])
    assert model.seconds([0, 1]) == 3.0  # rank 0 on a, rank 2 on b
    assert model.seconds([1, 0]) == 0.0  # ranks 0, 1 and 2 on b


def test_streams_of_a_pipeline_load_the_links_together() -> None:
    """Tests that loads add up over links before the slowest is taken."""
    steps = one_step((0, 1, 200.0), repeat=2), one_step((2, 3, 300.0))
    fabric, order = two_racks(), [0, 1, 2, 3]
    assert seconds(plan(4, *steps), fabric, order) == 2 * (2 + 2) + (2 + 3)
    together = plan(4, *pipelined(steps))
    assert seconds(together, fabric, order) == (2 * 2 + 2) + 4
    # Two pipelines, one after the other.
    twice = plan(4, *pipelined(steps), *pipelined(steps))
    assert seconds(twice, fabric, order) == 2 * ((2 * 2 + 2) + 4)


def test_links_not_known_limit_nothing() -> None:
    """Tests that NaN costs neither time nor raises a warning."""
    ring = build_schedule("allreduce", "ring", 3, 3 << 20)
    assert seconds(ring, flat(("a", "b", "c")), [0, 1, 2]) == 0.0
    half = Fabric(Node("core", (host("a", math.nan, 0.0), host("b", 100.0, math.nan))))
    assert seconds(plan(2, one_step((0, 1, 100.0))), half, [0, 1]) == 1.0


def test_hosts_at_uneven_depths_by_hand() -> None:
    """Tests a host on the core beside a rack: it crosses only its own link."""
    rack = Node("rack", (host("a"), host("b")), 50.0, 50.0, 10.0)
    fabric = Fabric(Node("core", (host("near"), rack)))
    to_rack = plan(3, one_step((0, 1, 100.0)))
    assert seconds(to_rack, fabric, [0, 1, 2]) == (1 + 10 + 1) + 2
    assert seconds(to_rack, fabric, [1, 2, 0]) == (1 + 1) + 1


def test_one_rank_costs_nothing() -> None:
    """Tests that a schedule without steps takes no time."""
    ring = build_schedule("allreduce", "ring", 1, 100)
    assert CostModel(ring, flat(("a",)), [1]).cost([0]) == (0.0, 0.0)


def test_slots_must_fit_the_ranks() -> None:
    """Tests that the error names both numbers."""
    ring = build_schedule("allreduce", "ring", 3, 100)
    with pytest.raises(UsageError, match="2 slots, the schedule 3 ranks"):
        CostModel(ring, flat(("a", "b")), [1, 1])


@st.composite
def problems(draw: st.DrawFn) -> tuple[Schedule, Fabric, list[int], list[int]]:
    fabric = draw(fabrics(max_hosts=12))
    slots = draw(slot_counts(len(fabric.hosts)))
    schedule = draw(schedules(sum(slots)))
    order = draw(st.permutations(range(len(slots))))
    return schedule, fabric, slots, order


def turned(node: Node, pick: st.DataObject) -> Node:
    """Return the same tree with the children of every node in another order."""
    children = pick.draw(
        st.permutations([turned(child, pick) for child in node.children])
    )
    return dataclasses.replace(node, children=tuple(children))


@given(problems(), st.data())
def test_only_the_network_matters_not_the_labels(
    problem: tuple[Schedule, Fabric, list[int], list[int]], data: st.DataObject
) -> None:
    """Tests that the same network written in another order costs the same."""
    schedule, fabric, slots, order = problem
    other = Fabric(turned(fabric.root, data))
    where = [other.position(name) for name in fabric.hosts]
    moved = [slots[fabric.position(name)] for name in other.hosts]
    expected = CostModel(schedule, fabric, slots).cost(order)
    found = CostModel(schedule, other, moved).cost([where[i] for i in order])
    assert found == pytest.approx(expected)


@given(problems(), st.integers(0, 11))
def test_a_ring_has_no_start_and_no_direction(
    problem: tuple[Schedule, Fabric, list[int], list[int]], shift: int
) -> None:
    """Tests invariance under rotation and reflection, capacities as they may be."""
    _, fabric, slots, order = problem
    ring = build_schedule("allreduce", "ring", sum(slots), 1 << 20)
    model = CostModel(ring, fabric, slots)
    turned_ = np.roll(order, shift)
    for same_ring in (turned_, turned_[::-1]):
        assert model.seconds(same_ring) == pytest.approx(model.seconds(order))


@given(problems(), st.data())
def test_the_tie_break_never_reverses_the_seconds(
    problem: tuple[Schedule, Fabric, list[int], list[int]], data: st.DataObject
) -> None:
    """Tests that an order of lower cost never takes longer."""
    schedule, fabric, slots, order = problem
    model = CostModel(schedule, fabric, slots)
    others = [data.draw(st.permutations(order)) for _ in range(4)]
    ranked = sorted([order, *others], key=model.cost)
    for one, two in itertools.pairwise(ranked):
        assert model.seconds(one) <= model.seconds(two)
        seconds_, spread = model.cost(one)
        assert seconds_ >= 0
        assert spread >= seconds_ * (1 - 1e-8)  # a norm is never below the maximum


def test_the_tie_break_sees_links_that_are_not_the_slowest() -> None:
    """Tests that of two orders as fast, the one that crosses less is ahead."""
    fabric = racks([3, 3], nic=1.0, uplink=10.0)  # the NICs are always the slowest
    model = CostModel(build_schedule("allreduce", "ring", 6, 600), fabric, [1] * 6)
    tidy, mixed = model.cost([0, 1, 2, 3, 4, 5]), model.cost([0, 3, 1, 4, 2, 5])
    assert tidy[0] == mixed[0]
    assert tidy[1] < mixed[1]


@given(st.data())
def test_a_workload_takes_the_sum_of_its_calls(data: st.DataObject) -> None:
    """Tests any operations in groups, pipelined ones among them, one by one."""
    fabric = data.draw(fabrics(min_hosts=2, max_hosts=12))
    counts = data.draw(slot_counts(len(fabric.hosts)))
    ranks = sum(counts)
    order = data.draw(st.permutations(range(len(counts))))
    operations = []
    for _ in range(data.draw(st.integers(1, 3))):
        algorithm = data.draw(st.sampled_from(["ring", "nccl_tree", "rabenseifner"]))
        width = data.draw(st.integers(2, ranks))
        groups = np.split(np.arange(ranks), range(width, ranks, width))
        calls = data.draw(st.integers(1, 9))
        operations.append(Operation("allreduce", algorithm, 1 << 20, groups, calls))
    together = CostModel(Workload("job", ranks, tuple(operations)), fabric, counts)
    apart = [CostModel(op.schedule(ranks), fabric, counts) for op in operations]
    for index in (0, 1):  # seconds, and the tie-break
        total = sum(
            op.calls * model.cost(order)[index]
            for op, model in zip(operations, apart, strict=True)
        )
        assert together.cost(order)[index] == pytest.approx(total, rel=1e-8)


def test_groups_of_one_operation_share_links() -> None:
    """Tests that two groups over the same uplinks take twice as long, by hand."""
    pairs = np.array([[0, 2], [1, 3]])
    job = Workload("job", 4, (Operation("allreduce", "ring", 200, pairs, calls=5),))
    model = CostModel(job, two_racks(), [1] * 4)
    # 2 turns of 100 B each way; apart, in a rack each: 2 + 1 s a turn.
    assert model.seconds([0, 1, 2, 3]) == pytest.approx(5 * 2 * (22 + 2))
    assert model.seconds([0, 2, 1, 3]) == pytest.approx(5 * 2 * (2 + 1))


def test_pairs_on_a_switch_of_unknown_speed_by_hand() -> None:
    """Tests that each step takes its worst pair's alpha and bytes, no more."""
    alpha = np.array([[9.0, 1, 2], [3, 9, 4], [5, 6, 9]])
    slow = np.array([[9.0, 0.1, 0.5], [0.2, 9, 0.1], [0.3, 0.1, 9]])
    model = CostModel(
        plan(3, one_step((0, 1, 10.0), (1, 2, 10.0)), one_step((2, 0, 10.0), repeat=3)),
        flat(("a", "b", "c")),
        [1, 1, 1],
        Pairs(alpha, slow),
    )
    assert model.seconds([0, 1, 2]) == pytest.approx(max(1 + 1, 4 + 1) + 3 * (5 + 3))
    assert model.seconds([1, 0, 2]) == pytest.approx(max(3 + 2, 2 + 5) + 3 * (6 + 1))


def test_the_worst_pair_or_the_busiest_link() -> None:
    """Tests that a step takes the slower, and no pair is faster than its links."""
    fabric, ones = two_racks(50.0), np.ones((4, 4))  # 2 s for 100 B
    alone, trade = one_step((0, 2, 100.0)), one_step((0, 2, 100.0), (2, 0, 100.0))
    shared = one_step((0, 2, 100.0), (1, 3, 100.0), (0, 3, 200.0))
    for s_per_byte, pair in ((0.05, 5.0), (0.02, 2.0), (0.0, 2.0)):
        pairs = Pairs(1.0 * ones, s_per_byte * ones)
        for step, expected in (
            (alone, 1 + pair),
            (trade, 1 + 2 * pair),
            (shared, max(1 + 2 * pair, 400 / 50)),
        ):
            schedule = dataclasses.replace(plan(4, step), turns=0.0)
            model = CostModel(schedule, fabric, [1] * 4, pairs)
            assert model.seconds([0, 1, 2, 3]) == pytest.approx(expected)


def test_steps_at_work_together_wait_for_their_pairs_in_turn() -> None:
    """Tests a phase of several steps: all their pairs, or the link they share."""
    steps = one_step((0, 2, 100.0)), one_step((1, 3, 100.0), repeat=2)
    schedule = plan(4, *pipelined(steps))
    for alpha, expected in ((1.0, 3 * 3.0), (0.0, 6.0), (2.0, 3 * 4.0)):
        pairs = Pairs(np.full((4, 4), alpha), np.zeros((4, 4)))
        model = CostModel(schedule, two_racks(50.0), [1] * 4, pairs)
        assert model.seconds([0, 1, 2, 3]) == pytest.approx(expected)


def test_ranks_of_one_host_have_no_pair_figures() -> None:
    """Tests that what stands on the diagonal is never counted."""
    inside = plan(2, one_step((0, 1, 100.0)))
    pairs = Pairs(np.ones((1, 1)), np.ones((1, 1)))
    assert CostModel(inside, flat(("a",)), [2], pairs).seconds([0]) == 0.0


@given(problems(), st.data())
def test_pairs_never_hide_links(
    problem: tuple[Schedule, Fabric, list[int], list[int]], data: st.DataObject
) -> None:
    """Tests that slower pairs never make an order faster, nor its tie-break less."""
    schedule, fabric, slots, order = problem
    pairs, slower = data.draw(pair_figures(len(slots))), fabric.links.pair_rtt()
    worse = Pairs(pairs.alpha + slower, pairs.s_per_byte * 2)
    seconds_, spread = CostModel(schedule, fabric, slots, pairs).cost(order)
    assert spread >= seconds_ * (1 - 1e-8)
    late, more = CostModel(schedule, fabric, slots, worse).cost(order)
    assert late >= seconds_
    assert more >= spread * (1 - 1e-8)


def test_pairs_without_a_figure_are_refused() -> None:
    """Tests NaN, negative figures and shapes that are not those of pairs."""
    ones = np.ones((2, 2))
    for wrong in (ones * math.nan, -ones, ones * math.inf):
        with pytest.raises(ValueError, match="fill in what is NaN"):
            Pairs(ones, wrong)
    with pytest.raises(ValueError, match="values for the pairs of 2"):
        Pairs(ones, np.ones((2, 3)))
    with pytest.raises(ValueError, match="4 hosts, but pairs of 2"):
        CostModel(plan(4), two_racks(), [1] * 4, Pairs(ones, ones))
