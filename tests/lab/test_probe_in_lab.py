from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import cloudcoll
from cloudcoll import lab as labs
from cloudcoll.errors import UsageError
from cloudcoll.files import lab_origin
from cloudcoll.infer import groups_found, infer_fabric
from cloudcoll.infer.prior import GROUP
from cloudcoll.lab.state import Lab
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path, load_snapshot
from cloudcoll.probe import Conduct, plan_probes, run_probe
from cloudcoll.probe.labelled import cut_by_labels
from cloudcoll.probe.shell import LabShell

pytestmark = pytest.mark.lab


Start = Callable[[labs.LabSpec], Lab]


@pytest.fixture
def narrow_lab(shared_lab: Start, far_racks: Callable[..., labs.LabSpec]) -> Lab:
    """Uneven racks, whose uplinks carry what two of their hosts can send."""
    return shared_lab(far_racks((4, 3, 2), nic=12.5e6, uplink=25e6, seed=5))


@pytest.fixture
def small_lab(shared_lab: Start, far_racks: Callable[..., labs.LabSpec]) -> Lab:
    """Two racks of three hosts."""
    return shared_lab(far_racks((3, 3), seed=3))


def probe(
    lab: Lab, progress: Callable[[int, int], None] | None = None, *, loads: int = 1
) -> NetworkSnapshot:
    """Measure all round trips, then some rounds under load."""
    plan = plan_probes(lab.hosts, concurrency=1)
    passes = tuple(
        (kind, rounds if kind == "rtt" else loads, turned)
        for kind, rounds, turned in plan.passes
    )
    # Slots long enough for a machine that has other things to do.
    plan = replace(plan, passes=passes, rtt_s=0.08, sure_s=0.0)
    shell, conduct = LabShell(str(lab.ssh)), Conduct(progress=progress)
    return run_probe(lab.hosts, plan, shell, conduct)


def rack_of(lab: Lab) -> list[int]:
    """Return the planted rack of each host, by position."""
    racks = {name: i for i, group in enumerate(lab.groups) for name in group}
    return [racks[host.name] for host in lab.hosts]


