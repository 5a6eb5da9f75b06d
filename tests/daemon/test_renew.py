from __future__ import annotations

import math
from dataclasses import replace

import pytest
from simulated import Planted

from cloudcoll.daemon.beats import spared
from cloudcoll.daemon.combined_probes import together
from cloudcoll.daemon.renew import Renewed, group_labels, renewed
from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Fabric, Node, flat
from cloudcoll.probe import Conduct

NIC = 50e6
RTT = 250e-6


def planted(*, rtt: float = RTT, scatter: float = 0.2) -> Planted:
    """Return four racks; with no other round trips, loaded rounds alone show them."""
    fabric = racks((5, 3, 5, 3), nic=NIC, uplink=NIC, rtt=rtt, rack_rtt=RTT, seed=3)
    return Planted(fabric, 0.05, scatter)


def probed(network: Planted, seed: int, *, whole: bool = False) -> NetworkSnapshot:
    """Return what a quick probe measures, or the short one of a daemon."""
    hosts = tuple(map(Host, sorted(network.fabric.hosts)))
    plan = network.plan(hosts, "quick", seed, None)
    return network.measure(hosts, plan if whole else spared(plan), Conduct())


def known_of(network: Planted) -> Fabric:
    """Return what four tournaments show, surely."""
    both = [probed(network, seed, whole=True) for seed in (1, 2, 3, 4)]
    known = infer_fabric(together(both) or both[0])
    assert known.confidence > 0.95
    return known


def after(known: Fabric, network: Planted, *, checks: int = 1) -> Renewed:
    """Return the fabric after checks in a row."""
    made = [probed(network, 10 + seed) for seed in range(checks)]
    return renewed(known, together(made) or made[0])


def grouped(fabric: Fabric) -> set[frozenset[str]]:
    labels = group_labels(fabric, fabric.hosts)
    parts: dict[int, set[str]] = {}
    for name, label in zip(fabric.hosts, labels.tolist(), strict=True):
        parts.setdefault(label, set()).add(name)
    return {*map(frozenset, parts.values())}


def slowed(network: Planted, factor: float) -> Planted:
    """Return the network after the first rack's uplink fell."""
    first, *others = network.fabric.root.children
    rate = first.uplink_bytes_per_s / factor
    first = replace(first, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)
    root = replace(network.fabric.root, children=(first, *others))
    return replace(network, fabric=replace(network.fabric, root=root))


def moved(network: Planted) -> Planted:
    """Return the network after a host of the first rack went to the second."""
    first, second, *others = network.fabric.root.children
    (one, *rest), more = first.children, second.children
    first = replace(first, children=tuple(rest))
    second = replace(second, children=(*more, one))
    root = replace(network.fabric.root, children=(first, second, *others))
    return replace(network, fabric=replace(network.fabric, root=root))


@pytest.mark.many
@pytest.mark.parametrize("checks", [1, 3])
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_busy_hosts_take_no_group_away(share: float, checks: int) -> None:
    """Tests that four rounds, or twelve, between hosts at work change no groups."""
    network = planted()
    known = known_of(network)
    names = sorted(network.fabric.hosts)
    count = round(share * len(names))
    found = after(known, replace(network, busy={*names[:count]}), checks=checks)
    assert grouped(found.fabric) == grouped(known)
    assert found.fabric.confidence >= known.confidence
    if checks == 1:
        assert not found.conclusive
        assert found.refused == "its rounds are too few to tell who shares a link"


def test_the_same_again_changes_nothing() -> None:
    """Tests that a fabric stays to the last digit while nothing happens."""
    network = planted(scatter=0.0)
    known = known_of(network)
    assert after(known, network).fabric is known
    assert renewed(known, probed(network, 3), stands=True).fabric is known


def test_an_uplink_at_a_fifth() -> None:
    """Tests that its rate alone changes, after four rounds; it is known both ways."""
    network = planted()
    known = known_of(network)
    found = after(known, slowed(network, 5.0))
    assert grouped(found.fabric) == grouped(known)
    assert found.fabric.hosts == known.hosts
    assert (found.fabric.links.latency == known.links.latency).all()
    names = {*network.fabric.root.children[0].leaves()}
    for old, new in zip(known.groups()[0], found.fabric.groups()[0], strict=True):
        if {*new.leaves()} == names:
            assert new.uplink_bytes_per_s == pytest.approx(NIC / 5, rel=0.4)
            assert new.downlink_bytes_per_s == pytest.approx(NIC / 5, rel=0.4)
        else:
            assert new.uplink_bytes_per_s == old.uplink_bytes_per_s


