from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated import probe_of

from cloudcoll.arrays import Ints
from cloudcoll.hosts import Host
from cloudcoll.infer import explain
from cloudcoll.infer.explain import LONE, Explainer, Explanation, independent
from cloudcoll.infer.fit import Load, fitted_links, group_links, idle, with_one_rate
from cloudcoll.infer.grouping import grow
from cloudcoll.infer.holdout import Figures, measured
from cloudcoll.infer.partition import (
    SMALL,
    agreement,
    canonical,
    cuts,
    moved,
    neighbours,
    splits,
)
from cloudcoll.infer.sharing import LoadSplitter
from cloudcoll.measured.synth import racks
from cloudcoll.network.fair import Flows, fair_rounds
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe import plan_probes

CARD = 50e6
PEAK = -math.log(2 * 0.03)


def by_tcp(
    sizes: list[int],
    uplink: float,
    seed: int,
    scatter: float = 0.5,
    cycles: int = 1,
    least: float = 0.1,
) -> Figures:
    """Return tournaments, both ways at once, as TCP shares links: hardly evenly.

    Of the two flows of a pair one gets between `least` and all of its share. In 49
    probes of emulated networks (benchmarks/grid.py) the slower one got .6 of the
    faster one's rate in the median, behind each kind of queue .4 to .73.
    """
    generator = np.random.default_rng(seed)
    hosts = sum(sizes)
    fabric = racks(sizes, nic=CARD, uplink=uplink, seed=seed)
    players = hosts + hosts % 2
    rows = []
    for number in range(cycles * (players - 1)):
        if number % (players - 1) == 0:
            label = generator.permutation(players)
        table = [0, *np.roll(np.arange(1, players), number)]
        for a, b in zip(
            table[: players // 2], table[: players // 2 - 1 : -1], strict=True
        ):
            one, other = int(label[a]), int(label[b])
            if max(one, other) < hosts:
                rows += [(number, one, other), (number, other, one)]
    rounds, src, dst = np.array(rows, dtype=np.int64).T
    rate, _ = fair_rounds(fabric.links, rounds, src, dst)
    most = np.full(len(rate), np.inf)
    # Flows of a pair follow each other; others take what the slower one leaves.
    slower = np.arange(0, len(rate), 2) + generator.integers(0, 2, len(rate) // 2)
    most[slower] = rate[slower] * generator.uniform(least, 1.0, len(slower))
    flows = Flows(fabric.links, rounds, src, dst, most=most)
    rate, _ = flows.shared(fabric.links)
    alone = rate > 0.99 * CARD
    noise = np.where(alone, scatter / 5, scatter) * generator.normal(size=len(rate))
    rate = np.minimum(rate * np.exp(noise), CARD)
    unknown = np.full((hosts, hosts), np.nan)
    return Figures(fabric.hosts, unknown, rounds, src, dst, rate)


def found(seen: Figures) -> list[list[int]] | None:
    hosts = np.arange(len(seen.names))
    return LoadSplitter(seen, hosts)(hosts.tolist(), None)


def planted(sizes: list[int]) -> list[list[int]]:
    ends = np.cumsum(sizes).tolist()
    return [list(range(e - s, e)) for s, e in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("sizes", "uplink"),
    [([4, 4, 4, 4], 1.0), ([7, 1, 4, 4], 1.0), ([9, 7, 8], 2.0), ([6, 5, 4], 1.0)],
    ids=str,
)
def test_two_tournaments_show_racks(sizes: list[int], uplink: float, seed: int) -> None:
    """Tests that unfair shares and stalls hide no rack, whatever its size."""
    assert found(by_tcp(sizes, uplink * CARD, seed, cycles=2)) == planted(sizes)


@pytest.mark.parametrize("seed", range(3))
def test_repeats_show_what_single_pairs_hide(seed: int) -> None:
    """Tests uplinks of two cards, across which one flow of two is as fast as inside."""
    sizes = [4, 4, 4, 4]
    assert found(by_tcp(sizes, 2 * CARD, seed, cycles=4)) == planted(sizes)


@pytest.mark.parametrize("hosts", [5, 16, pytest.param(33, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scatter", [0.2, 1.0, 2.0])
def test_noise_is_no_rack(hosts: int, scatter: float) -> None:
    """Tests that cards which scatter as much as shared links make no groups."""
    for seed in range(4):
        assert found(by_tcp([hosts], 1.0, seed, scatter)) is None


def test_what_is_as_likely_stays_as_round_trips_have_it() -> None:
    """Tests that rounds take groups back only if they speak against them."""
    hosts = list(range(16))
    true = planted([4, 4, 4, 4])
    wide = by_tcp([4, 4, 4, 4], 8 * CARD, 0)
    assert LoadSplitter(wide, np.arange(16))(hosts, true) == true
    narrow = by_tcp([4, 4, 4, 4], CARD, 0, cycles=2)
    split = LoadSplitter(narrow, np.arange(16))
    assert split(hosts, true) == true
    wrong = [[h for h in hosts if h % 4 == rest] for rest in range(4)]
    assert split(hosts, wrong) == true


def test_a_partition_is_judged_once() -> None:
    """Tests that the same groups are the same, and the true ones best."""
    judge = Explainer(by_tcp([3, 3, 3], CARD, 1))
    true = np.repeat([0, 1, 2], 3)
    assert judge.judge(true) is judge.judge(np.repeat([5, 2, 0], 3))
    others = list(neighbours(true, np.zeros((9, 9))))
    assert all(judge.judge(o).score < judge.judge(true).score for o in others)


def test_groups_have_to_be_worth_saying() -> None:
    """Tests what they cost, by hand, where every flow gets exactly what cards carry.

    The narrowest density of errors then is 1 / (2 * 0.03) at its peak. Two pairs of
    four hosts are one of three ways to pair them, their size is one of four.
    """
    seen = by_tcp([4], CARD, 0, cycles=2)
    judge = Explainer(replace(seen, rate=np.full_like(seen.rate, CARD)))
    met = 2 * 6  # each pair twice, its two flows as one
    assert judge.none.score == pytest.approx(met * PEAK)
    pairs = judge.judge(np.array([0, 0, 1, 1]))
    links = 2 * 2 * math.log(met) / 2
    cost = links + math.log(3 * 4) + LONE  # no link is ever full
    assert pairs.score == pytest.approx(met * PEAK - cost)


def test_neighbours_are_one_step_away() -> None:
    """Tests that groups are split and joined, and hosts moved to each of two others."""
    labels = np.array([0, 0, 1, 1, 2])
    near = np.zeros((5, 5))
    steps = {tuple(canonical(step).tolist()) for step in neighbours(labels, near)}
    assert (0, 0, 0, 0, 1) in steps  # joined
    assert (0, 1, 2, 2, 3) in steps  # split
    assert (0, 1, 1, 1, 2) in steps  # moved
    assert tuple(labels.tolist()) not in steps - {tuple(labels.tolist())}


def test_a_group_falls_into_the_parts_that_were_fast() -> None:
    """Tests that of three racks taken for one each step tells one apart."""
    rack = np.repeat([0, 1, 2], 4)
    near = np.where(rack[:, None] == rack, 1.0, -1.0)
    near[4:8, 8:] = near[8:, 4:8] = -0.5
    found = [canonical(one) for one in neighbours(np.zeros(12, dtype=np.int64), near)]
    steps = {tuple(step.tolist()) for step in found}
    first = np.repeat([0, 1, 1], 4)
    assert tuple(first.tolist()) in steps
    assert {tuple(canonical(one).tolist()) for one in np.eye(12, dtype=int)} < steps
    then = {tuple(canonical(one).tolist()) for one in neighbours(first, near)}
    assert tuple(rack.tolist()) in then


def test_a_small_group_is_split_in_any_way() -> None:
    """Tests it by count, and that each is another one; nobody is left alone."""
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
    found = {tuple(canonical(one).tolist()) for one in splits(labels)}
    assert len(found) == 15 + 10
    assert all(np.bincount(one).tolist()[-1] == 1 for one in found)
    assert all(min(np.bincount(one)[:-1]) > 1 for one in found)
    assert not [*splits(np.zeros(SMALL + 1, dtype=np.int64))]


def test_two_racks_taken_for_one_are_cut_by_their_rates() -> None:
    """Tests hosts in no order, mostly faster inside their rack; small groups stay."""
    rack = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0])
    together = rack[:, None] == rack
    noise = np.random.default_rng(0).normal(0.0, 0.3, together.shape)
    rates = np.zeros((len(rack) + 3,) * 2)
    rates[: len(rack), : len(rack)] = 5.0 + 0.5 * together + (noise + noise.T) / 2
    labels = np.array([0] * len(rack) + [1] * 3)
    found = [canonical(one).tolist() for one in cuts(labels, rates)]
    assert canonical(np.append(rack, [2] * 3)).tolist() in found
    assert len(found) == len(rack) - 3
    assert all(one[-3] == one[-2] == one[-1] for one in found)


@pytest.mark.parametrize("sizes", [[8, 8], [6, 7], [5, 8], [7, 9]], ids=str)
def test_few_rounds_fill_the_links_of_two_racks(sizes: list[int]) -> None:
    """Tests uplinks that carry what half of the hosts send: pairs mostly stay inside.

    As they do behind queues of 10 ms: flows of a card differ by 3 %, the slower one of
    a pair on a full link has .8 of its share or more.
    """
    uplink = sum(sizes) / 4 * CARD
    seen = (by_tcp(sizes, uplink, seed, 0.15, 5, least=0.8) for seed in range(6))
    assert sum(found(one) == planted(sizes) for one in seen) >= 5


def test_nobody_stands_beside_two_racks_by_chance() -> None:
    """Tests that a host is of a rack whose link it could fill, and what that saves."""
    judge = Explainer(by_tcp([5, 5], CARD, 0, scatter=0.1, cycles=2))
    racks_, beside = np.repeat([0, 1], 5), np.repeat([0, 1, 2], [5, 4, 1])
    assert not judge.judge(racks_).lone
    assert not judge.none.lone
    assert judge.judge(beside).lone
    assert found(judge.seen) == planted([5, 5])
    # Of links that are full at the same time one is of no use: not both.
    links = group_links(racks_, Load(judge.seen))
    ends = judge.seen.round, judge.seen.src, judge.seen.dst
    flows = Flows(links, *ends)
    alike = with_one_rate(links, np.array([10, 11]))
    assert alike is not None
    fit = fitted_links(alike, flows, judge.seen.rate, alike=np.array([10, 11]))
    ways = np.array([[10, 10 + len(links.up)], [11, 11 + len(links.up)]])
    assert [way.tolist() for way in idle(fit, ways, flows)] == ways[:1].tolist()


def test_a_late_host_makes_no_group() -> None:
    """Tests that delays of hosts, which add up, are no groups of near ones."""
    generator = np.random.default_rng(5)
    late = np.where(np.arange(12) < 5, 10e-6, 80e-6) * generator.uniform(0.9, 1.1, 12)
    distance = np.add.outer(late, late)
    np.fill_diagonal(distance, 0.0)
    assert grow(distance, list(range(12))) == list(range(12))


@pytest.mark.parametrize("hosts", [4, 5, 6])
def test_few_hosts_are_near_by_chance(hosts: int) -> None:
    """Tests that round trips at random hardly ever make groups of a rack's hosts."""
    generator = np.random.default_rng(hosts)
    groups = 0
    for _ in range(300):
        distance = np.triu(50e-6 + generator.exponential(20e-6, (hosts, hosts)), 1)
        groups += grow(distance + distance.T, list(range(hosts))) != list(range(hosts))
    assert groups <= 3


def answered(seen: Figures) -> Explanation:
    split = LoadSplitter(seen, np.arange(len(seen.names)))
    split(list(range(len(seen.names))))
    assert split.answer is not None
    return split.answer


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [5, 3, 6], [16]], ids=str)
def test_confidence_grows_with_the_rounds(sizes: list[int]) -> None:
    """Tests that what many rounds show is sure, and right."""
    answer = answered(by_tcp(sizes, CARD, 1, scatter=0.3, cycles=2))
    true = np.repeat(np.arange(len(sizes)), sizes)
    assert agreement(answer.labels, true) == 1.0
    assert answer.confidence >= 0.95
    shares = [share for share, _ in answer.draws]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_sure_answer_is_seldom_wrong() -> None:
    """Tests one tournament of many networks: of sure answers nine of ten are right."""
    right = []
    for seed in range(16):
        for sizes, uplink in (([4, 4, 4, 4], 2.0), ([5, 3, 6, 2], 1.0), ([16], 1.0)):
            answer = answered(by_tcp(sizes, uplink * CARD, seed))
            true = np.repeat(np.arange(len(sizes)), sizes)
            if answer.confidence >= 0.95:
                right.append(agreement(answer.labels, true) >= 0.9)
    assert len(right) >= 12
    assert np.mean(right) >= 0.9


@pytest.mark.parametrize("seed", range(3))
def test_uneven_meetings_without_groups_are_not_sure(seed: int) -> None:
    """Tests that nobody says there are no racks where most flows were held back."""
    even = by_tcp([16], CARD, seed, 0.2, 2, least=1.0)
    assert answered(even).confidence >= 0.95
    # The two flows of a pair are one after the other.
    pairs = np.random.default_rng(seed).uniform(0.2, 1.0, len(even.rate) // 2)
    answer = answered(replace(even, rate=even.rate * np.repeat(pairs, 2)))
    assert not answer.labels.any()
    assert answer.confidence < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_flows_whose_acknowledgements_wait_are_no_doubt(seed: int) -> None:
    """Tests that it may be sure of no racks where one flow of each pair is slow."""
    even = by_tcp([16], CARD, seed, 0.2, 2, least=1.0)
    generator = np.random.default_rng(seed)
    slow = generator.uniform(0.2, 0.8, (len(even.rate) // 2, 2))
    slow[np.arange(len(slow)), generator.integers(0, 2, len(slow))] = 1.0
    answer = answered(replace(even, rate=even.rate * slow.ravel()))
    assert not answer.labels.any()
    assert answer.confidence >= 0.95


def test_links_that_are_seldom_full_leave_doubt() -> None:
    """Tests two racks whose links half of the pairs fill: none is found, nor sure."""
    answer = answered(by_tcp([8, 5], 3.25 * CARD, 0, scatter=0.2, least=0.5))
    assert not answer.labels.any()
    assert answer.confidence < 0.95


@pytest.mark.slow
def test_groups_that_others_rounds_would_not_show_are_none() -> None:
    """Tests that groups which differ from draw to draw are not taken."""
    # A few hosts whose flows stall often, each by itself: no two share anything.
    generator = np.random.default_rng(4)
    for seed in range(6):
        seen = by_tcp([16], CARD, seed, 0.2)
        busy = np.isin(seen.src, [1, 5, 8, 13]) | np.isin(seen.dst, [1, 5, 8, 13])
        stalled = busy & (generator.random(len(busy)) < 0.5)
        rate = np.where(stalled, seen.rate * generator.uniform(0.05, 0.9), seen.rate)
        assert not answered(replace(seen, rate=rate)).labels.any()


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 0),
        ([0, 0, 1, 1], [0, 0, 0, 1], 1),
        ([0, 0, 1, 2], [0, 0, 1, 1], 1),
        ([0, 0, 0, 0], [0, 1, 2, 3], 3),
        ([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0], 3),
    ],
)
def test_hosts_that_change_groups(one: list[int], other: list[int], count: int) -> None:
    """Tests that names of groups do not matter, nor which of two comes first."""
    assert moved(np.array(one), np.array(other)) == count
    assert moved(np.array(other), np.array(one)) == count


def test_a_pair_that_may_share_a_link_is_a_doubt() -> None:
    """Tests that groups with and without a pair of hosts are not the same groups."""
    answer = answered(by_tcp([5, 3, 6, 2], CARD, 0, scatter=0.3))
    others = {moved(answer.labels, drawn): share for share, drawn in answer.draws}
    assert others.pop(0) == answer.confidence
    assert 1 in others


def test_errors_that_go_together_are_one_piece_of_evidence() -> None:
    """Tests that a round counts for as many meetings as err by themselves."""
    generator = np.random.default_rng(2)
    rounds = np.repeat(np.arange(400), 8)
    own, common = generator.normal(size=3200), generator.normal(size=400)[rounds]
    assert independent(own, rounds) == pytest.approx(8.0, rel=0.05)
    assert independent(common, rounds) == pytest.approx(1.0)
    # Half of the variance is common: 8 / (1 + 7 * 0.5), by Kish.
    assert independent(own + common, rounds) == pytest.approx(8 / 4.5, rel=0.05)
    # A few stalls are far larger than all other errors, and each by itself.
    stalls = np.where(generator.random(3200) < 0.02, -30.0, 0.0)
    assert independent(common + stalls, rounds) < 2.0


@pytest.mark.parametrize("rounds", [np.arange(4), np.zeros(4, dtype=np.int64)])
def test_too_little_to_tell_what_goes_together(rounds: Ints) -> None:
    """Tests rounds of one meeting, and one round: each is one piece of evidence."""
    assert independent(np.array([0.1, -0.2, 0.3, 0.0]), rounds) == 1.0


def test_rounds_whose_flows_err_alike_make_less_sure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that what slows all flows of a round is no evidence eight times over."""
    seen = [by_tcp([4, 4, 4, 4], CARD, seed) for seed in range(4)]
    apart = [answered(one).confidence for one in seen]
    monkeypatch.setattr(explain, "independent", lambda error, round_: 1.0)
    together = [answered(one).confidence for one in seen]
    assert np.mean(together) < np.mean(apart) - 0.1


@pytest.mark.parametrize("seed", [1, 2])
def test_rounds_inside_racks_change_no_groups(seed: int) -> None:
    """Tests faster rounds, one way, after those of whole racks, both ways."""
    seen = by_tcp([4, 4, 4, 4], 1.5 * CARD, seed, scatter=0.3, cycles=2)
    seen = replace(seen, rate=0.7 * seen.rate)
    first = int(seen.round.max()) + 1
    one = np.tile(np.arange(16), 3)
    other = one ^ np.repeat([1, 2, 3], 16)
    more = replace(
        seen,
        round=np.append(
            seen.round, first + np.repeat(np.arange(3), 16) + 3 * (one > other)
        ),
        src=np.append(seen.src, one),
        dst=np.append(seen.dst, other),
        rate=np.append(seen.rate, np.full(48, CARD)),
    )
    before, after = answered(seen), answered(more)
    assert (after.labels == np.repeat(np.arange(4), 4)).all()
    assert after.confidence == before.confidence >= 0.95


def with_noise(seed: int, each: bool) -> Figures:
    """Return four racks, with noise of its own for each pair, or each round."""
    generator = np.random.default_rng(seed)
    seen = by_tcp([4, 4, 4, 4], 1.5 * CARD, seed, scatter=0.1, least=1.0)
    noise = generator.normal(0.0, 0.5, int(seen.round.max()) + 1)[seen.round]
    if each:
        noise = generator.permutation(noise[::2]).repeat(2)
    return replace(seen, rate=seen.rate * np.exp(noise))


def test_links_that_are_alike_take_less_to_say() -> None:
    """Tests racks too noisy to be found by a rate for each of their links."""
    racks_of_four = np.repeat(np.arange(4), 4)
    seen = with_noise(10, each=True)
    assert (answered(seen).labels == racks_of_four).all()
    assert Explainer(seen).judge(racks_of_four).rates == 1


def test_links_that_differ_have_rates_of_their_own() -> None:
    """Tests three racks of which one has a link of a third of the others' rate."""
    first, *others = racks([5, 5, 5], nic=CARD, uplink=2.0 * CARD).root.children
    rate = 0.7 * CARD
    narrow = replace(first, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)
    uneven = Fabric(Node("core", (narrow, *others)))
    plan = plan_probes(tuple(map(Host, uneven.hosts)), mode="quick")
    seen = measured(probe_of(uneven, list(uneven.hosts), plan, noise=0.05))
    judged = Explainer(seen).judge(np.repeat(np.arange(3), 5))
    assert judged.rates == 6


def test_a_link_that_holds_nothing_back_takes_as_much_to_say_as_two() -> None:
    """Tests hosts by themselves, put into a group whose link no round has filled."""
    seen = by_tcp([6, 1, 1, 6], 2.0 * CARD, 0, scatter=0.05)
    explainer = Explainer(seen)
    alone = explainer.judge(np.repeat(np.arange(4), [6, 1, 1, 6]))
    together = explainer.judge(np.repeat(np.arange(3), [6, 2, 6]))
    assert (alone.rates, together.rates) == (1, 3)


def test_agreement_is_the_adjusted_rand_index() -> None:
    """Tests known values: the same, renumbered, by chance, and without groups."""
    one = np.array([0, 0, 1, 1, 2, 2])
    assert agreement(one, one) == agreement(one, np.array([2, 2, 0, 0, 1, 1])) == 1.0
    # Hubert and Arabie's formula by hand: 1 pair of 15 in both, 3 and 3 in each.
    assert agreement(one, np.array([0, 0, 1, 2, 1, 2])) == pytest.approx(0.4 / 2.4)
    assert agreement(one, np.zeros(6, dtype=np.int64)) == 0.0
    assert agreement(np.zeros(6, dtype=np.int64), np.zeros(6, dtype=np.int64)) == 1.0