def test_whoever_measured_a_lab_has_left_it(
    small_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that what a program measures next is not taken for the lab's."""
    monkeypatch.delenv("CLOUDCOLL_LAB", raising=False)
    with pytest.raises(UsageError, match="mode"):
        cloudcoll.measure(via="lab", lab=small_lab.name, mode="no such mode")
    assert "CLOUDCOLL_LAB" not in os.environ


@pytest.mark.usefixtures("patient_probes")
def test_what_is_measured_from_outside_belongs_to_the_lab(
    small_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the snapshot is in the lab's folder, and says what the lab is like."""
    monkeypatch.delenv("CLOUDCOLL_LAB", raising=False)
    found = cloudcoll.measure(via="lab", lab=small_lab.name, mode="quick")
    kept = latest_path(small_lab.hosts, small_lab.directory)
    assert kept.is_relative_to(small_lab.directory)
    assert load_snapshot(kept).digest == found.digest
    assert found.metadata["lab"] == lab_origin(small_lab.directory)["lab"]
    assert not latest_path(small_lab.hosts).exists()


def cards_sent(lab: Lab) -> int:
    """Return the bytes that all hosts' cards have sent, headers included."""
    total = 0
    for host in lab.hosts:
        argv = [str(lab.ssh), host.name, "cat /proc/net/dev"]
        told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for line in told.splitlines()[2:]:
            card, _, counters = line.partition(":")
            if card.strip() != "lo":
                total += int(counters.split()[8])
    return total


Measured = tuple[Lab, NetworkSnapshot, int]


@pytest.fixture(scope="module")
def measured_before() -> list[Measured]:
    """Keep for this file what `measured` has found."""
    return []


@pytest.fixture
def measured(small_lab: Lab, measured_before: list[Measured]) -> Measured:
    """Return the small lab, what a probe of it finds, and what cards sent for it."""
    if not measured_before:
        before = cards_sent(small_lab)
        snapshot = probe(small_lab, loads=5)
        carried = cards_sent(small_lab) - before
        measured_before.append((small_lab, snapshot, carried))
    return measured_before[0]


@pytest.mark.alone
def test_latency_and_load_show_the_racks(measured: Measured) -> None:
    """Tests that RTTs tell racks apart and flows share their uplink."""
    lab, snapshot, _ = measured
    assert snapshot.failed == {}
    racks = np.array(rack_of(lab))
    same = racks[:, None] == racks[None, :]
    off_diagonal = ~np.eye(len(racks), dtype=bool)
    rtt = snapshot.latency.values
    # Whom others' work starved of CPU, time and again, has no latency or a long one.
    starved = snapshot.metadata["starved"]["meetings"]
    assert np.isfinite(rtt[off_diagonal]).sum() >= 6 * 5 - 2 * starved
    within = np.nanquantile(rtt[same & off_diagonal], 0.25)
    assert within < 400e-6 < np.nanmin(rtt[~same])
    # No flow is faster than a card, whatever the queues hold.
    rate = snapshot.bandwidth.values
    assert np.nanmax(rate) < 1.2 * 400e6 / 8


@pytest.mark.alone
def test_what_was_sent_is_what_cards_carried(measured: Measured) -> None:
    """Tests that hosts report their payload: headers and acknowledgements are more."""
    _, snapshot, carried = measured
    sent = snapshot.metadata["sent_bytes"]
    assert snapshot.flows.window_bytes.sum() < sent < carried
    # Of 1514 bytes in a frame 1448 are payload.
    assert sent == pytest.approx(carried * 1448 / 1514, rel=0.05)


@pytest.mark.usefixtures("patient_probes")
def test_a_host_killed_on_the_way(small_lab: Lab) -> None:
    """Tests that a host that falls silent costs its own row and column."""
    victim = 2

    def progress(done: int, _: int) -> None:
        if done == 3:
            labs.kill(small_lab, small_lab.hosts[victim].name)

    snapshot = probe(small_lab, progress)
    assert list(snapshot.failed) == [small_lab.hosts[victim].name]
    live = [i for i in range(6) if i != victim]
    measured = np.isfinite(snapshot.latency.values)
    assert not measured[victim].any()
    assert measured[np.ix_(live, live)].sum() == 5 * 4


@pytest.mark.alone
def test_one_direction_dropped(small_lab: Lab) -> None:
    """Tests that a host that hears nothing is in the result as lost packets."""
    deaf = 1
    labs.drop(small_lab, small_lab.hosts[deaf].name, "in")
    snapshot = probe(small_lab)
    assert snapshot.failed == {}
    pairs = zip(snapshot.rtt.src, snapshot.rtt.dst, strict=True)
    loss = [float(snapshot.loss[src, dst]) for src, dst in pairs if deaf in (src, dst)]
    # Whom others' work starved of CPU, time and again, sent nothing to lose.
    starved = snapshot.metadata["starved"]["meetings"]
    assert len(loss) == 5
    assert np.unique(np.array(loss)[np.isfinite(loss)]) == 1.0
    assert np.isfinite(loss).sum() >= 5 - starved
    others = [i for i in range(6) if i != deaf]
    measured = np.isfinite(snapshot.latency.values)
    assert measured[np.ix_(others, others)].sum() >= 5 * 4 - 2 * starved


@pytest.mark.alone
def test_lost_packets_leave_the_latency(small_lab: Lab) -> None:
    """Tests that 2 % of loss is counted, and not taken for latency."""
    lossy = 0
    labs.lose(small_lab, small_lab.hosts[lossy].name, 0.02)
    snapshot = probe(small_lab)
    assert np.nansum(snapshot.loss[lossy]) + np.nansum(snapshot.loss[:, lossy]) > 0
    # Waiting for what never comes takes at least 10 ms.
    assert np.nanmax(snapshot.latency.values[lossy]) < 5e-3


@pytest.mark.alone
def test_a_wrong_label_is_named(small_lab: Lab) -> None:
    """Tests a probe cut by labels, of which two are each other's."""
    groups = [list(names) for names in small_lab.groups]
    groups[0][0], groups[1][0] = groups[1][0], groups[0][0]
    said = {name: f"said-{i}" for i, names in enumerate(groups) for name in names}
    hosts = tuple(replace(h, labels={GROUP: said[h.name]}) for h in small_lab.hosts)
    plan = cut_by_labels(plan_probes(hosts, concurrency=1), hosts)
    plan = replace(plan, rtt_s=0.08)
    fabric = infer_fabric(run_probe(hosts, plan, LabShell(str(small_lab.ssh))))
    found = {frozenset(node.leaves()) for node in fabric.groups()[0]}
    assert found == {frozenset(names) for names in small_lab.groups}
    named = {line.split()[2] for line in fabric.warnings if "labels put" in line}
    assert named == {groups[0][0], groups[1][0]}


@pytest.mark.alone
@pytest.mark.slow
def test_rounds_that_fill_the_uplinks(narrow_lab: Lab) -> None:
    """Tests that each uplink's rounds grow to its rate, both ways, and no further."""
    plan = plan_probes(narrow_lab.hosts, concurrency=1)
    plan = replace(plan, rtt_s=0.08, sure_s=0.0, uplink_s=8.0, uplink_flows=100)
    transport = LabShell(str(narrow_lab.ssh))
    snapshot = run_probe(narrow_lab.hosts, plan, transport, infer=infer_fabric)
    told = snapshot.metadata["uplinks"]
    assert told["complete"]
    flows = snapshot.flows
    racks = np.array(rack_of(narrow_lab))
    chosen = (flows.round >= told["first"]) & (racks[flows.src] != racks[flows.dst])
    for rack in range(3):
        for end in (flows.src, flows.dst):
            mine = chosen & (racks[end] == rack)
            rates = np.bincount(flows.round[mine], flows.bytes_per_s[mine])
            assert rates.max() == pytest.approx(200e6 / 8, rel=0.15)


@pytest.mark.alone
@pytest.mark.slow
def test_behind_policers_transfers_are_paced(
    shared_lab: Start, far_racks: Callable[..., labs.LabSpec]
) -> None:
    """Tests real policers, behind which TCP mostly waits: paced transfers get through.

    At least in a rack, where they got a fiftieth of the card before.
    """
    policed = shared_lab(
        far_racks((4, 4), nic=12.5e6, uplink=25e6, seed=5, preset="policed")
    )
    plan, shell = plan_probes(policed.hosts), LabShell(str(policed.ssh))
    snapshot = run_probe(policed.hosts, plan, shell, infer=groups_found)
    flows, rack = snapshot.flows, np.array(rack_of(policed))
    assert flows.paced
    inside = rack[flows.src] == rack[flows.dst]
    rates = np.nan_to_num(flows.bytes_per_s)
    assert np.median(rates[inside]) > 12.5e6 / 5
