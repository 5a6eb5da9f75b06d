from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.fabric.holdout import holdout_warning, prediction_error
from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.fabric.measured import measured
from cloudcoll.fabric.synth import observe, racks
from cloudcoll.fabric.tree import flat


def test_the_true_fabric_has_no_error() -> None:
    """Tests that what a fabric produced it predicts exactly."""
    planted = racks([4, 3, 5], uplink=75e6)
    seen = measured(observe(planted, rounds=8, noise=0.0))
    assert prediction_error(planted, seen) == pytest.approx(0.0, abs=1e-6)


def test_the_worse_kind_counts() -> None:
    """Tests that rates that are off by a half show beside exact round trips."""
    planted = racks([4, 4])
    seen = measured(observe(planted, rounds=8, noise=0.0))
    slower = replace(seen, rate=seen.rate / 1.5)
    assert prediction_error(planted, slower) == pytest.approx(0.5, rel=0.01)


def test_round_trips_that_are_off_count_alone() -> None:
    """Tests that a prediction of four fifths of what was measured is off by a fifth."""
    planted = racks([4, 4])
    seen = measured(observe(planted, noise=0.0))
    longer = replace(seen, rtt=seen.rtt * 1.25)
    assert prediction_error(planted, longer) == pytest.approx(0.2)


@pytest.mark.parametrize(("error", "said"), [(0.15, False), (0.16, True), (3.0, True)])
def test_when_a_fabric_predicts_badly(error: float, said: bool) -> None:
    """Tests the bound of 15 %, and that the error is said."""
    assert [f"by {error:.0%} (median)" in line for line in holdout_warning(error)] == (
        [True] if said else []
    )


def test_nothing_to_judge_by_is_not_measured() -> None:
    """Tests that a fabric that says nothing has no error, and no warning."""
    seen = measured(observe(racks([4, 4]), rounds=8))
    error = prediction_error(flat(seen.names), seen)
    assert math.isnan(error)
    assert holdout_warning(error) == []


def test_inference_stores_its_error() -> None:
    """Tests that a regular network is predicted well and says so."""
    planted = racks([5, 3, 6, 2], uplink=60e6, seed=1)
    fabric = infer_fabric(observe(planted, rounds=30, noise=0.1, seed=1))
    assert 0.0 < fabric.holdout_error < 0.15
    assert fabric.warnings == ()


def test_a_fabric_that_predicts_badly_says_so() -> None:
    """Tests that rates without any order give a large error and a warning."""
    snapshot = observe(racks([4, 4, 4, 4], seed=1), rounds=30, noise=0.1, seed=1)
    flows = snapshot.flows
    factors = np.random.default_rng(1).uniform(0.1, 1.0, len(flows.src))
    wild = flows.window_bytes * np.repeat(factors, np.diff(flows.ends, prepend=0))
    noisy = replace(flows, window_bytes=wild.astype(np.int64))
    fabric = infer_fabric(replace(snapshot, flows=noisy))
    assert fabric.holdout_error > 0.15
    (warning,) = fabric.warnings
    assert f"{fabric.holdout_error:.0%}" in warning
    assert "--full" in warning
