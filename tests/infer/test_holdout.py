from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from simulated import prediction_error

from cloudcoll.infer import infer_fabric
from cloudcoll.infer.holdout import (
    hold_out,
    holdout_warning,
    measured,
    scatter,
    unevenness,
)
from cloudcoll.measured.samples import no_rtt
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.network.tree import flat


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


@pytest.mark.parametrize(("rounds", "kept"), [(4, 0), (5, 1), (29, 2), (300, 30)])
def test_one_in_ten_is_kept_out(rounds: int, kept: int) -> None:
    """Tests that each round is fitted or judges the fit, and so is each pair."""
    whole = measured(observe(racks([12, 12]), rounds=rounds))
    seen, held = hold_out(whole)
    assert len(np.unique(held.round)) == kept
    assert len(seen.rate) + len(held.rate) == len(whole.rate)
    assert not np.isin(held.round, seen.round).any()
    assert np.isfinite(held.rtt).sum() == 2 * 27  # of 276 pairs, both ways
    assert (np.isfinite(held.rtt) != np.isfinite(seen.rtt)).sum() == 2 * 276
    assert np.array_equal(np.fmax(seen.rtt, held.rtt), whole.rtt, equal_nan=True)


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


def repeated(snapshot: NetworkSnapshot, scatter: float) -> NetworkSnapshot:
    """Return a snapshot whose rounds ran three times, each link as it liked."""
    flows = snapshot.flows
    generator = np.random.default_rng(2)
    rounds = int(flows.round.max()) + 1
    factors = np.exp(generator.laplace(0.0, scatter, (3, rounds)))
    windows = len(flows.window_bytes) // len(flows.src)
    scale = np.repeat(factors[:, flows.round].ravel(), windows)
    bytes_ = np.tile(flows.window_bytes, 3) * scale
    return replace(
        snapshot,
        flows=replace(
            flows,
            round=np.concatenate([flows.round + rounds * i for i in range(3)]),
            src=np.tile(flows.src, 3),
            dst=np.tile(flows.dst, 3),
            ends=np.arange(1, 3 * len(flows.src) + 1) * windows,
            window_bytes=bytes_.astype(np.int64),
        ),
    )


@pytest.mark.parametrize("scatter", [0.1, 0.3])
def test_what_repeats_differ_by_is_nobodys_fault(scatter: float) -> None:
    """Tests that it is the error of who knows the network, and no more."""
    planted = racks([4, 4, 4, 4], seed=1)
    seen = measured(repeated(observe(planted, rounds=15, noise=0.0), scatter))
    noise = unevenness(planted, seen)
    assert noise == pytest.approx(prediction_error(planted, seen), rel=0.35)
    assert math.isnan(unevenness(planted, measured(observe(planted, rounds=15))))


def test_rounds_that_repeat_exactly_are_even() -> None:
    """Tests that a wrong fabric is not excused by rounds that agree."""
    planted = racks([4, 4, 4, 4], seed=1)
    seen = measured(repeated(observe(planted, rounds=15, noise=0.0), 0.0))
    wrong = racks([4, 4, 4, 4], uplink=20e6, seed=1)
    assert prediction_error(wrong, seen) > 0.5
    assert unevenness(wrong, seen) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("noise", "mode", "said"),
    [
        (math.nan, "standard", "--full"),
        (0.19, "standard", "--full"),
        (0.21, "standard", "more measuring will not change it"),
        (0.21, "full", "more measuring will not change it"),
        (0.19, "full", "not in the model"),
        (math.nan, "full", "not in the model"),
    ],
)
def test_advice_ends(noise: float, mode: str, said: str) -> None:
    """Tests that a fuller probe is advised only where there is one that helps."""
    (line,) = holdout_warning(0.4, noise, mode)
    assert said in line
    assert ("--full" in line) == (said == "--full")
    assert "40%" in line


def test_inference_knows_what_was_uneven() -> None:
    """Tests that a probe whose repeats differ gets no advice to measure more."""
    snapshot = repeated(observe(racks([4, 4, 4, 4], seed=1), rounds=15), 0.5)
    fabric = infer_fabric(snapshot)
    assert fabric.holdout_error > 0.15
    (warning,) = fabric.warnings
    assert "more measuring will not change it" in warning
    full = replace(snapshot, metadata={"mode": "full"})
    assert infer_fabric(full).warnings == (warning,)


def test_round_trips_that_scatter_are_no_reason_to_measure_more() -> None:
    """Tests hosts too busy to answer: pairs differ by less than one does by itself."""
    quiet = observe(racks([4, 4, 4, 4], seed=1), samples=40, noise=0.1)
    pairs = len(quiet.rtt.src)
    generator = np.random.default_rng(3)
    wild = quiet.rtt.seconds * np.repeat(np.exp(generator.normal(0, 0.5, pairs)), 40)
    uneven = replace(quiet, rtt=replace(quiet.rtt, seconds=wild))
    (advice,) = infer_fabric(uneven).warnings
    assert "--full" in advice
    busy = wild * np.exp(generator.exponential(2.0, len(wild)))
    (end,) = infer_fabric(replace(quiet, rtt=replace(quiet.rtt, seconds=busy))).warnings
    assert "more measuring will not change it" in end
    assert math.isnan(scatter(no_rtt()))
