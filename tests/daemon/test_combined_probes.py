from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated import Planted

from cloudcoll.daemon.combined_probes import (
    PARTS,
    returned,
    together,
    widened,
    with_trips,
)
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import racks
from cloudcoll.probe import Conduct

FABRIC = racks((4, 4, 4), seed=3)
HOSTS = tuple(map(Host, sorted(FABRIC.hosts)))


def probe(hosts: tuple[Host, ...] = HOSTS, seed: int = 1) -> NetworkSnapshot:
    """Return a quick probe of some hosts."""
    network = Planted(FABRIC)
    return network.measure(hosts, network.plan(hosts, "quick", seed, None), Conduct())


def test_a_probe_of_some_hosts_as_one_of_all() -> None:
    """Tests that figures stay with their hosts, and the others are named."""
    some = (HOSTS[7], HOSTS[2], HOSTS[5])
    part = probe(some)
    whole = widened(part, HOSTS, "at work")
    assert whole.hosts == HOSTS
    assert whole.silent == {*whole.failed} == {h.name for h in HOSTS} - {*part.names}
    assert {*whole.failed.values()} == {"at work"}
    for name in ("latency", "bandwidth"):
        few, all_ = getattr(part, name).values, getattr(whole, name).values
        places = [HOSTS.index(host) for host in some]
        assert np.array_equal(all_[np.ix_(places, places)], few, equal_nan=True)
        assert np.isfinite(all_).sum() == np.isfinite(few).sum()


def test_who_is_back() -> None:
    """Tests hosts that a snapshot lacks, and one put together too often to care."""
    kept = widened(probe(HOSTS[:8]), HOSTS, "at work")
    assert not returned(kept, probe(HOSTS[2:6]))
    assert returned(kept, probe(HOSTS[6:]))
    assert not returned(kept, widened(probe(HOSTS[:6]), HOSTS, "at work"))
    kept.metadata["merged"] = [{}] * PARTS  # type: ignore[index]
    assert not returned(kept, probe(HOSTS[6:]))


@pytest.mark.parametrize(
    ("boot", "back"), [("first", False), ("second", True), ("", False)]
)
def test_who_was_rebooted(boot: str, back: bool) -> None:
    """Tests that a host that was started anew is back, one that tells nothing not."""
    kept, later = (
        replace(part, metadata={"agents": {HOSTS[3].name: {"boot_id": boot_id}}})
        for part, boot_id in ((probe(), "first"), (probe(HOSTS[2:6]), boot))
    )
    assert returned(kept, later) == back


def test_probes_in_a_row() -> None:
    """Tests that one stands alone, several are merged, and other hosts' never."""
    first, second = probe(seed=1), probe(seed=2)
    assert together([first]) is None
    merged = together([first, second])
    assert merged is not None
    assert len(merged.rtt.src) == len(first.rtt.src) + len(second.rtt.src)
    assert len(merged.latency_repeats) == 2
    assert together([first, probe(HOSTS[1:])]) is None


def test_round_trips_of_more_probes() -> None:
    """Tests that each pair's samples stay its own, and loads are the first probe's."""
    parts = [probe(seed=seed) for seed in range(3)]
    whole = with_trips(parts[0], parts[1:])
    assert whole.flows is parts[0].flows
    trips = [part.rtt.of(pair) for part in parts for pair in range(len(part.rtt.src))]
    assert len(trips) == len(whole.rtt.src)
    for pair, seconds in enumerate(trips):
        assert np.array_equal(whole.rtt.of(pair), seconds)
