from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated import prediction_error, probe_of

from cloudcoll.hosts import Host
from cloudcoll.infer.fit import (
    _corrected,
    _nats,
    fitted,
    refitted,
    with_capacities,
    with_one_rate,
)
from cloudcoll.infer.holdout import measured
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.fair import Flows
from cloudcoll.network.tree import Fabric, Links, Node
from cloudcoll.probe import plan_probes


def scaled(node: Node, factors: np.random.Generator) -> Node:
    """Return the tree with each link's rates off by up to a quarter."""
    up, down = factors.uniform(0.75, 1.25, 2)
    return replace(
        node,
        children=tuple(scaled(child, factors) for child in node.children),
        uplink_bytes_per_s=node.uplink_bytes_per_s * up,
        downlink_bytes_per_s=node.downlink_bytes_per_s * down,
    )


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [5, 3, 6, 2]], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_start_is_corrected(sizes: list[int], seed: int) -> None:
    """Tests that rates that are off come nearer to those that made the rounds."""
    planted = racks(sizes, nic=50e6, uplink=60e6, seed=seed)
    seen = measured(observe(planted, rounds=30, noise=0.0, seed=seed))
    wrong = scaled(planted.root, np.random.default_rng(seed))
    before = prediction_error(Fabric(wrong), seen)
    after = prediction_error(Fabric(fitted(wrong, seen)), seen)
    assert before > 0.08
    assert after < before / 2


def test_a_stalled_round_narrows_nothing() -> None:
    """Tests that one round in which the cross flows stalled is outvoted."""
    planted = racks([4, 4, 4], nic=50e6, uplink=50e6)
    seen = measured(observe(planted, rounds=15, noise=0.0))
    stalled = replace(seen, rate=np.where(seen.round == 7, seen.rate / 5, seen.rate))
    for rack in fitted(planted.root, stalled).children:
        rates = rack.uplink_bytes_per_s, rack.downlink_bytes_per_s
        assert rates == pytest.approx((50e6, 50e6), rel=0.01)


@pytest.mark.parametrize("end", ["src", "dst"])
def test_a_card_that_mostly_stalls_is_no_slow_card(end: str) -> None:
    """Tests a host of whose flows seven in eight stall: others show what it carries."""
    planted = racks([8, 8], nic=50e6, uplink=8 * 50e6)
    seen = measured(observe(planted, rounds=60, noise=0.0))
    mine = np.flatnonzero(getattr(seen, end) == 0)
    stalled = seen.rate.copy()
    stalled[mine[np.arange(len(mine)) % 8 > 0]] /= 10
    found = Fabric(fitted(planted.root, replace(seen, rate=stalled)))
    links = found.links
    host = links.member[-1, found.position(seen.names[0])]
    rate = (links.up if end == "src" else links.down)[host]
    assert 0.85 * 50e6 <= rate <= 1.01 * 50e6


def test_one_reading_too_high_raises_nothing() -> None:
    """Tests a flow of ten that seems to be faster than its card."""
    planted = racks([4, 4, 4], nic=50e6, uplink=50e6)
    seen = measured(observe(planted, rounds=40, noise=0.0))
    rate = seen.rate.copy()
    near = (seen.src < 4) & (seen.dst < 4) & (seen.src == 0)
    assert near.sum() >= 2
    rate[np.flatnonzero(near)[0]] *= 3
    fabric = Fabric(fitted(planted.root, replace(seen, rate=rate)))
    links = fabric.links
    host = links.member[-1, fabric.position(seen.names[0])]
    assert links.up[host] == pytest.approx(50e6, rel=0.01)


def test_the_truth_stays() -> None:
    """Tests that rates that explain every round exactly are not touched."""
    planted = racks([4, 4, 4], nic=50e6, uplink=75e6)
    seen = measured(observe(planted, rounds=10, noise=0.0))
    found = Fabric(fitted(planted.root, seen)).links
    assert found.up == pytest.approx(planted.links.up, rel=1e-6)
    assert found.down == pytest.approx(planted.links.down, rel=1e-6)


def test_links_of_unknown_rate_stay_so() -> None:
    """Tests that the fit makes up no rate, and needs no rounds."""
    planted = racks([3, 3], nic=50e6, uplink=float("nan"))
    seen = measured(observe(planted, rounds=6))
    for measurements in (seen, seen.flows(np.zeros(len(seen.rate), dtype=bool))):
        for rack in fitted(planted.root, measurements).children:
            assert np.isnan([rack.uplink_bytes_per_s, rack.downlink_bytes_per_s]).all()


def test_the_fullest_rounds_tell_a_rate() -> None:
    """Tests the quantile 0.85 of eleven rounds for one link, and one round of another.

    Links that were never full stay.
    """
    links = racks([2, 2], nic=100.0, uplink=80.0).links
    count = len(links.up)
    full = np.array([1, count + 2, *[1] * 10])
    ratio = np.array([0.0, 3.0, *np.linspace(0.1, 1.0, 10)])
    fixed = _corrected(links, full, ratio)
    assert fixed.up[1] / links.up[1] == pytest.approx(0.85)
    assert fixed.down[2] / links.down[2] == pytest.approx(3.0)
    others = np.arange(count)
    assert (fixed.up[others != 1] == links.up[others != 1]).all()
    assert (fixed.down[others != 2] == links.down[others != 2]).all()


