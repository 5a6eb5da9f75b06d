from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import fabrics, pair_figures, schedules, slot_counts

from cloudcoll.collectives import Schedule, Step, build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.synth import racks
from cloudcoll.model.contention import (
    CALLS,
    SEGMENTS,
    contended_seconds,
    message_ends,
    replay_of,
    replayed_work,
)
from cloudcoll.model.cost import CostModel
from cloudcoll.network.tree import Fabric, Node, Pairs


def uneven() -> Fabric:
    """Plant slow and fast in a rack of 60 B/s, x and y elsewhere; latency 1 s."""
    slow = Node("slow", (), 10.0, 10.0, 1.0)
    fast = Node("fast", (), 100.0, 100.0, 1.0)
    rack = Node("rack", (slow, fast), 60.0, 60.0, 0.0)
    far = [Node(name, (), 100.0, 100.0, 1.0) for name in ("x", "y")]
    return Fabric(Node("core", (rack, *far)))


def one_step(*messages: tuple[int, int, float], repeat: int = 1) -> Step:
    src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    return Step(src, dst, size.astype(float), repeat)


def model(*steps: Step, concurrent: bool = False) -> CostModel:
    taken = tuple(replace(step, overlaps=concurrent) for step in steps)
    sent = Schedule("allreduce", "test", "none", 4, 1, taken)
    return CostModel(sent, uneven(), [1] * 4)


def test_two_flows_on_one_link_by_hand() -> None:
    """Tests that the longer flow has the link to itself once the shorter has ended."""
    fabric = racks([2, 2], nic=100.0, uplink=60.0, rtt=0.0, rack_rtt=0.0)
    step = one_step((0, 2, 30.0), (1, 3, 90.0))
    sent = Schedule("allreduce", "test", "none", 4, 1, (step,))
    ends = message_ends(replay_of(CostModel(sent, fabric, [1] * 4), range(4)))
    # 30 B/s each for 1 s, then 60 B/s for the other 60 B.
    assert ends.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("unit_s", [1.0, 1e-6])
@pytest.mark.parametrize("behind", [range(3, 4), range(2)])
def test_a_short_way_has_more_of_a_full_link(behind: range, unit_s: float) -> None:
    """Tests weights of 1 and 1/3 by hand: round trips of 4 and of 12 s on one card.

    And of as many microseconds; with the far host, or the near ones, behind a switch.
    """
    rate = 90.0 / unit_s, 90.0 / unit_s
    cards = [Node(name, (), *rate, unit_s) for name in "abcd"]
    switch = Node("switch", tuple(cards[i] for i in behind), *rate, 4.0 * unit_s)
    cards[behind.start : behind.stop] = [switch]
    fabric = Fabric(Node("core", tuple(cards)))
    assert fabric.hosts == tuple("abcd")
    step = one_step((0, 1, 675.0), (0, 3, 675.0))
    sent = Schedule("allreduce", "test", "none", 4, 1, (step,))
    ends = message_ends(replay_of(CostModel(sent, fabric, [1] * 4), range(4)))
    # Alone from 2 s to 6 s (360 B), at 67.5 B/s until the other 315 B are sent; then
    # the far one, which had 22.5 B/s.
    near = 6 + 315 / 67.5
    last = near + (675 - 22.5 * (near - 6)) / 90
    assert ends == pytest.approx([near * unit_s, last * unit_s])


def test_a_flow_held_back_elsewhere_leaves_room() -> None:
    """Tests max-min shares: 10 B/s past the slow card, 50 for the other."""
    both = model(one_step((0, 2, 40.0), (1, 3, 200.0)))
    assert contended_seconds(both, [0, 1, 2, 3]) == pytest.approx(4 + 2)


def test_a_flow_can_end_later_than_any_link_needs() -> None:
    """Tests what the busiest link does not show: one bottleneck after the other."""
    sent = model(one_step((1, 2, 60.0), (1, 3, 120.0), (2, 3, 160.0)))
    # 2 s at 30, 30 and 70 B/s; 0.4 s at 50 each into y; then 40 B at 60 B/s. The rack's
    # uplink alone needs 3 s.
    flows = contended_seconds(sent, [0, 1, 2, 3])
    assert flows == pytest.approx(2 + 2 + 0.4 + 40 / 60)


def test_latency_counts_for_its_own_message() -> None:
    """Tests that a small message far away need not wait for a large one nearby."""
    near, far = (2, 3, 1000.0), (0, 2, 1.0)
    together = model(one_step(near, far))
    assert contended_seconds(together, [0, 1, 2, 3]) == pytest.approx(2 + 10)


