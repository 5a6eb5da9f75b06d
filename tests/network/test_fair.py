from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.measured.synth import racks
from cloudcoll.network import fair
from cloudcoll.network.fair import Flows, fair_rates, fair_rounds
from cloudcoll.network.tree import Fabric, Node, flat


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def test_fair_rates_by_hand() -> None:
    """Tests that flows share a full uplink and what they leave goes to others."""
    # a, b | c, d with an uplink of 60: a->c and b->d share it, 30 each.
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    assert fair_rates(links, ints(0, 1), ints(2, 3)).tolist() == [30.0, 30.0]
    # Inside a rack only the NICs limit, and a -> b leaves the uplink to nobody.
    assert fair_rates(links, ints(0, 2), ints(1, 3)).tolist() == [100.0, 100.0]


def test_fair_rates_grow_on_where_links_are_left() -> None:
    """Tests max-min fairness: a slow NIC's flow leaves the rest to the other."""
    slow, fast = Node("slow", (), 10.0, 10.0), Node("fast", (), 100.0, 100.0)
    rack = Node("rack", (slow, fast), 60.0, 60.0)
    far = [Node(name, (), 100.0, 100.0) for name in ("x", "y")]
    links = Fabric(Node("core", (rack, *far))).links
    assert fair_rates(links, ints(0, 1), ints(2, 3)).tolist() == [10.0, 50.0]


def test_weights_divide_a_full_link() -> None:
    """Tests shares of 3 to 1, and what a card of 10 leaves of three parts."""
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    weight = np.array([3.0, 1.0])
    assert fair_rates(links, ints(0, 1), ints(2, 3), weight).tolist() == [45.0, 15.0]
    slow = replace(links, up=np.where(links.up == 100.0, 10.0, links.up))
    assert fair_rates(slow, ints(0, 1), ints(2, 3), weight).tolist() == [10.0, 10.0]


