from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from cloudcoll.arrays import Ints
from cloudcoll.infer import infer_fabric
from cloudcoll.infer.grouping import naming
from cloudcoll.infer.holdout import Figures
from cloudcoll.infer.sharing import (
    LoadSplitter,
    _cards,
    _gain,
    _improved,
    _Meetings,
    parted,
)
from cloudcoll.measured.samples import no_rtt
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric


def tournament(fabric: Fabric, noise: float, seed: int) -> Figures:
    """Return what a mesh of disjoint pairs gets, each pair in one round."""
    hosts = len(fabric.hosts)
    rest = np.arange(1, hosts)
    table = [[0, *np.roll(rest, turn).tolist()] for turn in range(hosts - 1)]
    half = hosts // 2
    src = np.concatenate([row[:half] for row in table])
    dst = np.concatenate([row[: half - 1 : -1] for row in table])
    generator = np.random.default_rng(seed)
    label = generator.permutation(hosts)
    numbers = np.repeat(np.arange(hosts - 1), half)
    src, dst = label[src], label[dst]
    rate, _ = fair_rounds(fabric.links, numbers, src, dst)
    slowed = 1 + generator.exponential(noise, (10, len(rate))).mean(axis=0)
    unknown = np.full((hosts, hosts), np.nan)
    return Figures(fabric.hosts, unknown, numbers, src, dst, rate / slowed)


def split(seen: Figures) -> list[list[int]] | None:
    hosts = np.arange(len(seen.names))
    return LoadSplitter(seen, hosts)(hosts.tolist(), None)


@pytest.mark.many
@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [6, 6, 6, 6], [8, 8, 8, 8]], ids=str)
def test_racks_are_found_without_round_trips(sizes: list[int], noise: float) -> None:
    """Tests 4:1 and more: the uplink is one card wide, as in the lab."""
    for seed in range(5):
        fabric = racks(sizes, nic=50e6, uplink=50e6, seed=seed)
        ends = np.cumsum(sizes).tolist()
        planted = [
            list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)
        ]
        assert sorted(split(tournament(fabric, noise, seed)) or []) == planted


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("hosts", [2, 4, 16, pytest.param(40, marks=pytest.mark.slow)])
def test_a_flat_network_is_not_split(hosts: int, noise: float) -> None:
    """Tests that cards alone, however noisy, make no groups."""
    for seed in range(5):
        assert split(tournament(racks([hosts]), noise, seed)) is None


@pytest.mark.slow
def test_cross_traffic_at_random_is_no_rack() -> None:
    """Tests that flows slowed here and there hardly ever make groups: in one of 30."""
    groups = 0
    for seed in range(60):
        seen = tournament(racks([16]), 0.1, seed)
        hit = np.random.default_rng(seed).random(len(seen.rate)) < 0.3
        rate = np.where(hit, seen.rate / 3, seen.rate)
        groups += split(replace(seen, rate=rate)) is not None
    assert groups <= 2


@pytest.mark.parametrize("hosts", [4, 8, 16])
def test_a_busy_card_is_no_rack(hosts: int) -> None:
    """Tests that a host whose flows are slow most of the time stays."""
    for seed in range(5):
        seen = tournament(racks([hosts]), 0.1, seed)
        busy = ((seen.src == 1) | (seen.dst == 1)) & (seen.round > 0)
        rate = np.where(busy, seen.rate / 3, seen.rate)
        assert split(replace(seen, rate=rate)) is None


def test_busy_cards_of_many_hosts_are_no_racks() -> None:
    """Tests more hosts than every flow is predicted for, two of them busy."""
    seen = tournament(racks([66]), 0.1, 0)
    busy = (np.isin(seen.src, [1, 2]) | np.isin(seen.dst, [1, 2])) & (seen.round > 0)
    assert split(replace(seen, rate=np.where(busy, seen.rate / 3, seen.rate))) is None


def test_one_rack_beside_hosts_without_one_is_found() -> None:
    """Tests that nobody is sure of groups and then goes on as if there were none.

    All that crosses a link of the two others crosses the rack's, too: whether they have
    one nobody can tell, nor does it matter.
    """
    seen = tournament(racks([4, 1, 1], uplink=25e6), 0.0, 0)
    splitter = LoadSplitter(seen, np.arange(6))
    assert splitter(list(range(6))) == [[0, 1, 2, 3], [4, 5]]
    assert splitter.answer
    assert splitter.answer.confidence > 0.95