def test_a_message_takes_no_less_than_its_pair() -> None:
    """Tests that what a pair was measured to take is not cut short by others' ends."""
    slow = np.zeros((4, 4))
    slow[0, 1] = 10.0
    step = one_step((0, 1, 10.0), (2, 3, 600.0))
    sent = Schedule("allreduce", "test", "none", 4, 1, (step,))
    pairs = Pairs(slow, np.zeros((4, 4)))
    known = CostModel(sent, uneven(), [1] * 4, pairs=pairs)
    # As flows they take 1 s and 6 s; the pair takes 1 s for its bytes, too.
    assert message_ends(replay_of(known, range(4))) == pytest.approx([11.0, 6.0])


def test_steps_add_up_and_repeat() -> None:
    """Tests two calls of one step, and a step of the same ranks after it."""
    first, second = one_step((0, 1, 100.0), repeat=2), one_step((1, 3, 100.0))
    taken = 2 * (2 + 100 / 10) + 2 + 100 / 60
    assert contended_seconds(model(first, second), range(4)) == pytest.approx(taken)


def test_ranks_do_not_wait_for_others() -> None:
    """Tests that a step begins where its ranks have nothing left to do before it."""
    first, second = one_step((0, 1, 100.0), repeat=2), one_step((2, 3, 100.0))
    ends = message_ends(replay_of(model(first, second), range(4)))
    assert ends == pytest.approx([24, 3])


def test_a_step_begins_while_others_end_the_last() -> None:
    """Tests a workload by hand, 0 -> 1 -> 2 -> 3: the first two need not wait."""
    sizes = {(0, 1): 60, (1, 2): 120, (2, 3): 100}
    hands = []
    for pair, size in sizes.items():
        left = [np.array([rank]) for rank in range(4) if rank not in pair]
        groups = [np.array(pair), *left]
        hands.append(Operation("sendrecv", "forward", size, groups))
    chain = CostModel(Workload("chain", 4, tuple(hands)), uneven(), [1] * 4)
    # 2 + 60 / 10 s, 2 + 120 / 60 and 2 + 100 / 100; rank 1 is in the first two.
    assert chain.seconds(range(4)) == pytest.approx(8 + 4 + 3)
    assert contended_seconds(chain, range(4)) == pytest.approx(8 + 4)


def test_a_call_begins_while_others_end_the_last() -> None:
    """Tests that two calls are replayed as two."""
    one = Operation("bcast", "binomial", 100, [np.arange(4)])
    taken = [
        contended_seconds(
            CostModel(Workload("w", 4, sent), uneven(), [1] * 4), range(4)
        )
        for sent in ((replace(one, calls=2), one, one), (one, one, one, one))
    ]
    assert taken[0] == taken[1]


def test_many_calls_are_replayed_in_shares() -> None:
    """Tests that nothing gets lost where not every call is replayed."""
    world = [np.arange(4)]
    small = Operation("allreduce", "ring", 400, world)
    for calls in (2, 4, 5, 1000):
        often = replace(small, calls=calls)
        model = CostModel(Workload("w", 4, (often, small)), uneven(), [1] * 4)
        replay = replay_of(model, range(4))
        again = replay.size[replay.lead :].sum()
        assert again == pytest.approx(replay.size[: replay.lead].sum())
        assert again == pytest.approx(model.flat().size.sum())
        assert len(replay.size) <= 2 * (CALLS + 1) * 8
        assert replayed_work(model) == len(replay.size) * 4


def test_calls_are_replayed_one_after_another() -> None:
    """Tests twice a ring of two steps and once another: twelve phases of four messages.

    The same of four calls and two: only how much oftener one is called counts.
    """
    one = Operation("allreduce", "ring", 400, [np.arange(4)])
    for calls in (1, 2, 7):
        parts = replace(one, calls=2 * calls), replace(one, calls=calls)
        model = CostModel(Workload("w", 4, parts), uneven(), [1] * 4)
        phase = replay_of(model, range(4)).phase
        assert phase.tolist() == np.repeat(np.arange(2 * 3 * 2), 4).tolist()


def test_calls_on_a_slow_pair_take_their_time_each() -> None:
    """Tests nine calls, five of them replayed: 10 s each, and 1 s for its bytes."""
    slow = np.full((4, 4), 10.0)
    left = [np.array([rank]) for rank in (2, 3)]
    one = Operation("sendrecv", "forward", 10, [np.array([0, 1]), *left])
    sent = Workload("w", 4, (replace(one, calls=8), one))
    pairs = Pairs(slow, np.zeros((4, 4)))
    known = CostModel(sent, uneven(), [1] * 4, pairs=pairs)
    assert len(replay_of(known, range(4)).size) == 2 * (CALLS + 1)
    assert contended_seconds(known, range(4)) == pytest.approx(9 * 11)


