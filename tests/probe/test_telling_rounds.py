"""Rounds that tell a fabric from what it may be instead."""

from __future__ import annotations

from dataclasses import replace

import noisy
import numpy as np

from cloudcoll.arrays import Ints
from cloudcoll.hosts import Host
from cloudcoll.infer.explain import Explainer
from cloudcoll.infer.holdout import measured
from cloudcoll.infer.sharing import in_line
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rates
from cloudcoll.network.tree import Alternative, Fabric, Node
from cloudcoll.probe.extra_rounds import (
    TOLD_AT_ONCE,
    opposed_rounds,
    telling_rounds,
)
from cloudcoll.probe.plan import ProbePlan, Round, plan_probes

CARD = 50e6
HOSTS = 12
NAMES = tuple(f"h{number}" for number in range(HOSTS))
PLAN: ProbePlan = plan_probes(tuple(map(Host, NAMES)))
RACKS = ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
MOVED = ((0, 1, 2), (3, 4, 5, 6, 7), (8, 9, 10, 11))


def tree(groups: tuple[tuple[int, ...], ...], uplink: float = CARD) -> Node:
    """Return racks whose links carry what a card does."""
    return Node(
        "core",
        tuple(
            Node(
                f"rack-{number}",
                tuple(Node(NAMES[host], (), CARD, CARD) for host in group),
                *(uplink, uplink),
            )
            for number, group in enumerate(groups)
        ),
    )


def fabric(*others: tuple[float, Node]) -> Fabric:
    alternatives = tuple(Alternative(share, root) for share, root in others)
    return Fabric(tree(RACKS), confidence=0.5, alternatives=alternatives)


def differs(slot: Round, one: Node, other: Node) -> float:
    """Return how far the rates of a round's flows are apart in two networks."""
    src, dst = np.array(slot.pairs).T
    logs = []
    for root in (one, other):
        whole = Fabric(root)
        column = np.array([whole.position(name) for name in NAMES])
        logs.append(np.log(fair_rates(whole.links, column[src], column[dst])))
    return float(np.abs(logs[0] - logs[1]).sum())


def test_flows_are_as_fast_as_only_one_of_them_has_it() -> None:
    """Tests that each round differs, by more than most that are drawn by chance."""
    rounds = telling_rounds(PLAN, fabric((0.4, tree(MOVED))), NAMES, 100, 60.0)
    assert [slot.number for slot in rounds] == list(range(100, 100 + TOLD_AT_ONCE))
    gap = PLAN.length("duplex")
    assert [slot.start for slot in rounds] == [n * gap for n in range(TOLD_AT_ONCE)]
    chosen = [differs(slot, tree(RACKS), tree(MOVED)) for slot in rounds]
    usual = [
        differs(slot, tree(RACKS), tree(MOVED))
        for slot in PLAN.once_more(1, 0, 60.0)
        if slot.pairs
    ]
    assert min(chosen) > np.median(usual)
    assert np.mean(chosen) > 1.5 * np.mean(usual)


def test_pairs_send_both_ways_and_meet_once() -> None:
    """Tests that no host is in two pairs, and that those that failed are in none."""
    rounds = telling_rounds(PLAN, fabric((0.4, tree(MOVED))), NAMES, 0, 60.0, {2, 9})
    assert rounds
    for slot in rounds:
        ends = [host for pair in slot.pairs for host in pair]
        assert {ends.count(host) for host in ends} == {2}
        assert {(b, a) for a, b in slot.pairs} == {*slot.pairs}
        assert not {2, 9} & {*ends}
    again = telling_rounds(PLAN, fabric((0.4, tree(MOVED))), NAMES, 0, 60.0, {2, 9})
    assert again == rounds


def test_each_alternative_is_told() -> None:
    """Tests that rounds differ for an unlikely one as well as for the likeliest."""
    unlikely = ((0, 1, 2, 3), (4, 5, 6, 7, 8), (9, 10, 11))
    others = ((0.4, tree(MOVED)), (0.1, tree(unlikely)))
    rounds = telling_rounds(PLAN, fabric(*others), NAMES, 0, 60.0)
    for _, root in others:
        assert sum(differs(slot, tree(RACKS), root) for slot in rounds) > np.log(4.0)


def test_they_end_in_time() -> None:
    """Tests that there are as many as fit into the seconds left, the best first."""
    told = fabric((0.4, tree(MOVED)))
    gap = PLAN.length("duplex")
    all_ = telling_rounds(PLAN, told, NAMES, 0, 60.0)
    assert telling_rounds(PLAN, told, NAMES, 0, 2.5 * gap) == all_[:2]
    assert telling_rounds(PLAN, told, NAMES, 0, 0.5 * gap) == []
    assert telling_rounds(PLAN, told, NAMES, 0, -1.0) == []


