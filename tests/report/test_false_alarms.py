"""Of healthy hosts none is blamed for noise; the sick ones are found all the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from noisy import QUICK, Noise, planted, probed, slowed

from cloudcoll.infer import infer_fabric, with_rates_of
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.report.findings import (
    HostEffect,
    honest_fabric,
    host_effects,
    uplinks,
    worst_hosts,
)
from cloudcoll.report.totals import one_way_pairs

FLAT, EVEN, UNEVEN, HALVES = (16,), (4, 4, 4, 4), (5, 3, 6, 2), (8, 8)
CARD = 50e6
NETWORKS = (
    (FLAT, CARD),
    (EVEN, 2 * CARD),
    (EVEN, CARD),
    (UNEVEN, CARD),
    (HALVES, 4 * CARD),
)
NOISES = (
    Noise(scatter=0.1, stalls=0.05, tails=0.1),
    Noise(scatter=0.2, stalls=0.3, tails=0.5, starved=1),
    Noise(scatter=0.4, stalls=0.1, tails=0.3, starved=2),
    Noise(scatter=0.6, stalls=0.2, tails=0.9, starved=1),
)
"""From a quiet network to one in which little can be told."""

MODERATE = (
    Noise(scatter=0.1, stalls=0.05, tails=0.1),
    Noise(scatter=0.2, stalls=0.2, tails=0.3, starved=1),
    Noise(scatter=0.3, stalls=0.1, tails=0.3),
)
SICK = "vm-05"


def healthy(probes: int) -> Iterator[tuple[Fabric, NetworkSnapshot]]:
    """Yield networks in which all is well, and what was measured of them."""
    kinds = itertools.cycle(itertools.product(NETWORKS, NOISES, (QUICK, 3 * QUICK)))
    for seed, ((sizes, uplink), noise, rounds) in zip(
        range(probes), kinds, strict=False
    ):
        fabric = planted(sizes, uplink, 150e-6, seed)
        yield fabric, probed(fabric, noise, seed, rounds=rounds)


def effects(fabric: Fabric, snapshot: NetworkSnapshot) -> dict[str, HostEffect]:
    """Return what is said of each host."""
    found = host_effects(snapshot, with_rates_of(snapshot, fabric))
    return {host.name: host for host in found}


def test_healthy_hosts_are_not_blamed() -> None:
    """Tests 2560 hosts: at most one in 500 is called late or slow."""
    blamed = hosts = 0
    for fabric, snapshot in healthy(160):
        hosts += len(snapshot.hosts)
        blamed += len(worst_hosts(snapshot, with_rates_of(snapshot, fabric)))
    assert hosts == 2560
    assert blamed <= hosts // 500


def test_healthy_links_are_not_blamed() -> None:
    """Tests uplinks and directions: 1 % of all probes may have one of each at most."""
    weak = skewed = 0
    for fabric, snapshot in healthy(100):
        known = with_rates_of(snapshot, fabric)
        weak += sum(link.stands_out for link in uplinks(snapshot, known))
        skewed += len(one_way_pairs(snapshot, known))
    assert max(weak, skewed) <= 1


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_healthy_hosts_are_not_blamed_by_inference() -> None:
    """Tests 16,000 hosts in fabrics that inference found or missed."""
    blamed = hosts = 0
    for _, snapshot in healthy(1000):
        known = snapshot.with_fabric(infer_fabric(snapshot))
        hosts += len(snapshot.hosts)
        blamed += len(worst_hosts(known, honest_fabric(known)))
    assert blamed <= hosts // 500


@pytest.mark.parametrize("noise", MODERATE, ids=str)
def test_a_card_at_half_its_rate_is_found(noise: Noise) -> None:
    """Tests 100 quick probes of a network whose uplinks are wide enough."""
    found = 0
    for seed in range(100):
        fabric = planted(FLAT, CARD, 150e-6, seed)
        snapshot = probed(slowed(fabric, {SICK: (0.5, 0.5)}), noise, seed)
        found += effects(fabric, snapshot)[SICK].is_slow
    assert found >= 95


@pytest.mark.parametrize("uplink", [2 * CARD, CARD])
def test_a_slow_card_is_found_behind_a_full_uplink(uplink: float) -> None:
    """Tests 100 quick probes in which six transfers of a card tell of it."""
    found = 0
    for seed in range(100):
        fabric = planted(EVEN, uplink, 150e-6, seed)
        snapshot = probed(slowed(fabric, {SICK: (0.5, 0.5)}), NOISES[0], seed)
        found += effects(fabric, snapshot)[SICK].is_slow
    assert found >= 95


def test_a_slow_card_is_found_in_a_rack_of_three() -> None:
    """Tests 40 probes in which it meets its two peers eight times."""
    found = 0
    for seed in range(40):
        fabric = planted(UNEVEN, CARD, 150e-6, seed)
        sick = fabric.root.children[1].children[0].name
        slow = slowed(fabric, {sick: (0.5, 0.5)})
        found += effects(fabric, probed(slow, NOISES[0], seed, rounds=4 * QUICK))[
            sick
        ].is_slow
    assert found >= 38


@pytest.mark.parametrize("ways", [(0.5, 1.0), (1.0, 0.5)])
def test_a_card_that_is_slow_one_way_is_found(ways: tuple[float, float]) -> None:
    """Tests that both ways are looked at apart, too."""
    found = 0
    for seed in range(40):
        fabric = planted(FLAT, CARD, 150e-6, seed)
        snapshot = probed(slowed(fabric, {SICK: ways}), MODERATE[1], seed)
        found += effects(fabric, snapshot)[SICK].is_slow
    assert found >= 38


@pytest.mark.parametrize("rtt", [100e-6, 150e-6, 200e-6])
@pytest.mark.parametrize("noise", MODERATE, ids=str)
def test_a_late_host_is_found(rtt: float, noise: Noise) -> None:
    """Tests 100 us on round trips of 100 to 200 us, in 100 quick probes."""
    found = 0
    for seed in range(100):
        fabric = planted(EVEN, CARD, rtt, seed)
        snapshot = probed(fabric, noise, seed, rounds=1, late={SICK: 100e-6})
        found += effects(fabric, snapshot)[SICK].is_late
    assert found >= 95


@pytest.mark.parametrize(("way", "index"), [("up", 0), ("down", 1)])
def test_a_weak_uplink_is_found(way: str, index: int) -> None:
    """Tests a rack whose uplink carries half of what the others' do, one way."""
    found = 0
    for seed in range(40):
        fabric = planted(EVEN, 2 * CARD, 150e-6, seed)
        ways = (0.5, 1.0) if way == "up" else (1.0, 0.5)
        snapshot = probed(slowed(fabric, {"rack-2": ways}), MODERATE[1], seed)
        links = uplinks(snapshot, with_rates_of(snapshot, fabric))
        assert not any(link.stands_out for link in links[1:])
        found += links[0].stands_out and links[0].name == "rack-2"
    assert found >= 38