def test_a_host_in_another_rack_by_its_round_trips() -> None:
    """Tests that one short probe is enough where racks have other round trips."""
    network = planted(rtt=RTT / 5)
    known = known_of(network)
    now = moved(network)
    found = after(known, now)
    assert grouped(found.fabric) == grouped(now.fabric)
    assert (found.conclusive, found.refused) == (True, "")


def test_a_host_in_another_rack_by_its_loads() -> None:
    """Tests that three in a row show it where round trips are all alike."""
    network = planted()
    known = known_of(network)
    now = moved(network)
    assert grouped(after(known, now).fabric) == grouped(known)
    found = after(known, now, checks=3)
    assert grouped(found.fabric) == grouped(now.fabric)
    assert found.fabric.confidence > 0.9


def test_a_host_that_was_not_known() -> None:
    """Tests that it gets its place, with no more certainty asked for."""
    network = planted(rtt=RTT / 5)
    known = known_of(network)
    lost = network.fabric.root.children[0].children[0].name
    children = tuple(
        replace(rack, children=tuple(c for c in rack.children if c.name != lost))
        for rack in known.root.children
    )
    root = replace(known.root, children=(*children, Node(lost)))
    found = renewed(
        replace(known, root=root), probed(network, 5), fresh=frozenset({lost})
    )
    assert grouped(found.fabric) == grouped(network.fabric)


def test_groups_where_none_were_known() -> None:
    """Tests that any that are found are better than a fabric that knows nothing."""
    network = planted()
    names = tuple(sorted(network.fabric.hosts))
    found = renewed(flat(names), probed(network, 1, whole=True))
    assert grouped(found.fabric) == grouped(network.fabric)
    assert not math.isnan(found.fabric.confidence)


def test_rates_that_changed() -> None:
    """Tests that a known tree keeps groups and latencies, and learns the rates."""
    fabric = racks((5, 3, 6, 2), nic=NIC, uplink=NIC, seed=1)
    known = infer_fabric(observe(fabric, rounds=15, noise=0.05, seed=1))
    rack = fabric.root.children[0]
    slow = replace(rack, uplink_bytes_per_s=NIC / 4, downlink_bytes_per_s=NIC / 4)
    root = replace(fabric.root, children=(slow, *fabric.root.children[1:]))
    seen = observe(replace(fabric, root=root), rounds=15, noise=0.05, seed=2)
    now = renewed(known, seen, stands=True).fabric
    assert now.hosts == known.hosts
    assert (now.links.latency == known.links.latency).all()
    (rate,) = (
        node.uplink_bytes_per_s
        for node in now.groups()[0]
        if {*node.leaves()} == {*rack.leaves()}
    )
    assert rate == pytest.approx(NIC / 4, rel=0.1)
    assert now.holdout_error < 0.1


@pytest.mark.parametrize("seed", [6000, 16000, 18000])
def test_an_uplink_is_known_better_than_the_cards_below(seed: int) -> None:
    """Tests that a fall shows in four rounds although single flows are uneven."""
    network = planted(scatter=0.5)
    known = replace(network.fabric, confidence=1.0)
    found = renewed(known, probed(slowed(network, 4.0), seed)).fabric
    assert found.root.children[0].uplink_bytes_per_s < NIC / 2


@pytest.mark.parametrize(("seed", "next_seed"), [(2000, 3000), (5000, 10000)])
def test_a_fall_that_is_likely_is_looked_at_again(seed: int, next_seed: int) -> None:
    """Tests that a check which can't be sure of a rate says so, and another tells."""
    network = planted(rtt=RTT / 2, scatter=0.5)
    known = replace(network.fabric, confidence=1.0)
    first, second = (probed(slowed(network, 4.0), one) for one in (seed, next_seed))
    found = renewed(known, first)
    assert not found.conclusive
    assert found.fabric is known
    joined = together([first, second])
    assert joined is not None
    sure = renewed(known, joined).fabric
    assert sure.root.children[0].uplink_bytes_per_s < NIC / 2
    assert renewed(known, probed(network, seed)).conclusive


@pytest.mark.parametrize("seed", [0, 8000, 18000, 26000])
def test_a_full_uplink_is_no_slow_card(seed: int) -> None:
    """Tests that hosts behind a link that fell keep their cards' rates.

    In these checks a card's only flow that does not cross the link stalled.
    """
    network = planted()
    known = replace(network.fabric, confidence=1.0)
    found = renewed(known, probed(slowed(network, 5.0), seed)).fabric
    assert found.root.children[0].uplink_bytes_per_s < NIC / 3
    for rack in found.root.children:
        for card in rack.children:
            assert card.uplink_bytes_per_s > 0.7 * NIC
            assert card.downlink_bytes_per_s > 0.7 * NIC
