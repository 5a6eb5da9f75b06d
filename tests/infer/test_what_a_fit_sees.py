from __future__ import annotations

import numpy as np
import pytest

from cloudcoll.infer.holdout import hold_out, measured
from cloudcoll.measured.synth import observe, racks


@pytest.mark.parametrize(("rounds", "late"), [(0, 0), (4, 0), (5, 1), (16, 1), (40, 4)])
def test_a_tenth_is_kept_out(rounds: int, late: int) -> None:
    """Tests that whole rounds and pairs are kept out, and nothing is lost."""
    whole = measured(observe(racks([4, 4, 4]), rounds=rounds))
    seen, held = hold_out(whole)
    assert len(np.unique(held.round)) == late
    assert not set(held.round.tolist()) & set(seen.round.tolist())
    assert len(seen.rate) + len(held.rate) == len(whole.rate)
    pairs = np.isfinite(whole.rtt).sum() // 2
    assert np.isfinite(held.rtt).sum() // 2 == pairs // 10
    assert not (np.isfinite(seen.rtt) & np.isfinite(held.rtt)).any()
    assert np.fmax(seen.rtt, held.rtt) == pytest.approx(whole.rtt, nan_ok=True)


def test_the_seed_decides_what_is_kept_out() -> None:
    """Tests that one seed keeps out the same again, another something else."""
    whole = measured(observe(racks([8, 8]), rounds=40))
    one, again, other = (hold_out(whole, seed)[1] for seed in (1, 1, 2))
    assert one.round.tolist() == again.round.tolist()
    assert np.array_equal(one.rtt, again.rtt, equal_nan=True)
    assert not np.array_equal(one.rtt, other.rtt, equal_nan=True)