def uplinks(fabric: Fabric, noise: float, seed: int) -> list[float]:
    """Return the rates of groups' links, up and down, that a quick probe shows."""
    names = sorted(fabric.hosts)
    plan = plan_probes(tuple(map(Host, names)), mode="quick", seed=seed)
    seen = measured(probe_of(fabric, names, plan, noise=noise, scatter=0.2))
    start = with_capacities(fabric.root, seen)
    # As if no round had filled the last one.
    *others, last = start.children
    rates = {"uplink_bytes_per_s": math.nan, "downlink_bytes_per_s": math.nan}
    start = replace(start, children=(*others, replace(last, **rates)))  # type: ignore[arg-type]
    groups = fitted(start, seen).children
    ways = [(g.uplink_bytes_per_s, g.downlink_bytes_per_s) for g in groups]
    return np.ravel(ways).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_links_that_are_alike_have_one_rate(seed: int) -> None:
    """Tests what little is known of each link, and one of which nothing is."""
    fabric = racks([5, 3, 6, 4], nic=50e6, uplink=80e6, seed=seed)
    found = uplinks(fabric, 0.1, seed)
    assert len(set(found)) == 1
    assert found[0] == pytest.approx(80e6, rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_link_that_is_surely_narrower_keeps_its_rate(seed: int) -> None:
    """Tests one rack of four whose link carries half, upward alone."""
    fabric = racks([4, 4, 4, 4], nic=50e6, uplink=80e6, seed=seed)
    first, *others = fabric.root.children
    narrow = replace(first, uplink_bytes_per_s=40e6)
    found = uplinks(Fabric(replace(fabric.root, children=(narrow, *others))), 0.1, seed)
    assert found[0] / found[2] == pytest.approx(0.5, rel=0.1)
    assert found[1:] == pytest.approx([80e6] * 7, rel=0.15)


def test_a_link_that_others_do_not_tell_of_stays_unknown() -> None:
    """Tests a pair whose cards are slower together than the others' links."""
    fabric = racks([5, 5, 5, 2], nic=50e6, uplink=120e6, seed=1)
    found = uplinks(fabric, 0.05, 1)
    assert np.isnan(found[6:]).all()
    assert found[:6] == pytest.approx([120e6] * 6, rel=0.1)


def test_links_that_are_alike_share_all_that_is_known() -> None:
    """Tests the quantile 0.85 of what two links carried, one of them mostly idle."""
    links = racks([2, 2], nic=100.0, uplink=80.0).links
    count, pair = len(links.up), np.array([0, 1])
    full = np.array([0, *[1] * 10])
    fixed = _corrected(links, full, np.linspace(0.0, 1.0, 11), pair)
    ways = [np.append(of.up, of.down) for of in (fixed, links)]
    changed = np.isin(np.arange(2 * count), [0, 1, count, count + 1])
    assert (ways[0] / ways[1])[changed] == pytest.approx(0.85)
    assert (ways[0] == ways[1])[~changed].all()


def test_one_rate_is_the_median_of_what_is_known() -> None:
    """Tests links of unknown rate among others, and such alone."""
    fabric = racks([2, 2, 2], nic=100.0, uplink=80.0)
    first, second, third = fabric.root.children
    wide = replace(second, uplink_bytes_per_s=90.0, downlink_bytes_per_s=90.0)
    open_ = replace(third, uplink_bytes_per_s=math.nan, downlink_bytes_per_s=math.nan)
    links = Fabric(Node("core", (first, wide, open_))).links
    groups = np.unique(links.member[0])
    rates = sorted(links.up[groups].tolist())
    assert rates == [80.0, 90.0, math.inf]
    same = with_one_rate(links, groups)
    assert same
    assert same.up[groups].tolist() == same.down[groups].tolist() == [85.0] * 3
    assert (same.up == links.up).sum() == len(links.up) - 3
    assert with_one_rate(links, groups[np.isinf(links.up[groups])]) is None


@pytest.mark.parametrize("seed", [172, 448, 596, 801])
def test_a_narrow_link_behind_others_that_are_full(seed: int) -> None:
    """Tests four rounds in which all flows of a narrow rack cross another full link.

    The fit never blamed it, started it with the rate of its neighbours, and a daemon
    went on with figures of before.
    """
    planted = racks([4, 4, 4, 4], nic=50e6, uplink=50e6, seed=seed)
    first, second, *others = planted.root.children
    slow = replace(second, uplink_bytes_per_s=12.5e6, downlink_bytes_per_s=12.5e6)
    now = Fabric(replace(planted.root, children=(first, slow, *others)))
    names = sorted(now.hosts)
    plan = plan_probes(tuple(map(Host, names)), mode="quick", seed=seed)
    seen = measured(probe_of(now, names, plan, noise=0.05))
    seen = seen.flows(np.isin(seen.round, np.unique(seen.round)[:4]))
    found = refitted(now.root, seen).children[1]
    rates = found.uplink_bytes_per_s, found.downlink_bytes_per_s
    assert rates == pytest.approx((12.5e6, 12.5e6), rel=0.1)


def test_how_much_better_links_explain_flows() -> None:
    """Tests nats worked out by hand, and that no fit is believed to be exact."""
    wide = racks([1, 1], nic=100.0, uplink=math.nan).links
    narrow = replace(wide, up=wide.up * 0.5)
    exact = replace(wide, up=wide.up * 0.4)
    src, dst = np.array([0, 1, 0]), np.array([1, 0, 1])
    flows = Flows(wide, np.arange(3), src, dst)
    rate = np.full(3, 40.0)
    ratio = math.log(100 / 40) / math.log(50 / 40)

    def nats(one: Links, other: Links) -> float:
        return _nats(flows.shared(one)[0], flows.shared(other)[0], rate)

    assert nats(wide, narrow) == pytest.approx(3 * math.log(ratio))
    assert nats(narrow, wide) == pytest.approx(-3 * math.log(ratio))
    least = math.log(100 / 40) / 0.01
    assert nats(wide, exact) == pytest.approx(3 * math.log(least))
    unknown = replace(wide, up=np.full_like(wide.up, np.inf), down=wide.down * np.inf)
    assert nats(unknown, wide) == 0.0
