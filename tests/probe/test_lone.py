from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.measured.synth import racks
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.extra_rounds import (
    REPEATS,
    WITHIN,
    inner_rounds,
    lone_rounds,
    untested,
)
from cloudcoll.probe.plan import ProbePlan, Round, plan_probes

CARD = 50e6
TRUE = racks([5, 3, 6, 2], nic=CARD, uplink=CARD, seed=1)
NAMES = TRUE.hosts
PLAN: ProbePlan = plan_probes(tuple(map(Host, NAMES)))
STEP = PLAN.length("duplex")


def flows_of(rounds: list[Round]) -> LoadedFlows:
    """Return what rounds carry in the true network, with a window for each flow."""
    number, src, dst = np.array(
        [(slot.number, a, b) for slot in rounds for a, b in slot.pairs]
    ).T
    rate, _ = fair_rounds(TRUE.links, number, src, dst)
    window = np.rint(rate * PLAN.window_s).astype(np.int64)
    ends = np.arange(1, len(rate) + 1)
    return LoadedFlows(number, src, dst, ends, window, PLAN.window_s, 0)


def found(groups: list[list[int]]) -> Fabric:
    """Return groups of positions; who is in none hangs on the core."""
    grouped = {host for group in groups for host in group}
    nodes = [
        Node(str(i), tuple(Node(NAMES[host]) for host in group))
        for i, group in enumerate(groups)
    ]
    lone = [Node(NAMES[h]) for h in range(len(NAMES)) if h not in grouped]
    return Fabric(Node("core", (*nodes, *lone)))


LARGE = [list(range(5)), list(range(8, 14))]
"""The racks of five and six; those of three (5 to 7) and two (14, 15) are missed."""


def tournament() -> LoadedFlows:
    return flows_of([slot for slot in PLAN.rounds() if slot.kind != "rtt"])


def test_a_tournament_does_not_fill_small_links() -> None:
    """Tests that hosts of small racks, and of no other, may share one."""
    pairs = untested(tournament(), found(LARGE), NAMES)
    assert {(5, 6), (5, 7), (6, 7), (14, 15)} <= {*pairs}
    assert {host for pair in pairs for host in pair} <= {5, 6, 7, 14, 15}


def test_rounds_of_their_own_tell() -> None:
    """Tests that both of a pair send at once, and get half if they share a link."""
    fabric = found([*LARGE, [5, 6, 7]])
    pairs = untested(tournament(), fabric, NAMES)
    assert pairs == [(14, 15)]
    rounds = lone_rounds(PLAN, pairs, fabric, NAMES, 100)
    assert [slot.number for slot in rounds] == [100, 101]
    flows = flows_of(rounds)
    shared = np.isin(flows.src, [14, 15]) | np.isin(flows.dst, [14, 15])
    assert shared.all()
    assert flows.bytes_per_s == pytest.approx(np.full(8, CARD / 2))


def test_each_pair_is_tried_and_nothing_else_is_full() -> None:
    """Tests that pairs come as often as they should, each group once in a round."""
    fabric = found(LARGE)
    pairs = untested(tournament(), fabric, NAMES)
    rounds = lone_rounds(PLAN, pairs, fabric, NAMES, 0)
    group_of = {host: i for i, group in enumerate(LARGE) for host in group}
    tried: Counter[tuple[int, ...]] = Counter()
    for slot in rounds:
        ends = [host for pair in slot.pairs for host in pair]
        # Both ways: each host twice.
        assert set(Counter(ends).values()) == {2}
        others = [group_of[host] for host in {*ends} if host in group_of]
        assert len(others) == len({*others}) == 2
        tried[tuple(sorted(host for host in {*ends} if host not in group_of))] += 1
    assert tried == dict.fromkeys(pairs, REPEATS)


def test_wide_links_need_no_test() -> None:
    """Tests hosts that got more through together than one of their cards carries."""
    wide = racks([5, 3, 6, 2], nic=CARD, uplink=16 * CARD, seed=1)
    number, src, dst = np.array(
        [(s.number, a, b) for s in PLAN.rounds() if s.kind != "rtt" for a, b in s.pairs]
    ).T
    rate, _ = fair_rounds(wide.links, number, src, dst)
    ends = np.arange(1, len(rate) + 1)
    window = np.rint(rate * PLAN.window_s).astype(np.int64)
    flows = LoadedFlows(number, src, dst, ends, window, PLAN.window_s, 0)
    assert untested(flows, found(LARGE), NAMES) == []