@pytest.mark.parametrize("sick", [0.85, 0.75])
def test_a_card_that_is_busy_is_not_slow(sick: float) -> None:
    """Tests the least effect: the difference is beyond chance, and nobody's concern."""
    fabric = planted(FLAT, CARD, 150e-6, 1)
    snapshot = probed(slowed(fabric, {SICK: (sick, sick)}), Noise(0.01, 0.0), 1)
    assert not worst_hosts(snapshot, with_rates_of(snapshot, fabric))


@pytest.mark.parametrize(("late", "said"), [(12e-6, False), (20e-6, True)])
def test_how_late_a_host_has_to_be(late: float, said: bool) -> None:
    """Tests a twelfth of a round trip of 150 us, and a seventh."""
    fabric = planted(FLAT, CARD, 150e-6, 1)
    snapshot = probed(fabric, Noise(tails=0.0), 1, late={SICK: late})
    assert effects(fabric, snapshot)[SICK].is_late == said


@pytest.mark.parametrize(("rounds", "said"), [(1, False), (2, True), (QUICK, True)])
def test_one_round_says_nothing(rounds: int, said: bool) -> None:
    """Tests a card at a tenth of its rate: its only peer may be the slow one."""
    fabric = planted(FLAT, CARD, 150e-6, 1)
    slow = slowed(fabric, {SICK: (0.1, 0.1)})
    snapshot = probed(slow, Noise(0.05, 0.0), 1, rounds=rounds)
    assert bool(worst_hosts(snapshot, with_rates_of(snapshot, fabric))) == said


def test_the_other_host_of_a_rack_is_not_blamed() -> None:
    """Tests a rack of two with a slow card: with 45 rounds they met three times."""
    for seed in range(20):
        fabric = planted((7, 7, 2), CARD, 150e-6, seed)
        pair = [node.name for node in fabric.root.children[2].children]
        slow = slowed(fabric, {pair[0]: (0.3, 0.3)})
        snapshot = probed(slow, Noise(0.1, 0.0), seed, rounds=6 * QUICK)
        assert not effects(fabric, snapshot)[pair[1]].is_slow


def test_a_host_in_a_wrong_rack_has_no_slow_card() -> None:
    """Tests that its transfers to its true rack clear what the fabric blames it for."""
    for seed in range(20):
        true = planted(EVEN, CARD, 150e-6, seed)
        first, second, *others = true.root.children
        moved, *left = first.children
        wrong = (
            replace(first, children=tuple(left)),
            replace(second, children=(moved, *second.children)),
            *others,
        )
        fabric = replace(true, root=replace(true.root, children=wrong))
        snapshot = probed(true, MODERATE[1], seed, rounds=3 * QUICK)
        assert not effects(fabric, snapshot)[moved.name].is_slow


def test_who_loses_on_a_full_uplink_has_no_slow_card() -> None:
    """Tests a host that gets a third of its fair share of an uplink, each time."""
    fabric = planted(EVEN, CARD, 150e-6, 3)
    snapshot = probed(fabric, Noise(0.05, 0.0), 3, rounds=3 * QUICK)
    flows = snapshot.flows
    rack = {n: rack.name for rack in fabric.root.children for n in rack.leaves()}
    loser = snapshot.names.index(SICK)
    near = np.array(
        [
            rack[snapshot.names[a]] == rack[snapshot.names[b]]
            for a, b in zip(flows.src.tolist(), flows.dst.tolist(), strict=True)
        ]
    )
    loses = ((flows.src == loser) | (flows.dst == loser)) & ~near
    windows = np.where(np.repeat(loses, 3), flows.window_bytes // 3, flows.window_bytes)
    unfair = replace(snapshot, flows=replace(flows, window_bytes=windows))
    assert not worst_hosts(unfair, with_rates_of(unfair, fabric))


def test_two_sick_hosts_do_not_hide_each_other() -> None:
    """Tests two slow cards and two late hosts at once."""
    fabric = planted(FLAT, CARD, 150e-6, 2)
    slow = slowed(fabric, {"vm-05": (0.5, 0.5), "vm-09": (0.4, 0.4)})
    late = {"vm-01": 100e-6, "vm-16": 200e-6}
    found = effects(fabric, probed(slow, MODERATE[0], 2, late=late))
    assert {n for n, host in found.items() if host.is_slow} == {"vm-05", "vm-09"}
    assert {n for n, host in found.items() if host.is_late} == {"vm-01", "vm-16"}
