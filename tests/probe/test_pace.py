"""How fast hosts send where their transfers stall."""

from __future__ import annotations

import numpy as np

from cloudcoll.hosts import Host
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.probe.extra_rounds import at_least_usual, pace_of


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
    assert pace_of(measured(queued, queued)) is None
    assert pace_of(measured([], [1])) is None
    assert pace_of(measured([0] * 8, [0] * 8)) is None


def test_half_of_the_windows_are_the_limit() -> None:
    """Tests both sides of it; those of the ramp-up do not count."""
    just = [0, 0, 1_000, 0, 1_000, 0]
    assert pace_of(measured(just, just)) is not None
    assert pace_of(measured(just, [0, 0, 1_000, 0, 1_000, 1_000])) is None


def test_long_round_trips_are_no_stalls() -> None:
    """Tests data that comes once a round trip, as in slow start across a continent."""
    burst = [100_000, 0, 0, 200_000, 0, 0, 0, 400_000, 0]
    assert pace_of(measured(burst, burst, trip_s=0.1)) is None
    assert pace_of(measured(burst, burst, trip_s=0.01)) is not None


def test_a_pace_is_what_a_card_keeps_up_either_way() -> None:
    """Tests the fastest 100 ms sent or taken, and the usual ones where none were."""
    slow = [100_000, 0, 0, 0, 0, 0, 0, 100_000]
    found = pace_of(measured(POLICED, slow, slow, [7]))
    assert found == (8_000_000, 8_000_000, 1_000_000, 1_000_000, 4_500_000)


def test_a_pace_is_of_one_transfer() -> None:
    """Tests that the windows of two that follow each other are not added up."""
    end, begin = [0, 0, 0, 0, 0, 0, 90_000], [90_000, 0, 0, 0, 0, 0, 0]
    assert pace_of(measured(end, begin)) == (900_000,) * 3


def test_a_pace_at_which_nobody_is_slower_than_usual() -> None:
    """Tests one that stalls have made too low, and one above what most keep up.

    Two thirds may have met only hosts behind another group's link.
    """
    assert at_least_usual((900, 300, 800, 800)) == (900, 800, 800, 800)
    assert at_least_usual((500,) * 6 + (1000,) * 3) == (1000,) * 9
