from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from simulated import Clock, Planted

from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import Settings
from cloudcoll.daemon.combined_probes import together
from cloudcoll.daemon.keeper import Keeper
from cloudcoll.daemon.service import Around, Daemon
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.verdict import OrderQuestion, judged
from cloudcoll.daemon.view import Trust
from cloudcoll.hosts import Host
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path, load_snapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric
from cloudcoll.probe import Conduct, ProbePlan

pytestmark = pytest.mark.usefixtures("small_search")

NIC = 50e6
RTT = 250e-6
SSH_S = 2.5
"""That logging in to all hosts takes, of each probe."""
JUDGE_S = 4.0
"""That a busy machine takes to work out an order."""


@dataclass
class Slow(Planted):
    """A planted network of which probes take time, as by ssh."""

    clock: Clock = field(default_factory=Clock)

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Return what the plan measures, once that has taken its time."""
        self.clock.now += SSH_S + plan.most_seconds
        return super().measure(hosts, plan, conduct)


@pytest.fixture
def network() -> Slow:
    """Four racks that loaded rounds alone show, by TCP that shares hardly evenly."""
    fabric = racks((5, 3, 5, 3), nic=NIC, uplink=NIC, rtt=RTT, rack_rtt=RTT, seed=3)
    return Slow(fabric, 0.05, 0.2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made = Store(tmp_path / "history.db")
    yield made
    made.close()


def hosts_of(network: Slow) -> tuple[Host, ...]:
    return tuple(map(Host, sorted(network.fabric.hosts)))


def daemon_of(
    network: Slow,
    store: Store,
    settings: Settings,
    *,
    algorithm: str = "ring",
    busy: frozenset[str] = frozenset(),
) -> Daemon:
    """Return a daemon of all hosts; those of `busy` begin a job in each probe."""
    hosts, begin = hosts_of(network), len(network.probed)

    def plan(hosts: tuple[Host, ...], seed: int) -> ProbePlan:
        return network.plan(hosts, "quick", seed, None)

    def ask(hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
        names = tuple(host.name for host in hosts)
        sent = build_schedule("allreduce", algorithm, len(names), 1 << 24)
        return (OrderQuestion("mine", sent, names, (1,) * len(names)),)

    def judge(case: object) -> object:
        network.clock.now += JUDGE_S
        return judged(case)  # type: ignore[arg-type]

    def at_work() -> frozenset[str]:
        nonlocal begin
        begin, before = len(network.probed), begin
        return busy if begin > before else frozenset()

    now = time.time()
    around = Around(
        lambda: hosts,
        at_work,
        lambda line: None,
        network.clock,
        lambda: now + network.clock(),
    )
    keeper = Keeper(network, plan, ask, judge)  # type: ignore[arg-type]
    return Daemon(keeper, around, settings, store, seed=5)


def run(daemon: Daemon, clock: Clock, seconds: float) -> None:
    end = clock.now + seconds
    while clock.now < end:
        clock.now += max(daemon.turn(), 0.01)


def stored(network: Slow, age: float = 0.0) -> NetworkSnapshot:
    """Return a snapshot of four tournaments, stored as ``cloudcoll probe`` does."""
    hosts = hosts_of(network)
    quiet = replace(network, busy=set())
    both = [
        quiet.measure(hosts, network.plan(hosts, "quick", seed, None), Conduct())
        for seed in (1, 2, 3, 4)
    ]
    whole = together(both)
    assert whole
    made = whole.with_fabric(infer_fabric(whole))
    assert made.fabric
    assert made.fabric.confidence > 0.95
    return replace(made, created=time.time() - age).save(latest_path(hosts))


def groups(snapshot: NetworkSnapshot) -> set[frozenset[str]]:
    assert snapshot.fabric
    return {frozenset(node.leaves()) for node in snapshot.fabric.groups()[0]}


def order(daemon: Daemon) -> tuple[str, ...]:
    return daemon.view().maps[0].rank_map.order


def latest(network: Slow) -> NetworkSnapshot:
    return load_snapshot(latest_path(hosts_of(network)))


@pytest.mark.parametrize("age", [0.0, pytest.param(7200.0, marks=pytest.mark.slow)])
def test_probes_of_busy_hosts_replace_no_good_snapshot(
    network: Slow, store: Store, age: float
) -> None:
    """Tests that four racks stay, and the order, whatever a daemon sees for an hour.

    The snapshot may be one that was too old to be given to anyone.
    """
    good = stored(network, age)
    daemon = daemon_of(network, store, Settings(refresh=1200.0))
    daemon.look()
    first = order(daemon)
    network.busy.update(sorted(network.fabric.hosts)[::2])
    run(daemon, network.clock, 3700.0)
    assert groups(latest(network)) == groups(good)
    assert order(daemon) == first
    trust = daemon.view().trust
    assert trust
    assert trust.groups == 4
    assert trust.confidence > 0.95
    assert daemon.view().fresh


@pytest.mark.slow
def test_the_users_own_probe_is_taken_up(network: Slow, store: Store) -> None:
    """Tests that a surer snapshot is in force at once, and a worse one is not."""
    daemon = daemon_of(network, store, Settings())
    run(daemon, network.clock, 30.0)
    good = stored(network)
    run(daemon, network.clock, 30.0)
    assert daemon.view().digest == good.digest
    hosts = hosts_of(network)
    plan = replace(network.plan(hosts, "quick", 7, None), passes=(("rtt", 15, False),))
    poor = network.measure(hosts, plan, Conduct())
    replace(poor, fabric=infer_fabric(poor)).save(latest_path(hosts))
    run(daemon, network.clock, 30.0)
    assert groups(latest(network)) == groups(good)
    assert latest(network).digest == daemon.view().digest


@pytest.mark.slow
def test_a_job_that_begins_under_a_probe_spoils_it(network: Slow, store: Store) -> None:
    """Tests that what was measured beside it is forgotten, and the status says so."""
    good = stored(network)
    names = sorted(network.fabric.hosts)
    daemon = daemon_of(
        network, store, Settings(refresh=300.0), busy=frozenset(names[:3])
    )
    run(daemon, network.clock, 400.0)
    assert latest(network).digest == good.digest
    trust = daemon.view().trust
    assert trust
    assert trust.refused == "3 of 16 hosts were busy"
    assert trust.measured == good.created


def fallen(fabric: Fabric, factor: float) -> Fabric:
    """Return the fabric with the first rack's uplink slower by a factor."""
    first, *others = fabric.root.children
    rate = first.uplink_bytes_per_s / factor
    first = replace(first, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)
    return replace(fabric, root=replace(fabric.root, children=(first, *others)))