def test_nothing_to_test() -> None:
    """Tests networks without groups, without lone hosts, and with too many."""
    flows = tournament()
    assert untested(flows, found([]), NAMES) == []
    assert untested(flows, found([*LARGE, [5, 6, 7], [14, 15]]), NAMES) == []
    assert untested(flows, found([[0, 1], [2, 3]]), NAMES) == []
    assert lone_rounds(PLAN, [], found(LARGE), NAMES, 0) == []


def test_failed_hosts_are_left_out() -> None:
    """Tests that no round has a host that failed."""
    fabric = found([*LARGE, [5, 6, 7]])
    assert lone_rounds(PLAN, [(14, 15)], fabric, NAMES, 0, {15}) == []
    rounds = lone_rounds(PLAN, [(14, 15)], fabric, NAMES, 0, {0, 8})
    assert not any({0, 8} & {*pair} for slot in rounds for pair in slot.pairs)


def test_hosts_meet_inside_their_groups_at_the_speed_of_cards() -> None:
    """Tests that hosts meet one way and then back, but for one of each odd group."""
    whole = found([list(range(5)), [5, 6, 7], list(range(8, 14)), [14, 15]])
    rounds = inner_rounds(PLAN, whole, NAMES, 100, 60.0)
    assert [slot.number for slot in rounds] == list(range(100, 100 + WITHIN))
    assert [slot.start for slot in rounds] == [n * STEP for n in range(WITHIN)]
    groups = [{*range(5)}, {5, 6, 7}, {*range(8, 14)}, {14, 15}]
    met = Counter(pair for slot in rounds for pair in slot.pairs)
    for slot in rounds:
        ends = Counter(host for pair in slot.pairs for host in pair)
        assert {*ends.values()} == {1}
        assert slot.kind == "load"
    for slot in rounds[:2]:
        resting = {*range(16)}.difference(*slot.pairs)
        assert sorted(len(group & resting) for group in groups) == [0, 0, 1, 1]
    for there, back in zip(rounds[::2], rounds[1::2], strict=True):
        assert [pair[::-1] for pair in there.pairs] == [*back.pairs]
    assert max(met.values()) == 1
    # Each of the two in the smallest rack meets another host, too, that is of a larger.
    inside = {pair for pair in met if any({*pair} <= group for group in groups)}
    across = {pair for pair in met if pair not in inside}
    assert {(14, 15), (15, 14)} <= inside
    assert {host for pair in across for host in pair} & {14, 15} == {14, 15}
    assert all({*pair} & {14, 15} for pair in across)
    assert len(across) == 4
    rates = flows_of(rounds)
    assert np.allclose(rates.bytes_per_s, CARD, rtol=1e-3)


def test_hosts_of_several_small_groups_meet_hosts_of_different_ones() -> None:
    """Tests that no two of these transfers share a link between groups."""
    whole = found([[0, 1], [2, 3], [4, 5, 6, 7], [8, 9, 10], [11, 12]])
    rounds = inner_rounds(PLAN, whole, NAMES, 0, 60.0)
    group = np.array([0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4])
    for slot in rounds[2:]:
        crossing = [{*group[[*pair]].tolist()} for pair in slot.pairs]
        guests = [max(both - {0, 1, 4}) for both in crossing if len(both) == 2]
        assert len(guests) == 3
        assert Counter(guests) == {2: 2, 3: 1}


def test_of_groups_of_two_alone_both_meet_again() -> None:
    """Tests that there is nobody else to meet."""
    rounds = inner_rounds(PLAN, found([[0, 1], [2, 3]]), NAMES, 0, 60.0)
    assert {pair for slot in rounds for pair in slot.pairs} == {
        *((0, 1), (1, 0), (2, 3), (3, 2))
    }


def test_rounds_inside_groups_end_in_time() -> None:
    """Tests that those that fit are run, without hosts that failed or are alone."""
    whole = found([[0, 1, 2, 3], [4, 5]])
    rounds = inner_rounds(PLAN, whole, NAMES, 0, 4.5 * STEP, {4, 2})
    assert len(rounds) == 4
    assert {host for slot in rounds for pair in slot.pairs for host in pair} == {
        *(0, 1, 3)
    }
    assert inner_rounds(PLAN, whole, NAMES, 0, 0.5 * STEP) == []
    assert inner_rounds(PLAN, whole, NAMES, 0, -1.0) == []
    assert inner_rounds(PLAN, found([]), NAMES, 0, 60.0) == []