def test_work_counts_what_is_under_way_at_once() -> None:
    """Tests that a rank sends to its neighbour, or to all others together."""
    for collective, algorithm, messages, together in (
        # Of the alike steps of each half one is replayed.
        ("allreduce", "ring", 2 * 5, 5),
        ("alltoall", "linear", 5 * 4, 5 * 4),
        # Ranks of a tree may be in different phases.
        ("bcast", "binomial", 4, 5),
    ):
        schedule = build_schedule(collective, algorithm, 5, 400)
        model = CostModel(schedule, racks([5]), [1] * 5)
        assert replayed_work(model) == messages * together


def test_steps_of_a_pipeline_share_links() -> None:
    """Tests two steps over one card: together, but for the first segment."""
    steps = one_step((2, 0, 50.0)), one_step((3, 0, 50.0))
    assert contended_seconds(model(*steps), range(4)) == pytest.approx(2 * (2 + 5))
    piped = model(*steps, concurrent=True)
    assert contended_seconds(piped, range(4)) == pytest.approx(2 * 2 + 10)


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_the_first_segment_of_a_pipeline_has_links_alone(size: float) -> None:
    """Tests by hand, for seconds and for milliseconds, what it takes to fill one."""
    # Of the rack's 60 B/s down 10 and 50 for 10 s, then 60 for the other 500 B; apart
    # they would take 10 s and 1000 / 60.
    steps = one_step((2, 0, 100.0 * size)), one_step((3, 1, 1000.0 * size))
    together, alone = 10 + 500 / 60, 10 + 1000 / 60
    taken = 2 * 2 + (together + (alone - together) / SEGMENTS) * size
    piped = model(*steps, concurrent=True)
    assert contended_seconds(piped, range(4)) == pytest.approx(taken)


def test_a_ring_on_racks_by_hand() -> None:
    """Tests that flows that all meet one full link take what its load says."""
    fabric = racks([2, 2], nic=100.0, uplink=100.0, rtt=0.0, rack_rtt=0.0)
    ring = CostModel(build_schedule("allreduce", "ring", 4, 400), fabric, [1] * 4)
    assert contended_seconds(ring, [0, 1, 2, 3]) == pytest.approx(6 * 1.0)
    assert contended_seconds(ring, [0, 2, 1, 3]) == pytest.approx(6 * 2.0)


def test_nothing_to_send_takes_no_time() -> None:
    """Tests one rank, and ranks that share a host."""
    fabric = Fabric(Node("core", (Node("a", (), 1.0, 1.0, 1.0),)))
    for slots in (1, 3):
        sent = build_schedule("allreduce", "ring", slots, 300)
        assert contended_seconds(CostModel(sent, fabric, [slots]), [0]) == 0.0


@given(st.data(), st.booleans())
def test_flows_end_between_their_links(data: st.DataObject, with_pairs: bool) -> None:
    """Tests any schedule: no faster than the busiest link, nor idle without need.

    A flow always has a full link, so it takes no longer than the links of its path
    need for all their bytes.
    """
    fabric = data.draw(fabrics())
    hosts = len(fabric.hosts)
    slots = data.draw(slot_counts(hosts))
    sent = data.draw(schedules(sum(slots)))
    pairs = data.draw(pair_figures(hosts)) if with_pairs else None
    order = data.draw(st.permutations(range(hosts)))
    whole = CostModel(sent, fabric, slots, pairs=pairs)
    taken = contended_seconds(whole, order)
    flat = whole.flat()
    host, links, phase = whole.host_of_rank(order), flat.links, flat.phase[flat.step]
    src, dst = links.member[:, host[flat.src]], links.member[:, host[flat.dst]]
    crosses = src != dst
    capacity = np.concatenate([links.up, links.down])
    paths = np.concatenate([src, dst + len(links.up)])
    both = np.concatenate([crosses, crosses])
    load = np.zeros(2 * len(links.up))
    for path, over in zip(paths, both, strict=True):
        np.add.at(load, path[over], flat.size[over])
    load /= capacity
    assert taken >= load.max(initial=0.0) * (1 - 1e-4)
    replay = replay_of(whole, order)
    most = np.zeros(flat.phases)
    on_path = np.where(both, load[paths], 0.0).sum(axis=0)
    np.maximum.at(most, phase, replay.least + on_path)
    assert taken <= most.sum() * (1 + 1e-4)


@given(st.data())
def test_twice_the_bytes_take_twice_as_long(data: st.DataObject) -> None:
    """Tests that flows of twice the size end at twice the time."""
    fabric = data.draw(fabrics(min_hosts=2))
    hosts = len(fabric.hosts)
    sent = CostModel(data.draw(schedules(hosts)), fabric, [1] * hosts)
    replay = replay_of(sent, data.draw(st.permutations(range(hosts))))
    now = np.zeros(len(replay.size))
    once = replace(replay, delay=now, least=now)
    ends = message_ends(once)
    twice = message_ends(replace(once, size=2 * once.size))
    assert twice == pytest.approx(2 * ends, rel=1e-4)
