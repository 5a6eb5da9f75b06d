from __future__ import annotations

import numpy as np
import pytest
from strategies import same

from cloudcoll.measured.synth import RAMP_UP, observe, racks


def test_racks_plants_what_was_asked() -> None:
    """Tests sizes, capacities and round trips of a planted network."""
    fabric = racks([3, 1, 2], nic=10e6, uplink=20e6, rtt=40e-6, rack_rtt=240e-6)
    assert [len(rack.children) for rack in fabric.root.children] == [3, 1, 2]
    assert {rack.uplink_bytes_per_s for rack in fabric.root.children} == {20e6}
    trips = fabric.links.pair_rtt()
    assert trips[0, 1] == pytest.approx(40e-6)
    assert trips[0, 5] == pytest.approx(240e-6)
    assert (np.diag(trips) == 0).all()
    assert (trips == trips.T).all()


def test_names_are_shuffled_by_the_seed() -> None:
    """Tests that names do not tell the rack, and the seed repeats them."""
    one, again, other = (racks([8, 8], seed=seed).hosts for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert sorted(one) == sorted(other) == [f"vm-{i:02d}" for i in range(1, 17)]
    assert list(one) != sorted(one)


def test_observe_repeats_with_its_seed() -> None:
    """Tests that one seed gives one snapshot, another seed another."""
    fabric = racks([3, 4])
    one, again = (observe(fabric, rounds=3, seed=1) for _ in range(2))
    other = observe(fabric, rounds=3, seed=2)
    assert one.rtt.seconds.tolist() == again.rtt.seconds.tolist()
    assert one.flows.window_bytes.tolist() == again.flows.window_bytes.tolist()
    assert not same(one, other)


def test_observe_adds_delay_to_the_fabric_and_never_takes_any() -> None:
    """Tests that noise is one-sided and of the asked mean."""
    fabric = racks([4, 4], seed=3)
    snapshot = observe(fabric, samples=400, noise=0.2, seed=3)
    columns = [fabric.position(name) for name in snapshot.names]
    floor = fabric.links.pair_rtt()[np.ix_(columns, columns)]
    rtt = snapshot.rtt
    ratio = rtt.seconds / np.repeat(floor[rtt.src, rtt.dst], 400)
    assert ratio.min() >= 1.0
    assert ratio.mean() == pytest.approx(1.2, abs=0.01)


def test_every_host_sends_and_hears_once_a_round() -> None:
    """Tests that loaded rounds are rings over all hosts."""
    flows = observe(racks([3, 4]), rounds=5).flows
    for number in range(5):
        mine = flows.round == number
        assert sorted(flows.src[mine]) == sorted(flows.dst[mine]) == list(range(7))
    assert (flows.src != flows.dst).all()
    assert flows.ramp_up == RAMP_UP


def test_rates_leave_the_ramp_up_out() -> None:
    """Tests that without noise the rates are the fair shares themselves."""
    fabric = racks([4], nic=40e6)
    flows = observe(fabric, rounds=2, noise=0.0).flows
    assert flows.bytes_per_s == pytest.approx(np.full(8, 40e6))
    assert flows.window_bytes[0] < flows.window_bytes[RAMP_UP]