@pytest.mark.parametrize(
    ("late", "seed"),
    [
        (0, 3),
        (0, 4),
        *(pytest.param(2, seed, marks=pytest.mark.slow) for seed in (3, 4)),
    ],
)
def test_an_uplink_at_a_fifth_is_answered_within_a_minute(
    network: Slow, store: Store, late: int, seed: int
) -> None:
    """Tests the default settings, whenever in a cycle it falls, with ssh's seconds.

    Nor is a card behind that uplink taken for the slow link.
    """
    wide = racks(
        (4, 4, 4, 4), nic=NIC, uplink=2 * NIC, rtt=RTT, rack_rtt=RTT, seed=seed
    )
    network.fabric = wide
    stored(network)
    daemon = daemon_of(network, store, Settings(), algorithm="rabenseifner")
    run(daemon, network.clock, 300.0 + 5.0 * late)
    assert daemon.view().counts["maps"] == 0
    before = order(daemon)
    network.fabric = fallen(network.fabric, 5.0)
    begin = network.clock.now
    while order(daemon) == before and network.clock.now < begin + 300.0:
        run(daemon, network.clock, 0.1)
    assert network.clock.now - begin <= 60.0


def test_words_of_what_is_trusted() -> None:
    """Tests a snapshot, its racks, and a probe that was not taken, in a line."""
    noon = 1.7e9
    trust = Trust(noon, 0.98, 4, noon + 1680.0, "3 of 16 hosts were busy")
    assert trust.words == (
        "snapshot of 2023-11-14 22:13 UTC (4 racks, 98% sure); the probe of "
        "2023-11-14 22:41 UTC was not taken: 3 of 16 hosts were busy"
    )
    assert replace(trust, refused="").words.endswith("22:41 UTC agrees")
    assert Trust(noon, math.nan, 1).words == "snapshot of 2023-11-14 22:13 UTC (1 rack)"
