from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from cloudcoll.hosts import Host
from cloudcoll.measured.merge import merge_snapshots
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.report.totals import rates, repeats, round_trips

HOSTS = (Host("a"), Host("b"))
ONE, TWO = np.array([0]), np.array([1])


def trips(created: float, *seconds: float) -> NetworkSnapshot:
    """Return a snapshot in which a asked b ten times."""
    rtt = RttSamples(
        ONE, TWO, np.array([10]), np.array([len(seconds)]), np.array(seconds)
    )
    return NetworkSnapshot(HOSTS, rtt=rtt, created=created)


def test_loss_and_quantiles_of_round_trips() -> None:
    """Tests the figures of ten requests with eight answers."""
    found = round_trips(trips(0.0, *[1e-3] * 7, 5e-3))
    assert (found.sent, found.p50_s) == (10, 1e-3)
    assert found.loss == pytest.approx(0.2)
    assert found.p99_s == pytest.approx(1e-3 + 0.93 * 4e-3)


def test_transfers_without_a_result_do_not_count() -> None:
    """Tests that a round is counted if something arrived in it."""
    flows = LoadedFlows(
        round=np.array([0, 0, 1]),
        src=np.array([0, 1, 0]),
        dst=np.array([1, 0, 1]),
        ends=np.array([3, 6, 6]),
        window_bytes=np.array([1, 1, 4, 1, 1, 8]),
        window_s=1.0,
    )
    found = rates(NetworkSnapshot(HOSTS, flows=flows))
    assert (found.transfers, found.rounds, found.p50_bytes_per_s) == (2, 1, 6.0)


def test_the_largest_departure_is_named() -> None:
    """Tests pair and figures of the repeat that was disturbed."""
    parts = [trips(0.0, 1e-3), trips(50.0, 4e-3), trips(100.0, 1e-3)]
    found = repeats(merge_snapshots(parts))
    assert found is not None
    assert (found.snapshots, found.span_s) == (3, 100.0)
    assert (found.src, found.dst) == ("a", "b")
    assert found.usual_s == pytest.approx(1e-3)
    assert found.once_s == pytest.approx(4e-3)
    assert found.transient == pytest.approx(1.0)


def test_nothing_measured_is_not_zero() -> None:
    """Tests that what was not measured is NaN, and no repeats are none."""
    empty = NetworkSnapshot(HOSTS)
    assert math.isnan(round_trips(empty).loss)
    assert math.isnan(rates(empty).p50_bytes_per_s)
    assert repeats(empty) is None
    assert repeats(dataclasses.replace(empty, metadata={"merged": []})) is None
