from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudcoll.arrays import Floats
from cloudcoll.solve.ring import best_ring
from cloudcoll.solve.ring.gates import bottleneck_bound, groups, laid


def pods(sizes: list[int], seed: int, directed: bool) -> tuple[Floats, list[int]]:
    """Return pairs of 1.0 to 1.3 in a group, 3.0 to 3.5 between, and the groups."""
    generator = np.random.default_rng(seed)
    group = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
    hosts = len(group)
    times = generator.uniform(1.0, 1.3, (hosts, hosts))
    apart = group[:, None] != group
    times[apart] = generator.uniform(3.0, 3.5, (hosts, hosts))[apart]
    times = times if directed else np.maximum(times, times.T)
    np.fill_diagonal(times, 0.0)
    return times, group.tolist()


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=6).filter(lambda s: max(s) > 2),
    st.booleans(),
    st.floats(3.0, 3.5),
    st.integers(0, 99),
)
def test_rings_cross_by_fast_pairs_only(
    sizes: list[int], directed: bool, most: float, seed: int
) -> None:
    """Tests what is laid: every host once, and no slow pair between groups."""
    times, group = pods(sizes, seed, directed)
    ring = laid(times, most, np.arange(len(times)), seed)
    if ring is None:
        return
    assert sorted(ring.tolist()) == list(range(len(times)))
    for one, other in zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True):
        assert group[one] == group[other] or times[one, other] <= most


@pytest.mark.parametrize("directed", [False, True])
def test_a_ring_is_laid_wherever_all_pairs_may_be_taken(directed: bool) -> None:
    """Tests that a walk is found where hardly any pair is forbidden."""
    for seed in range(20):
        times, _ = pods([3, 1, 5, 2, 4], seed, directed)
        assert laid(times, 3.45, np.arange(15), seed) is not None


def test_groups_are_cut_at_the_last_gap() -> None:
    """Tests racks in pods: below which pairs they are told apart."""
    times, group = pods([4, 5, 3], 1, False)
    same = np.equal.outer(group, group)
    found = groups(times, 3.5)
    assert np.array_equal(np.equal.outer(found, found), same)
    assert groups(times, 2.0).tolist() == [0] * 12


def test_nothing_is_laid_without_groups_or_a_way_back() -> None:
    """Tests a single group, and one that is only left by fast pairs."""
    alone, _ = pods([9], 2, False)
    assert laid(alone, 1.2, np.arange(9), 0) is None
    times, group = pods([4, 4], 3, True)
    hosts = np.array(group)
    times[(hosts[:, None] == 1) & (hosts == 0)] = 9.0
    assert laid(times, 8.0, np.arange(8), 0) is None


@pytest.mark.parametrize("directed", [False, True])
def test_the_rare_pairs_of_a_cloud_are_found(directed: bool) -> None:
    """Tests five pods of 30 with one fast way round: the ring is at the bound."""
    times, group = pods([30] * 5, 4, directed)
    members = [[h for h, g in enumerate(group) if g == pod] for pod in range(5)]
    for one, other in zip((0, 2, 4, 1, 3), (2, 4, 1, 3, 0), strict=True):
        left, entered = members[one][one], members[other][one + 7]
        times[left, entered] = 2.0
        times[entered, left] = times[entered, left] if directed else 2.0
    ring = best_ring(times, objective="bottleneck", steps=300)
    assert times[ring, np.roll(ring, -1)].max() == 2.0 == bottleneck_bound(times)


def crossed(ways: str, seed: int) -> list[str]:
    """Return the groups that a ring is laid through, in order, given its fast pairs.

    Pairs are written as the groups they lead from and to; each has hosts of its own.
    A is the largest group, where a walk begins.
    """
    names = sorted(set(ways) - {" "})
    group = np.repeat(np.arange(len(names)), [13, *[12] * (len(names) - 1)])
    times = np.where(np.equal.outer(group, group), 1.0, 9.0)
    np.fill_diagonal(times, 0.0)
    for number, pair in enumerate(ways.split()):
        left, entered = (np.flatnonzero(group == names.index(name)) for name in pair)
        times[left[number], entered[number]] = 3.0
    ring = laid(times, 5.0, np.arange(len(times)), seed)
    assert ring is not None
    passed = group[ring]
    return [names[one] for one in passed[passed != np.roll(passed, -1)].tolist()]


@pytest.mark.parametrize("seed", range(9))
def test_a_walk_takes_few_hosts_of_the_group_it_leaves(seed: int) -> None:
    """Tests that it passes what is new before it comes home, then nothing twice."""
    assert sorted(crossed("AB BA BC CB CA AC", seed)) == ["A", "B", "C"]
    # The groups in a row, and one beside it with a way back over what was passed.
    walk = crossed("AB BC CA AD DA DB BA", seed)
    assert sorted(walk) in ([*"AABCD"], [*"ABCD"])