@pytest.mark.parametrize("built", [True, False], ids=["engine", "numpy"])
def test_what_a_flow_does_not_take_is_left_to_others(
    built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests flows of at most 20 and 90 that share an uplink of 60 with another."""
    if not built:
        monkeypatch.setattr(fair, "library", lambda: None)
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    ends = ints(0, 0), ints(0, 1), ints(2, 3)
    for most, due, held in ((20.0, [20.0, 40.0], False), (90.0, [30.0, 30.0], True)):
        flows = Flows(links, *ends, most=np.array([most, np.inf]))
        rates, limits = flows.shared(links)
        assert rates.tolist() == due
        uplink = links.member[0, 0]
        assert limits.tolist() == [uplink if held else -1, uplink]
    free = flat(("a", "b")).links
    alone = Flows(free, ints(0), ints(0), ints(1), most=np.array([7.0]))
    rates, limits = alone.shared(free)
    assert (rates.tolist(), limits.tolist()) == ([7.0], [-1])


def test_links_not_known_limit_nothing() -> None:
    """Tests that flows over links without a capacity are not held back."""
    links = flat(("a", "b")).links
    assert fair_rates(links, ints(0), ints(1)).tolist() == [np.inf]
    assert fair_rates(links, ints(), ints()).tolist() == []


def test_rounds_do_not_share() -> None:
    """Tests that flows of other rounds take nothing, and who limits is told."""
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    rates, limits = fair_rounds(links, ints(0, 0, 1), ints(0, 1, 0), ints(2, 3, 2))
    assert rates.tolist() == [30.0, 30.0, 60.0]
    # The rack's way up comes first on the path: it is as full as the way down.
    assert set(limits.tolist()) == {int(links.member[0, 0])}


def test_what_a_full_link_carried() -> None:
    """Tests that all flows across a full link count, those held elsewhere too."""
    fabric = racks([2, 2], nic=100.0, uplink=60.0)
    links = replace(fabric.links, down=fabric.links.down.copy())
    slow = links.member[1, 3]
    links.down[slow] = 10.0
    # Both leave the first rack; host 3, the last, takes no more than 10 of one of them.
    flows = Flows(links, ints(7, 7), ints(0, 1), ints(3, 2))
    rates, limits = flows.shared(links)
    assert rates.tolist() == [10.0, 50.0]
    got = np.array([5.0, 40.0])
    full, sums = flows.on_full(limits, got, rates)
    carried = dict(zip(full.tolist(), zip(*sums, strict=True), strict=True))
    assert carried[int(limits[1])] == (45.0, 60.0)
    assert carried[int(slow) + len(links.up)] == (5.0, 10.0)
    full, _ = flows.on_full(np.full(2, -1), got)
    assert full.tolist() == []


def test_what_a_flow_had_alone() -> None:
    """Tests that of each link only rounds count in which one flow crossed it."""
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    # Two flows cross the uplinks in round 5, one in 9; that of 2 stays in its rack.
    flows = Flows(links, ints(9, 5, 5, 2), ints(0, 0, 1, 0), ints(2, 2, 3, 1))
    up, down = np.split(flows.alone(np.array([55.0, 50.0, 40.0, 90.0])), 2)
    (rack, _, other, _), hosts = links.member
    assert up[hosts[:2]].tolist() == [90.0, 40.0]
    assert down[hosts[1:]].tolist() == [90.0, 55.0, 40.0]
    assert (up[rack], down[other]) == (55.0, 55.0)
    assert np.isnan([up[other], *up[hosts[2:]], down[rack], down[hosts[0]]]).all()


@pytest.mark.parametrize(("count", "highest"), [(1, 1), (19, 19), (20, 19), (40, 38)])
def test_one_rate_in_twenty_is_left_out(count: int, highest: int) -> None:
    """Tests that the highest rate of twenty, as the two of forty, may be too high."""
    rounds, host = np.arange(count), np.zeros(count, dtype=np.int64)
    flows = Flows(flat(("a", "b")).links, rounds, host, host + 1)
    found = flows.alone(np.arange(count, 0.0, -1.0))
    assert sorted(found[np.isfinite(found)].tolist()) == [highest, highest]


def test_what_links_carried_that_several_crossed() -> None:
    """Tests that sums are of one round each, and that a flow alone is not told."""
    links = racks([2, 2], nic=100.0, uplink=60.0).links
    (rack, _, other, _), hosts = links.member
    flows = Flows(links, ints(9, 5, 9, 5, 2), ints(0, 0, 2, 1, 0), ints(1, 2, 1, 3, 1))
    link, sums = flows.on_shared(np.array([30.0, 2.0, 40.0, 1.0, 90.0]), np.ones(5))
    shared = [(rack, 3.0, 2.0), (other + 6, 3.0, 2.0), (hosts[1] + 6, 70.0, 2.0)]
    assert sorted(zip(link, *sums, strict=True)) == sorted(shared)


flows = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda f: f[0] != f[1]),
    min_size=1,
    max_size=24,
)


@given(flows, st.floats(10.0, 400.0), st.integers(0, 5))
def test_each_flow_has_a_full_link_that_gives_it_most(
    pairs: list[tuple[int, int]], uplink: float, seed: int
) -> None:
    """Tests the definition of max-min fairness on any set of flows.

    No link carries more than it can, and each flow crosses a full link on
    which no other flow is faster.
    """
    links = racks([1, 3, 4], nic=100.0, uplink=uplink, seed=seed).links
    src, dst = np.array(pairs, dtype=np.int64).T
    rates, limits = fair_rounds(links, np.zeros(len(src), dtype=np.int64), src, dst)
    out, into = links.member[:, src], links.member[:, dst]
    count = len(links.up)
    crosses = out != into
    capacity = np.concatenate([links.up, links.down])
    users = [
        np.flatnonzero((crosses & ((out == link) | (into + count == link))).any(axis=0))
        for link in range(2 * count)
    ]
    for link, mine in enumerate(users):
        assert rates[mine].sum() <= capacity[link] * (1 + 1e-6)
    for flow, link in enumerate(limits.tolist()):
        assert flow in users[link]
        assert rates[users[link]].sum() == pytest.approx(capacity[link])
        assert rates[flow] >= rates[users[link]].max() * (1 - 1e-6)


@pytest.fixture
def without_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute as where nothing was compiled."""
    with monkeypatch.context() as patch:
        patch.setattr(fair, "library", lambda: None)
        yield


@pytest.mark.parametrize("known", [1.0, 0.4])
@pytest.mark.parametrize("seed", range(10))
def test_the_same_without_the_engine(
    known: float, seed: int, request: pytest.FixtureRequest
) -> None:
    """Tests rates and limits in C against NumPy's, some links without a rate."""
    generator = np.random.default_rng(seed)
    # Rates of about 1, as in GB/s: what is left of a link is less.
    links = racks([3, 1, 5, 2], nic=1.0, uplink=1.3, seed=seed).links
    unknown = generator.random((2, len(links.up))) > known
    up, down = np.where(unknown, np.inf, [links.up, links.down])
    links = replace(links, up=up * generator.uniform(0.5, 1.5, len(up)), down=down)
    src = generator.integers(11, size=60)
    dst = (src + generator.integers(1, 11, size=60)) % 11
    flows = (generator.integers(7, size=60), src, dst, generator.uniform(0.5, 2.0, 60))
    rates, limits = fair_rounds(links, *flows)
    request.getfixturevalue("without_engine")
    expected, where = fair_rounds(links, *flows)
    assert rates == pytest.approx(expected, rel=1e-9)
    assert limits.tolist() == where.tolist()
    assert (known < 1.0) == bool((limits < 0).any())
