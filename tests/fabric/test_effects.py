from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from cloudcoll.fabric.effects import host_delays
from cloudcoll.fabric.grouping import complete
from cloudcoll.fabric.measured import measured
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.fabric.tree import Fabric

UNEVEN = [5, 3, 6, 2]


def trips(
    fabric: Fabric, slow: Mapping[int, float], noise: float, seed: int
) -> npt.NDArray[np.float64]:
    """Return the round trips between hosts, some of which answer late."""
    seen = measured(observe(fabric, noise=noise, seed=seed))
    delays = np.zeros(len(seen.names))
    delays[list(slow)] = list(slow.values())
    return complete(seen.rtt + np.add.outer(delays, delays))


@pytest.mark.parametrize("noise", [0.05, 0.25])
@pytest.mark.parametrize("delay", [100e-6, 400e-6, 5e-3])
@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], UNEVEN, [1, 4, 8, 3]], ids=str)
def test_the_delay_of_a_slow_host_is_found(
    sizes: list[int], delay: float, noise: float
) -> None:
    """Tests that one late host of a rack gets its delay and no other does."""
    for seed in range(5):
        planted = racks(sizes, seed=seed)
        late = planted.root.children[1].children[0].name
        host = sorted(planted.hosts).index(late)
        delays = host_delays(trips(planted, {host: delay}, noise, seed))
        assert np.flatnonzero(delays).tolist() == [host]
        assert delays[host] == pytest.approx(delay, rel=0.2)


def test_two_slow_hosts() -> None:
    """Tests that slow hosts of one rack and of two racks are both found."""
    planted = racks(UNEVEN, seed=3)
    first, _, third, _ = (
        [sorted(planted.hosts).index(host.name) for host in rack.children]
        for rack in planted.root.children
    )
    for slow in (first[:2], [first[0], third[0]]):
        delays = host_delays(trips(planted, dict.fromkeys(slow, 300e-6), 0.05, 3))
        assert np.flatnonzero(delays).tolist() == sorted(slow)


@pytest.mark.parametrize("noise", [0.05, 0.25, 0.4])
@pytest.mark.parametrize(
    "sizes", [[1, 4, 8, 3], [1, 1, 6], [1, 1, 1, 5, 4], UNEVEN, [12], [2, 2]], ids=str
)
def test_a_rack_of_one_is_not_a_slow_host(sizes: list[int], noise: float) -> None:
    """Tests that a host to which all others are far has no delay."""
    for seed in range(5):
        assert not host_delays(trips(racks(sizes, seed=seed), {}, noise, seed)).any()


def test_a_late_host_of_a_flat_network_is_slow() -> None:
    """Tests the simpler reading where one rack cannot tell."""
    delays = host_delays(trips(racks([9]), {4: 300e-6}, 0.05, 0))
    assert np.flatnonzero(delays).tolist() == [4]


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_few_hosts_tell_nothing(hosts: int) -> None:
    """Tests that three round trips are too few to blame anyone."""
    assert not host_delays(trips(racks([hosts]), {0: 1e-3}, 0.05, 0)).any()


def test_nothing_measured_blames_nobody() -> None:
    """Tests that hosts without round trips have no delay."""
    unknown = complete(np.full((6, 6), np.nan))
    assert not host_delays(unknown).any()
