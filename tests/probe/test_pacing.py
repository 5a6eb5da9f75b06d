"""How fast hosts send where their transfers stall."""

from __future__ import annotations

import numpy as np
import pytest

from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.probe.pacing import (
    ENOUGH,
    LADDER,
    THROUGH,
    TRIES,
    highest_pace,
    through,
    usual_pace,
)


def measured(*windows: list[int], trip_s: float = 1e-4) -> NetworkSnapshot:
    """Return transfers from host 0 to 1, 1 to 2, ... by their windows of 25 ms."""
    count = np.arange(len(windows))
    flows = LoadedFlows(
        round=count,
        src=count,
        dst=count + 1,
        ends=np.cumsum([len(one) for one in windows]),
        window_bytes=np.concatenate([np.array(one, dtype=np.int64) for one in windows]),
    )
    rtt = RttSamples(
        src=count,
        dst=count + 1,
        sent=np.ones_like(count),
        ends=count + 1,
        seconds=np.full(len(count), trip_s),
    )
    hosts = tuple(Host(f"h{i}") for i in range(len(windows) + 1))
    return NetworkSnapshot(hosts, rtt=rtt, flows=flows)


POLICED = [500_000, 300_000, 0, 0, 0, 0, 0, 0]
"""A bucket of 256 KiB is empty, and TCP waits for its timer."""


def test_no_pace_where_transfers_go_on() -> None:
    """Tests queues that hold or drop some packets, and nothing measured at all."""
    queued = [10_000, 200_000, 250_000, 250_000, 0, 250_000, 250_000, 0]
    assert usual_pace(measured(queued, queued)) == 0
    assert usual_pace(measured([], [1])) == 0
    assert usual_pace(measured([0] * 8, [0] * 8)) == 0


def test_half_of_the_windows_are_the_limit() -> None:
    """Tests both sides of it; those of the ramp-up do not count."""
    just = [0, 0, 1_000, 0, 1_000, 0]
    assert usual_pace(measured(just, just)) > 0
    assert usual_pace(measured(just, [0, 0, 1_000, 0, 1_000, 1_000])) == 0


def test_long_round_trips_are_no_stalls() -> None:
    """Tests data that comes once a round trip, as in slow start across a continent."""
    burst = [100_000, 0, 0, 200_000, 0, 0, 0, 400_000, 0]
    assert usual_pace(measured(burst, burst, trip_s=0.1)) == 0
    assert usual_pace(measured(burst, burst, trip_s=0.01)) > 0


def test_a_pace_is_what_cards_keep_up_either_way() -> None:
    """Tests the fastest 100 ms that each host sent or took, of hosts of which any was.

    A quarter of them was faster than that.
    """
    slow = [100_000, 0, 0, 0, 0, 0, 0, 100_000]
    snapshot = measured(POLICED, slow, slow, [7])
    fastest = [8_000_000, 8_000_000, 1_000_000, 1_000_000]
    assert usual_pace(snapshot) == np.quantile(fastest, 0.75)


def test_a_pace_is_of_one_transfer() -> None:
    """Tests that the windows of two that follow each other are not added up."""
    end, begin = [0, 0, 0, 0, 0, 0, 90_000], [90_000, 0, 0, 0, 0, 0, 0]
    assert usual_pace(measured(end, begin)) == 900_000


@pytest.mark.parametrize("share", [0.1, 0.7, 1.0, 1.3, 2.0, 3.0, 9.0])
def test_the_highest_pace_that_gets_through_is_found(share: float) -> None:
    """Tests cards that carry less than any pace tried, or some of them, or all."""
    tried: list[int] = []

    def gets_through(pace: int) -> bool:
        tried.append(pace)
        return pace <= share * 1000

    found = highest_pace(1000, gets_through)
    assert len(tried) == TRIES
    good = [step for step in LADDER if step <= share]
    assert found == int(1000 * max(good, default=min(LADDER)))


def test_a_pair_is_enough_to_get_through() -> None:
    """Tests rounds before those that count, and transfers just too slow."""
    flows = measured([100] * 4, [100] * 4, [100] * 4, [80] * 4).flows
    rate = 100 / flows.window_s
    assert ENOUGH == 2
    assert through(flows, 1, int(rate))
    assert through(flows, 1, int(rate / THROUGH))
    assert not through(flows, 1, int(rate / THROUGH) + 50)
    assert not through(flows, 2, int(rate))
