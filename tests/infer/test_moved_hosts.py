from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.daemon.changes import still_stands
from cloudcoll.infer import infer_fabric
from cloudcoll.measured.samples import no_rtt
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import Fabric, Node

NIC = 50e6
PLANTED = racks((5, 3, 6, 2), nic=NIC, uplink=NIC, seed=4)


def changed(first: Node) -> Fabric:
    """Return the planted fabric with another first rack."""
    children = (first, *PLANTED.root.children[1:])
    return replace(PLANTED, root=replace(PLANTED.root, children=children))


def moved() -> Fabric:
    """Return the planted fabric with a host of the first rack in the second one."""
    first, second, *rest = PLANTED.root.children
    host, *others = first.children
    first = replace(first, children=tuple(others))
    second = replace(second, children=(*second.children, host))
    return replace(PLANTED, root=replace(PLANTED.root, children=(first, second, *rest)))


@pytest.mark.many
@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_no_host(seed: int) -> None:
    """Tests a fabric against new round trips of the same one."""
    known = infer_fabric(observe(PLANTED, rounds=8, noise=0.1, seed=seed))
    assert still_stands(known, observe(PLANTED, noise=0.1, seed=seed + 100))


def test_a_host_elsewhere_a_late_one_and_a_longer_link() -> None:
    """Tests what of a network has to change for groups to be looked for anew."""
    rack = PLANTED.root.children[0]
    late = replace(rack.children[0], latency_s=1e-3)
    slow = replace(rack, children=(late, *rack.children[1:]))
    far = replace(rack, latency_s=rack.latency_s + 1e-3)
    for now in (moved(), changed(slow), changed(far)):
        assert not still_stands(PLANTED, observe(now, noise=0.1, seed=1))


def test_hosts_of_one_switch_may_be_nearer() -> None:
    """Tests two that share a machine: the tree knows nothing below its racks."""
    seen = observe(PLANTED, noise=0.1, seed=1)
    names = [*PLANTED.root.children[0].leaves()][:2]
    places = [seen.names.index(name) for name in names]
    pair = int(
        np.flatnonzero(np.isin(seen.rtt.src, places) & np.isin(seen.rtt.dst, places))[0]
    )
    seen.rtt.of(pair)[:] /= 3
    assert still_stands(PLANTED, seen)


@pytest.mark.parametrize(
    ("factor", "across", "stands"),
    [
        # Nearer by a fifth may be chance, by three tenths not, but in a rack.
        *((0.8, True, True), (0.7, True, False), (0.7, False, True)),
        # Longer by a fifth may be, too; by three tenths for most pairs not.
        *((1.2, True, True), (1.3, True, False)),
    ],
)
def test_how_much_another_round_trip_may_be(
    factor: float, across: bool, stands: bool
) -> None:
    """Tests a quarter less or more, of pairs in racks or across."""
    seen = observe(PLANTED, noise=0.0)
    place = {
        host: i
        for i, rack in enumerate(PLANTED.root.children)
        for host in rack.leaves()
    }
    rack = np.array([place[name] for name in seen.names])
    hit = (rack[seen.rtt.src] != rack[seen.rtt.dst]) == across
    counts = np.diff(seen.rtt.ends, prepend=0)
    seconds = seen.rtt.seconds * np.repeat(np.where(hit, factor, 1.0), counts)
    now = replace(seen, rtt=replace(seen.rtt, seconds=seconds))
    assert still_stands(PLANTED, now) == stands


@pytest.mark.parametrize(("longer", "stands"), [(2, True), (3, False)])
def test_half_of_a_hosts_round_trips_may_be_longer(longer: int, stands: bool) -> None:
    """Tests two or three of the four round trips of one host of five."""
    known = racks([5])
    seen = observe(known, noise=0.0)
    hit = (seen.rtt.src == 0) & (seen.rtt.dst <= longer)
    counts = np.diff(seen.rtt.ends, prepend=0)
    seconds = seen.rtt.seconds * np.repeat(np.where(hit, 2.0, 1.0), counts)
    now = replace(seen, rtt=replace(seen.rtt, seconds=seconds))
    assert still_stands(known, now) == stands


def test_what_was_not_measured_says_nothing() -> None:
    """Tests a snapshot without a round trip, and a fabric without latencies."""
    silent = observe(PLANTED, rounds=4, seed=1)
    assert still_stands(PLANTED, replace(silent, rtt=no_rtt()))
    flat = Fabric(Node("core", tuple(map(Node, PLANTED.hosts))))
    assert still_stands(flat, silent)
