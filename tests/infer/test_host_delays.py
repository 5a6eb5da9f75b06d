from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.arrays import Floats
from cloudcoll.infer.grouping import complete
from cloudcoll.infer.holdout import measured
from cloudcoll.infer.host_delays import (
    LONGER,
    _agreeing,
    _delay,
    _legs,
    _middles,
    _suspects,
    host_delays,
    late_hosts,
)
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Fabric

UNEVEN = [5, 3, 6, 2]


def trips(
    fabric: Fabric, slow: Mapping[int, float], noise: float, seed: int
) -> npt.NDArray[np.float64]:
    """Return the round trips between hosts, some of which answer late."""
    seen = measured(observe(fabric, noise=noise, seed=seed))
    delays = np.zeros(len(seen.names))
    delays[list(slow)] = list(slow.values())
    return complete(seen.rtt + np.add.outer(delays, delays))


@pytest.mark.parametrize("noise", [0.05, 0.25])
@pytest.mark.parametrize("delay", [100e-6, 400e-6, 5e-3])
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], UNEVEN, [1, 4, 8, 3]], ids=str)
def test_the_delay_of_a_slow_host_is_found(
    sizes: list[int], delay: float, noise: float
) -> None:
    """Tests that one late host of a rack gets its delay and no other does."""
    for seed in range(5):
        planted = racks(sizes, seed=seed)
        late = planted.root.children[1].children[0].name
        host = sorted(planted.hosts).index(late)
        delays = host_delays(trips(planted, {host: delay}, noise, seed))
        assert np.flatnonzero(delays).tolist() == [host]
        assert delays[host] == pytest.approx(delay, rel=0.2)


def test_two_slow_hosts() -> None:
    """Tests that slow hosts of one rack and of two racks are both found."""
    planted = racks(UNEVEN, seed=3)
    first, _, third, _ = (
        [sorted(planted.hosts).index(host.name) for host in rack.children]
        for rack in planted.root.children
    )
    for slow in (first[:2], [first[0], third[0]]):
        delays = host_delays(trips(planted, dict.fromkeys(slow, 300e-6), 0.05, 3))
        assert np.flatnonzero(delays).tolist() == sorted(slow)


@pytest.mark.parametrize("noise", [0.05, 0.25, 0.4])
@pytest.mark.parametrize(
    "sizes", [[1, 4, 8, 3], [1, 1, 6], [1, 1, 1, 5, 4], UNEVEN, [12], [2, 2]], ids=str
)
def test_a_rack_of_one_is_not_a_slow_host(sizes: list[int], noise: float) -> None:
    """Tests that a host to which all others are far has no delay."""
    for seed in range(5):
        assert not host_delays(trips(racks(sizes, seed=seed), {}, noise, seed)).any()


def test_a_late_host_of_a_flat_network_is_slow() -> None:
    """Tests the simpler reading where one rack cannot tell."""
    delays = host_delays(trips(racks([9]), {4: 300e-6}, 0.05, 0))
    assert np.flatnonzero(delays).tolist() == [4]


def test_a_slow_host_beside_one_other() -> None:
    """Tests that a rack of two is taken to be as wide as racks mostly are, by hand.

    The middle of racks 50 and 200 wide is 125: the two are 300 further apart. A host
    that is alone is no rack.
    """
    rack = np.repeat([0, 1, 2, 3], [4, 5, 1, 2])
    apart = np.where(rack[:, None] == rack, np.array([50, 200, 0, 125])[rack], 390.0)
    apart[-1] = apart[:, -1] = apart[-1] + 300.0
    np.fill_diagonal(apart, 0.0)
    assert host_delays(apart).tolist() == [0.0] * 11 + [300.0]


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_few_hosts_tell_nothing(hosts: int) -> None:
    """Tests that three round trips are too few to blame anyone."""
    assert not host_delays(trips(racks([hosts]), {0: 1e-3}, 0.05, 0)).any()


def test_nothing_measured_blames_nobody() -> None:
    """Tests that hosts without round trips have no delay."""
    unknown = complete(np.full((6, 6), np.nan))
    assert not host_delays(unknown).any()