def test_where_nothing_is_to_be_told() -> None:
    """Tests that there are no rounds without alternatives, nor for alike ones."""
    assert telling_rounds(PLAN, fabric(), NAMES, 0, 60.0) == []
    wide = replace(fabric((0.5, tree(MOVED, 100 * CARD))), root=tree(RACKS, 100 * CARD))
    assert telling_rounds(PLAN, wide, NAMES, 0, 60.0) == []
    but_three = {*range(HOSTS)} - {0, 4, 8}
    assert (
        telling_rounds(PLAN, fabric((0.4, tree(MOVED))), NAMES, 0, 60.0, but_three)
        == []
    )


NOISE = noisy.Noise(scatter=0.25, stalls=0.1)


def with_more(
    true: Fabric, snapshot: NetworkSnapshot, rounds: list[Round], seed: int
) -> NetworkSnapshot:
    """Return a snapshot to which what these rounds carry is added."""
    flows: Ints = np.array([(r.number, a, b) for r in rounds for a, b in r.pairs])
    names, old = list(snapshot.names), snapshot.flows
    more = noisy.carried(true, names, flows, NOISE, np.random.default_rng(seed))
    joined = LoadedFlows(
        round=np.append(old.round, more.round),
        src=np.append(old.src, more.src),
        dst=np.append(old.dst, more.dst),
        ends=np.append(old.ends, more.ends + old.ends[-1]),
        window_bytes=np.append(old.window_bytes, more.window_bytes),
        window_s=old.window_s,
        ramp_up=old.ramp_up,
    )
    return replace(snapshot, flows=joined)


def lead(snapshot: NetworkSnapshot) -> float:
    """Return by how many nats `RACKS` explain the rounds better than `MOVED`."""
    rack_of = [
        {NAMES[host]: number for number, group in enumerate(groups) for host in group}
        for groups in (RACKS, MOVED)
    ]
    explainer = Explainer(measured(snapshot))
    ours, theirs = (
        explainer.judge(np.array([rack[name] for name in snapshot.names])).score
        for rack in rack_of
    )
    return ours - theirs


def test_they_tell_more_than_another_tournament() -> None:
    """Tests by how much more likely the true racks become than a host elsewhere."""
    true = Fabric(tree(RACKS))
    doubtful = fabric((0.5, tree(MOVED)))
    gained = []
    for seed in range(20):
        snapshot = noisy.probed(true, NOISE, seed)
        plan = plan_probes(snapshot.hosts, seed=seed)
        told = telling_rounds(plan, doubtful, snapshot.names, 1000, 60.0)
        more = plan.once_more(1, 1000, 60.0)[: len(told)]
        with_each = [with_more(true, snapshot, rounds, seed) for rounds in (told, more)]
        gained.append([lead(one) - lead(snapshot) for one in with_each])
    of_told, of_more = np.mean(gained, axis=0)
    assert of_told > 1.25 * of_more > 0.0


def test_halves_of_a_line_meet() -> None:
    """Tests that each host meets another one of the other end in each round."""
    line = np.array([3, 1, 9, 7, 0, 5, 2, 4, 6, 8, 11, 10])
    rounds = opposed_rounds(PLAN, line, 100, 60.0)
    assert [slot.number for slot in rounds] == list(range(100, 100 + TOLD_AT_ONCE))
    for slot in rounds:
        one, other = np.array(slot.pairs[:6]).T
        assert sorted(one) == sorted(line[:6])
        assert sorted(other) == sorted(line[6:])
        assert slot.pairs[6:] == tuple(zip(other, one, strict=True))
    assert len({slot.pairs for slot in rounds}) > 1
    assert opposed_rounds(PLAN, line, 100, 60.0) == rounds


def test_whoever_failed_is_of_no_half() -> None:
    """Tests an odd number of hosts, few of them, and little time."""
    line = np.arange(12)
    (slot,) = opposed_rounds(PLAN, line, 0, 1.5 * PLAN.length("duplex"), {0, 6, 11})
    one, other = np.array(slot.pairs[: len(slot.pairs) // 2]).T
    assert sorted(one) == [1, 2, 3, 4]
    assert sorted(other) == [7, 8, 9, 10]
    assert opposed_rounds(PLAN, line, 0, 60.0, range(9)) == []
    assert opposed_rounds(PLAN, line, 0, 0.0) == []


def test_ends_of_the_line_are_of_two_racks() -> None:
    """Tests a tournament of two racks whose links carry what half of them send."""
    halves = ((0, 2, 4, 6, 8, 10), (1, 3, 5, 7, 9, 11))
    noise = noisy.Noise(scatter=0.05)
    snapshot = noisy.probed(Fabric(tree(halves, 3 * CARD)), noise, 0)
    ends = [snapshot.names[host] for host in in_line(measured(snapshot))]
    odd = [NAMES.index(name) % 2 for name in ends]
    assert sum(odd[:6]) in (0, 1, 5, 6)
