from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from simulated import Clock, Planted

from cloudcoll import local_daemon
from cloudcoll.collectives import build_schedule
from cloudcoll.daemon import Settings
from cloudcoll.daemon.keeper import Keeper
from cloudcoll.daemon.responses import answer
from cloudcoll.daemon.service import STALE_S, Around, Daemon
from cloudcoll.daemon.state import RETURNS_S
from cloudcoll.daemon.store import Store
from cloudcoll.daemon.verdict import OrderQuestion, judged
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import map_file
from cloudcoll.hosts import Host
from cloudcoll.measured import snapshot as snapshots
from cloudcoll.measured.snapshot import latest_path, load_snapshot
from cloudcoll.measured.synth import racks
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import load_rankmap

pytestmark = pytest.mark.usefixtures("small_search")

NIC = 50e6
EPOCH = 1.7e9


@dataclass
class World:
    """All around a daemon, and the daemon."""

    network: Planted
    hosts: list[Host]
    clock: Clock = field(default_factory=Clock)
    said: list[str] = field(default_factory=list)
    # Beats so often as of a thousand hosts: days go by in seconds.
    settings: Settings = field(default_factory=lambda: Settings(every=600.0))
    algorithm: str = "ring"
    seed: int = 1

    def members(self) -> tuple[Host, ...]:
        if not self.hosts:
            raise UsageError("no such file")
        return tuple(self.hosts)

    def ask(self, hosts: tuple[Host, ...]) -> tuple[OrderQuestion, ...]:
        names = tuple(host.name for host in hosts)
        sent = build_schedule("allreduce", self.algorithm, len(names), 1 << 24)
        return (OrderQuestion("mine", sent, names, (1,) * len(names)),)

    def daemon(self, store: Store) -> Daemon:
        def plan(hosts: tuple[Host, ...], seed: int) -> Any:
            return self.network.plan(hosts, "quick", seed, None)

        around = Around(
            self.members,
            local_daemon.leased_hosts,
            self.said.append,
            self.clock,
            lambda: EPOCH + self.clock(),
        )
        return Daemon(
            Keeper(self.network, plan, self.ask, judged),
            around,
            self.settings,
            store,
            seed=self.seed,
        )

    def run(self, daemon: Daemon, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += max(daemon.turn(), 0.01)


@pytest.fixture
def world() -> World:
    """Four racks, whose names are shuffled over them."""
    fabric = racks((4, 4, 4, 4), nic=NIC, uplink=NIC, seed=3)
    return World(Planted(fabric), [Host(name) for name in sorted(fabric.hosts)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    made = Store(tmp_path / "history.db")
    yield made
    made.close()


def status(daemon: Daemon) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer("/v1/status", daemon.view()).body)
    return told


def degraded(fabric: Fabric, factor: float) -> Fabric:
    """Return the fabric with the uplink of its second rack slower by a factor."""

    def slower(node: Node) -> Node:
        rate = node.uplink_bytes_per_s / factor
        return replace(node, uplink_bytes_per_s=rate, downlink_bytes_per_s=rate)

    first, second, *rest = fabric.root.children
    children = (first, slower(second), *rest)
    return replace(fabric, root=replace(fabric.root, children=children))


def test_the_first_probe_puts_files_where_run_looks(world: World, store: Store) -> None:
    """Tests the snapshot of the host set, and the map of the daemon's question."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    kept = load_snapshot(latest_path(tuple(world.hosts)))
    rank_map = load_rankmap(map_file(kept.digest, "mine"))
    assert rank_map.predicted["cloudcoll"] < 0.5 * rank_map.predicted["given"]
    assert answer("/v1/map?question=mine", daemon.view()).status == 200
    assert (
        answer("/v1/snapshot", daemon.view()).body
        == latest_path(tuple(world.hosts)).read_bytes()
    )


def test_what_is_said_can_be_asked_for(world: World, store: Store) -> None:
    """Tests a question asked at the moment the orders are said to be in force."""

    class Answered(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if "in force" in line:
                told = status(daemon)
                digests.append([one["snapshot"] for one in told["maps"]])
                assert told["published"]

    digests: list[list[str]] = []
    world.said = Answered()
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    assert digests == [[load_snapshot(latest_path(tuple(world.hosts))).digest]]


@pytest.mark.slow
def test_a_degraded_uplink_brings_another_order(world: World, store: Store) -> None:
    """Tests racks of two hosts' rate each, until one has a quarter of it.

    Of racks of one size the order in force would stay the best one there is.
    """
    world.network.fabric = racks((6, 4, 4, 2), nic=NIC, uplink=2 * NIC, seed=3)
    world.algorithm = "rabenseifner"
    daemon = world.daemon(store)
    world.run(daemon, 3 * 3600.0)
    before = status(daemon)
    assert (before["phase"], before["counts"]["maps"]) == ("calm", 1)
    world.network.fabric = degraded(world.network.fabric, 4.0)
    world.run(daemon, 2 * 600.0)
    after = status(daemon)
    assert after["counts"]["maps"] == 2
    (first, *_, last) = after["published"]
    assert (first["reason"], first["kept"], first["gain"]) == (
        "hosts are new",
        False,
        0,
    )
    assert not last["kept"]
    assert last["gain"] > 0.3
    assert {"up", "down", "map"} & {*last["reason"].split()}
    best, last = (
        load_rankmap(map_file(one["digest"], "mine")) for one in (after, before)
    )
    kept = load_snapshot(latest_path(tuple(world.hosts)))
    assert kept.digest == after["digest"]
    assert world.ask(tuple(world.hosts))[0].found(kept, last).gain > 0.3
    assert world.ask(tuple(world.hosts))[0].found(kept, best).gain == 0.0


def test_a_worse_network_of_the_same_order(world: World, store: Store) -> None:
    """Tests that figures follow the network where no order makes it better."""
    daemon = world.daemon(store)
    world.run(daemon, 3 * 3600.0)
    before = status(daemon)
    world.network.fabric = degraded(world.network.fabric, 4.0)
    world.run(daemon, 2 * 600.0)
    after = status(daemon)
    assert after["counts"]["maps"] == before["counts"]["maps"] == 1
    assert after["maps"][0]["order"] == before["maps"][0]["order"]
    slower = after["maps"][0]["predicted"]["cloudcoll"]
    assert slower > 2 * before["maps"][0]["predicted"]["cloudcoll"]


def test_nothing_changes_in_a_day(world: World, store: Store) -> None:
    """Tests that noise alone publishes nothing, and keeps the snapshot confirmed."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    digest = status(daemon)["digest"]
    world.run(daemon, 80000.0)
    assert status(daemon)["digest"] == digest
    assert daemon.view().fresh
    assert len(store.since(0.0, 10**6)) > 80000 / 600 * 4 * 3


def test_a_restart_takes_up_where_the_last_ended(world: World, store: Store) -> None:
    """Tests that a daemon that died is followed by one that need not probe."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    first = status(daemon)
    probes = len(world.network.probed)
    again = world.daemon(store)
    again.look()
    assert status(again)["maps"][0]["order"] == first["maps"][0]["order"]
    assert status(again)["digest"] == first["digest"]
    assert again.view().fresh
    assert len(world.network.probed) == probes


def test_a_damaged_snapshot_is_measured_anew(world: World, store: Store) -> None:
    """Tests that a file that is not intact costs one line, and a probe."""
    world.run(world.daemon(store), 1.0)
    path = latest_path(tuple(world.hosts))
    path.write_bytes(path.read_bytes()[:-1])
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    assert any("truncated" in line for line in world.said)
    assert load_snapshot(path).digest == status(daemon)["digest"]


def test_hosts_that_run_a_job_are_not_probed(world: World, store: Store) -> None:
    """Tests a lease as `run` takes it: none of its hosts is met while it lasts."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    world.network.probed.clear()
    names = [host.name for host in world.hosts[:8]]
    lease = local_daemon.take_lease(names)
    world.run(daemon, 3600.0)
    assert world.network.probed
    assert not set(names) & {name for probe in world.network.probed for name in probe}
    os.close(lease)
    world.run(daemon, 3600.0)
    assert set(names) <= {name for probe in world.network.probed for name in probe}


@pytest.mark.slow
def test_a_first_snapshot_while_hosts_are_busy(world: World, store: Store) -> None:
    """Tests that free hosts are measured, others named, and added in their turn."""
    names = [host.name for host in world.hosts]
    first, second = (local_daemon.take_lease(part) for part in (names[:3], names[3:6]))
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    kept = load_snapshot(latest_path(tuple(world.hosts)))
    assert kept.silent == {*names[:6]} == {*kept.failed}
    assert len(status(daemon)["maps"][0]["order"]) == 16
    assert daemon.view().fresh
    os.close(first)
    world.run(daemon, 1300.0)
    kept = load_snapshot(latest_path(tuple(world.hosts)))
    assert kept.silent == {*names[3:6]} == {*kept.failed}
    told = {host["name"]: host["failed"] for host in status(daemon)["hosts"]}
    assert {name for name, why in told.items() if "runs a job" in why} == {*names[3:6]}
    os.close(second)
    world.run(daemon, RETURNS_S + 1300.0)
    assert not load_snapshot(latest_path(tuple(world.hosts))).silent
    assert not any(host["failed"] for host in status(daemon)["hosts"])


def test_a_list_of_hosts_that_grows_and_breaks(world: World, store: Store) -> None:
    """Tests that another set is measured at once, and a broken list keeps the last."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    gone = world.hosts.pop()
    world.run(daemon, 10.0)
    assert gone.name not in {host["name"] for host in status(daemon)["hosts"]}
    assert len(status(daemon)["maps"][0]["order"]) == 15
    rest, world.hosts = world.hosts, []
    world.run(daemon, 700.0)
    assert status(daemon)["trouble"] == "no such file"
    assert daemon.view().fresh
    world.hosts = rest
    world.run(daemon, 700.0)
    assert status(daemon)["trouble"] == ""
    assert world.said.count("no such file") == 1


def test_hosts_of_which_there_is_no_order(world: World, store: Store) -> None:
    """Tests that a list that makes no sense is told, and the last one kept."""
    daemon = world.daemon(store)
    world.run(daemon, 1.0)
    world.algorithm = "no-such"
    world.hosts.pop()
    world.run(daemon, 1300.0)
    assert "no-such" in status(daemon)["trouble"]
    assert len(status(daemon)["hosts"]) == 16
    assert daemon.view().fresh


def test_a_host_that_does_not_answer(world: World, store: Store) -> None:
    """Tests that it is named, and measured once it is back."""
    daemon = world.daemon(store)
    lost = world.hosts[5].name
    world.network.down.add(lost)
    world.run(daemon, 1.0)
    told = {host["name"]: host["failed"] for host in status(daemon)["hosts"]}
    assert told[lost] == "no answer"
    assert sum(map(bool, told.values())) == 1
    world.network.down.clear()
    world.run(daemon, 3 * 600.0)
    assert not any(host["failed"] for host in status(daemon)["hosts"])
    assert lost not in load_snapshot(latest_path(tuple(world.hosts))).failed


def test_nobody_answers(world: World, store: Store) -> None:
    """Tests that a network that is away is tried again, and not vouched for."""
    world.network.down.update(host.name for host in world.hosts)
    daemon = world.daemon(store)
    assert "confirmed" not in answer("/metrics", daemon.view()).body.decode()
    world.run(daemon, 600.0)
    assert "fewer than two" in status(daemon)["trouble"]
    assert 5 <= status(daemon)["counts"]["failures"] <= 11
    assert answer("/healthz", daemon.view()).status == 503
    world.network.down.clear()
    world.run(daemon, 120.0)
    assert answer("/healthz", daemon.view()).status == 200
    world.network.down.update(host.name for host in world.hosts)
    world.run(daemon, STALE_S + 600.0)
    assert answer("/v1/map", daemon.view()).status == 503


def test_the_system_refuses(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that no descriptors, and a stale folder, are told and gone through."""
    daemon = world.daemon(store)
    world.run(daemon, 600.0)
    for place, name in ((world.network, "measure"), (Path, "glob")):
        with monkeypatch.context() as refusing:
            refusing.setattr(place, name, _refused)
            world.run(daemon, 600.0)
            assert "Too many open files" in status(daemon)["trouble"]
        world.run(daemon, 600.0)
        assert status(daemon)["trouble"] == ""


def _refused(*arguments: object, **named: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_an_order_that_cannot_be_put_in_force(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that what was checked is checked again soon, not the next day."""
    world.settings = replace(world.settings, refresh=600.0)
    daemon = world.daemon(store)
    world.run(daemon, 60.0)
    with monkeypatch.context() as refusing:
        refusing.setattr(Keeper, "publish", _refused)
        world.run(daemon, 570.0)
        assert "Too many open files" in status(daemon)["trouble"]
    world.run(daemon, 60.0)
    told = status(daemon)
    assert (told["phase"], told["trouble"]) == ("calm", "")
    assert len(told["published"]) == 2


def test_a_full_disk(
    world: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that what can't be written is said, and written when there is room."""
    with monkeypatch.context() as full:
        full.setattr(snapshots, "write_atomic", _full)
        full.setattr(store, "add", _full)
        daemon = world.daemon(store)
        world.run(daemon, 1200.0)
        assert "No space" in status(daemon)["trouble"]
        assert not latest_path(tuple(world.hosts)).exists()
    world.run(daemon, 1200.0)
    assert status(daemon)["trouble"] == ""


def _full(*arguments: object) -> None:
    raise UnusableError("cannot write: No space left on device")


@pytest.mark.slow
def test_the_background_keeps_to_its_share(world: World, store: Store) -> None:
    """Tests what a host sends and gets, as planned, in two days: at most 0.1 %."""
    daemon = world.daemon(store)
    loads = dict.fromkeys((host.name for host in world.hosts), 0.0)
    measure = world.network.measure

    def counted(hosts: tuple[Host, ...], plan: Any, conduct: Any) -> Any:
        rounds = sum(count for kind, count, _ in plan.passes if kind != "rtt")
        for host in hosts:
            loads[host.name] += rounds * min(plan.flow_bytes, plan.load_s * NIC)
        return measure(hosts, plan, conduct)

    world.network.measure = counted  # type: ignore[method-assign]
    world.run(daemon, 2 * 86400.0)
    assert 0.0 < max(loads.values()) <= 0.001 * 2 * 86400.0 * NIC