def test_legs_of_a_tree_by_hand() -> None:
    """Tests two racks of two whose hosts have legs of their own.

    A round trip is both legs, and 10 more across; the neighbour is in the same rack.
    """
    own, rack = np.array([1.0, 2.0, 3.0, 5.0]), np.array([0, 0, 1, 1])
    apart = np.add.outer(own, own) + 10.0 * (rack[:, None] != rack)
    np.fill_diagonal(apart, 0.0)
    assert np.nanmedian(_legs(apart), axis=1).tolist() == own.tolist()


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99))
def test_middles_are_medians_of_what_is_above_zero(sizes: list[int], seed: int) -> None:
    """Tests some rows at once against one group after the other."""
    drawn = np.random.default_rng(seed).integers(-9, 4, (3, sum(sizes)))
    block = np.maximum(drawn, 0).astype(float)
    parts = np.split(block, np.cumsum(sizes)[:-1], axis=1)
    medians = [np.median(part[part > 0]) if part.any() else 0.0 for part in parts]
    assert _middles(block, sizes).tolist() == medians


@pytest.mark.parametrize(
    ("profile", "delay"),
    [
        # As late to its own group as to the others: that is its delay.
        ([4.0, 13.0, 13.0], 3.0),
        # Later to its own than elsewhere by less than half of what tells groups apart.
        ([5.0, 10.0, 10.0], 4.0),
        ([6.0, 10.0, 10.0], 0.0),
        # Far from all alike: a group of its own.
        ([10.0, 10.0, 10.0], 0.0),
        # To some groups the way is longer for everybody.
        ([20.0, 4.0, 20.0], 3.0),
    ],
)
def test_the_delay_that_fits_all_groups(profile: list[float], delay: float) -> None:
    """Tests groups 1 wide and 10 apart, and one host's distance to each."""
    between = np.where(np.eye(3) > 0, 1.0, 10.0)
    assert _delay(np.array(profile), between) == delay


def test_one_group_has_one_reading() -> None:
    """Tests that a late host beside a single group is late by the whole difference."""
    assert _delay(np.array([7.0]), np.array([[2.0]])) == 5.0


@pytest.mark.parametrize(("apart", "kept"), [(0.95, True), (0.85, False)])
def test_slow_hosts_have_to_agree(apart: float, kept: bool) -> None:
    """Tests two that are nearer to each other than a tenth less than both delays."""
    delays = np.array([0.0, 2.0, 3.0, 4.0])
    distance = np.full((4, 4), 100.0)
    distance[1, 2] = distance[2, 1] = apart * 5.0
    left = _agreeing(distance, delays)
    assert left.tolist() == ([0.0, 2.0, 3.0, 4.0] if kept else [0.0, 0.0, 0.0, 4.0])
    assert delays.tolist() == [0.0, 2.0, 3.0, 4.0]


def extra(hosts: int, delays: Mapping[int, float], seed: int = 0) -> Floats:
    """Return what round trips of 1 take longer than explained, heavy tails and all."""
    drawn = np.random.default_rng(seed).pareto(1.0, (hosts, hosts)) * 0.1
    own = np.zeros(hosts)
    own[list(delays)] = list(delays.values())
    over = np.triu(drawn, 1) + np.triu(drawn, 1).T + np.add.outer(own, own)
    np.fill_diagonal(over, np.nan)
    return over


def test_late_beyond_chance() -> None:
    """Tests that a late host is found by all its pairs, with its delay."""
    for seed in range(50):
        late, found = late_hosts(extra(16, {3: 0.7}, seed), LONGER)
        assert np.flatnonzero(found).tolist() == [3]
        assert late[3] == pytest.approx(0.8, abs=0.2)


def test_noise_makes_nobody_late() -> None:
    """Tests 16,000 hosts whose medians are often above the least delay."""
    above = alarms = 0
    for seed in range(1000):
        wild = extra(16, {}, seed) * 3.0
        late, found = late_hosts(wild, LONGER)
        above += int((late > 0.25).sum())
        alarms += int(found.any())
    assert above > 5000
    assert alarms <= 5


def test_one_direction_of_a_round_trip_is_enough() -> None:
    """Tests pairs of which one host asked, and the shorter where both did."""
    whole = extra(16, {3: 0.7})
    half = np.where(np.tri(16, dtype=bool), np.nan, whole)
    for one in (half, half.T, np.where(np.isnan(half), 99.0, half)):
        assert np.flatnonzero(late_hosts(one, LONGER)[1]).tolist() == [3]
    assert not late_hosts(np.full((5, 5), np.nan), LONGER)[1].any()


def test_a_long_leg_by_chance_makes_no_suspect() -> None:
    """Tests legs whose middle is long: all of them have to be."""
    legs = np.random.default_rng(1).uniform(0.5, 1.5, (16, 16))
    np.fill_diagonal(legs, np.nan)
    assert not len(_suspects(legs))
    legs[4] = np.where(np.arange(16) % 3 > 0, 4.0, 0.6)
    assert not len(_suspects(legs))
    legs[4] = 4.0
    assert _suspects(legs).tolist() == [4]
