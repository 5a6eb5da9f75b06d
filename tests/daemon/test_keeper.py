from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from simulated import Planted

from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import verdict
from cloudcoll.daemon.beats import cycle
from cloudcoll.daemon.keeper import LEAST_BURST, Keeper
from cloudcoll.daemon.verdict import OrderQuestion, judged
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric
from cloudcoll.probe import Conduct, ProbePlan

pytestmark = pytest.mark.usefixtures("small_search")

NIC = 50e6


@pytest.fixture(autouse=True)
def _no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the best order to begin with: groups are what counts here."""
    monkeypatch.setattr(verdict, "SEARCH_S", 0.0)


def keeper(network: Planted) -> Keeper:
    """Return a keeper of all hosts of a network, that knows nothing of them."""

    def plan(hosts: tuple[Host, ...], seed: int) -> ProbePlan:
        return network.plan(hosts, "quick", seed, None)

    def ask(hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
        names = tuple(host.name for host in hosts)
        sent = build_schedule("bcast", "binomial", len(names), 1 << 20)
        return (OrderQuestion("mine", sent, names, (1,) * len(names)),)

    made = Keeper(network, plan, ask, judged)
    made.turn_to(tuple(map(Host, sorted(network.fabric.hosts))))
    return made


def measured_once(network: Planted) -> Keeper:
    """Return a keeper with a first snapshot of a network in force."""
    kept = keeper(network)
    kept.check(1)
    kept.publish(keep=False)
    return kept


def swapped(fabric: Fabric) -> Fabric:
    """Return the fabric after a host of each of two racks took the other's place."""
    first, second, *rest = fabric.root.children
    (a, *others), (b, *more) = first.children, second.children
    first = replace(first, children=(b, *others))
    second = replace(second, children=(a, *more))
    return replace(fabric, root=replace(fabric.root, children=(first, second, *rest)))


def racks_of(kept: Keeper) -> set[frozenset[str]]:
    return {frozenset(group.hosts) for group in kept.groups}


def test_groups_of_many_hosts_stay_until_one_moves() -> None:
    """Tests that they are told by half of all pairs, once, and again for a move."""
    fabric = racks([16] * 4, nic=NIC, uplink=4 * NIC, seed=2)
    network = Planted(fabric)
    kept = measured_once(network)
    assert racks_of(kept) == {frozenset(r.leaves()) for r in fabric.root.children}
    assert len(network.probed) == 2
    kept.check(2)
    assert len(network.probed) == 3
    # Nothing came of it, and it says nothing of where hosts stand later.
    network.fabric = swapped(fabric)
    kept.check(3)
    assert len(kept.checks) == 1
    assert len(network.probed) == 5
    kept.publish(keep=True)
    now = network.fabric.root.children
    assert racks_of(kept) == {frozenset(rack.leaves()) for rack in now}