@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_no_host_and_no_group_is_better_elsewhere(hosts: int, seed: int) -> None:
    """Tests that no single move and no join is worth more than what was found."""
    generator = np.random.default_rng(seed)
    worth = np.triu(generator.normal(size=(hosts, hosts)).round(1), 1)
    worth += worth.T
    start = generator.integers(0, hosts, hosts)

    def value(labels: Ints) -> float:
        return float(worth[labels[:, None] == labels].sum())

    found = _improved(worth, start)
    assert value(found) >= value(start) - 1e-6
    groups = np.unique(found)
    assert groups.tolist() == list(range(len(groups)))
    for host in range(hosts):
        for group in range(len(groups) + 1):  # the last one is new
            moved = found.copy()
            moved[host] = group
            assert value(moved) <= value(found) + 1e-6
    for one, other in itertools.combinations(groups, 2):
        joined = np.where(found == other, one, found)
        assert value(joined) <= value(found) + 1e-6


def test_few_pairs_show_nothing() -> None:
    """Tests that three rounds of fifteen leave the groups to the round trips."""
    seen = tournament(racks([4, 4, 4, 4], uplink=25e6), 0.1, 0)
    assert split(seen.flows(seen.round < 3)) is None


def flows(hosts: int, rates: dict[tuple[int, int], float]) -> Figures:
    """Return one round of flows from host to host."""
    src, dst = np.array(list(rates)).T
    rate = np.array(list(rates.values()))
    unknown = np.full((hosts, hosts), np.nan)
    names = tuple(map(str, range(hosts)))
    return Figures(names, unknown, np.zeros(len(rate), np.int64), src, dst, rate)


@pytest.mark.parametrize(("pairs", "enough"), [(4, False), (5, True)])
def test_a_third_of_the_pairs_is_enough(pairs: int, enough: bool) -> None:
    """Tests six hosts, of whose 15 pairs some sent both ways at once."""
    met = list(itertools.combinations(range(6), 2))[:pairs]
    both = [*met, *((b, a) for a, b in met)]
    splitter = LoadSplitter(flows(6, dict.fromkeys(both, 50e6)), np.arange(6))
    splitter(list(range(6)))
    assert (splitter.answer is not None) == enough


def test_what_a_card_carries() -> None:
    """Tests the mean of a host's two fastest flows, sent or received; 0 of none."""
    seen = flows(5, {(0, 1): 90.0, (2, 0): 70.0, (0, 2): 10.0, (3, 0): 20.0})
    assert _cards(seen).tolist() == [80.0, 90.0, 40.0, 20.0, 0.0]


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        ([0, 0, 1, 1], [[4, 5], [6, 7]]),
        ([0, 1, 0, 2], [[4, 6], [5], [7]]),
        ([0, 0, 0, 1], None),
        ([0, 0, 0, 0], None),
        ([0, 1, 2, 3], None),
    ],
)
def test_groups_that_share_no_link_are_none(
    labels: list[int], parts: list[list[int]] | None
) -> None:
    """Tests that some group has several hosts and leaves several out."""
    assert parted([4, 5, 6, 7], np.array(labels)) == parts


def test_inference_takes_whichever_there_is() -> None:
    """Tests equal round trips, no round trips, and no rounds."""
    planted = racks([4, 4, 4, 4], uplink=50e6, rack_rtt=50e-6, seed=2)
    equal = observe(planted, rounds=20, noise=0.05, seed=2)
    apart = observe(racks([4, 4, 4, 4], seed=2), noise=0.05, seed=2)
    expected = {frozenset(rack.leaves()) for rack in planted.root.children}
    for snapshot in (equal, replace(equal, rtt=no_rtt()), apart):
        fabric = infer_fabric(snapshot)
        found = {frozenset(rack.leaves()) for rack in fabric.root.children}
        assert found == expected
    # What was not measured is not known.
    links = infer_fabric(replace(equal, rtt=no_rtt())).root.children[0]
    assert np.isnan(links.latency_s)


def test_what_groups_explain_is_a_likelihood_ratio() -> None:
    """Tests it against SciPy's G statistic, a meeting of its own kind included."""
    counts = np.array([[5, 1], [2, 7]])  # inside groups and across, by level
    one = np.zeros(15, dtype=np.int64)
    other = np.repeat([1, 2], counts.sum(axis=1))
    level = np.concatenate([np.repeat([0, 1], row) for row in counts])
    met = _Meetings(one, other, np.ones(15), np.arange(15))
    labels = np.array([0, 0, 1, 1])
    found = _gain(met, level, 2, labels)
    g = chi2_contingency(counts, correction=False, lambda_="log-likelihood").statistic
    named = naming(np.bincount(labels))
    assert found == pytest.approx(g / 2 - named - 0.5 * math.log(15))