@dataclass
class Noted(Planted):
    """A planted network that keeps how it was probed."""

    plans: list[ProbePlan] = field(default_factory=list)
    conducts: list[Conduct] = field(default_factory=list)

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Return what the plan measures."""
        self.plans.append(plan)
        self.conducts.append(conduct)
        return super().measure(hosts, plan, conduct)


def test_the_first_probe_goes_on_until_it_is_sure() -> None:
    """Tests that it asks for groups as `run` does, and no later one does."""
    fabric = racks([4] * 4, nic=NIC, uplink=2 * NIC, seed=2)
    network = Noted(fabric)
    kept = measured_once(network)
    kept.check(2)
    first, second = network.plans
    hosts = tuple(kept.hosts.values())
    assert first.sure_s > network.plan(hosts, "quick", 1, None).sure_s > second.sure_s
    infer, probe = network.conducts[0].infer, kept.snapshot
    assert infer is not None
    assert probe is not None
    found = infer(replace(probe, fabric=None))
    assert len(found.root.children) == 4


@pytest.mark.parametrize(("nic", "most"), [(NIC, 0.02), (1250e6, 0.0)])
def test_a_beat_sends_more_than_a_bucket_holds(nic: float, most: float) -> None:
    """Tests that slow cards are loaded for longer, which is told, and fast ones not."""
    network = Noted(racks([4] * 4, nic=nic, uplink=2 * nic, seed=2))
    kept = measured_once(network)
    (first, *_) = cycle(kept.groups, 0.0, 20.0, 1)
    for load_s in (0.002, 0.0):
        _, _, more_s = kept.beat(first, load_s)
        loaded = [one for one in network.plans[-1].passes if one[0] != "rtt"]
        assert bool(loaded) == bool(load_s)
        assert (0.0 < more_s < most) if load_s and most else more_s == 0.0
        if loaded:
            sent = network.plans[-1].flow_bytes
            assert sent >= max(LEAST_BURST, 0.8 * load_s * nic)


def narrowed(fabric: Fabric, rate: float) -> Fabric:
    """Return the fabric after the link of its first rack fell to a rate."""
    first, *rest = fabric.root.children
    slow = replace(first, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)
    return replace(fabric, root=replace(fabric.root, children=(slow, *rest)))


def test_beats_after_a_check_that_changed_nothing() -> None:
    """Tests that a fall right after it is seen, as rates are over those from before."""
    fabric = racks([4] * 4, nic=NIC, uplink=2 * NIC, seed=2)
    network = Planted(fabric)
    kept = measured_once(network)
    names = {*fabric.root.children[0].leaves()}
    (group,) = (one.name for one in kept.groups if {*one.hosts} == names)
    (beat,) = (b for b in cycle(kept.groups, 0.0, 20.0, 1) if b.group == group)
    usual = [kept.beat(beat, 0.005)[0][f"up {group}"] for _ in range(3)]
    assert max(map(abs, usual)) < 0.2
    kept.check(2)
    assert not kept.publish(keep=True)
    network.fabric = narrowed(fabric, NIC / 2)
    assert kept.beat(beat, 0.005)[0][f"up {group}"] == pytest.approx(-1.4, abs=0.3)


def test_three_checks_make_one_snapshot() -> None:
    """Tests that a slower uplink's rate is that of all three, in the same groups."""
    fabric = racks([16] * 4, nic=NIC, uplink=4 * NIC, seed=2)
    network = Planted(fabric)
    kept = measured_once(network)
    groups = racks_of(kept)
    first = fabric.root.children[0]
    network.fabric = narrowed(fabric, NIC)
    for seed in range(2, 5):
        kept.check(seed, again=seed > 2)
    kept.publish(keep=False)
    assert kept.snapshot is not None
    assert kept.snapshot.fabric is not None
    assert len(kept.snapshot.metadata["merged"]) == 3
    assert racks_of(kept) == groups
    names = {*first.leaves()}
    (rate,) = (
        group.uplink_bytes_per_s
        for group in kept.snapshot.fabric.groups()[0]
        if {*group.leaves()} == names
    )
    assert rate == pytest.approx(NIC, rel=0.15)


def test_few_hosts_are_grouped_anew_each_time() -> None:
    """Tests that a quick probe of all pairs needs no other one, nor old groups."""
    network = Planted(racks((5, 3, 6, 2), nic=NIC, uplink=NIC, seed=2))
    kept = measured_once(network)
    network.fabric = swapped(network.fabric)
    kept.check(2)
    assert len(network.probed) == 2
    kept.publish(keep=True)
    now = network.fabric.root.children
    assert racks_of(kept) == {frozenset(rack.leaves()) for rack in now}


def test_what_was_sent_is_counted() -> None:
    """Tests that the counter has what hosts sent, not the most that plans allow."""
    network = Planted(racks([4] * 4, nic=NIC, uplink=4 * NIC, seed=2))
    kept = keeper(network)
    kept.check(1)
    assert kept.sent == sum(check.metadata["sent_bytes"] for check in kept.checks)
    kept.publish(keep=False)
    (beat, *_) = cycle(kept.groups, 0.0, 60.0, 0)
    before = kept.sent
    kept.beat(beat, 0.005)
    assert kept.sent > before
