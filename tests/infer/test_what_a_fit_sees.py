from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.hosts import Host
from cloudcoll.infer import PACED, infer_fabric
from cloudcoll.infer.holdout import STARVED, hold_out, measured
from cloudcoll.measured.samples import LoadedFlows
from cloudcoll.measured.snapshot import NetworkSnapshot
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


@pytest.mark.parametrize("paced", [False, True])
def test_a_starved_transfer_counts_if_it_was_paced(paced: bool) -> None:
    """Tests one of which nothing came after its ramp-up, and one that never came up."""
    flows = LoadedFlows(
        round=np.zeros(4, dtype=np.int64),
        src=np.array([0, 1, 1, 2]),
        dst=np.array([1, 2, 2, 0]),
        ends=np.array([4, 8, 12, 13]),
        window_bytes=np.array([9, 9, 1000, 1000, 5, 0, 0, 0, 9, 9, 500, 500, 9]),
        window_s=1.0,
        paced=paced,
    )
    hosts = tuple(map(Host, "abc"))
    seen = measured(NetworkSnapshot(hosts, flows=flows))
    # The slower of its two cards is that of host 2.
    rates = [1000.0, 500.0 * STARVED, 500.0] if paced else [1000.0, 500.0]
    assert seen.rate.tolist() == rates


def test_a_fabric_says_that_transfers_were_paced() -> None:
    """Tests the warning, and that there is none where they were not."""
    usual = observe(racks([4, 4]), rounds=8)
    paced = replace(usual, flows=replace(usual.flows, paced=True))
    assert PACED not in infer_fabric(usual).warnings
    assert PACED in infer_fabric(paced).warnings


@pytest.mark.parametrize(("one_way", "left"), [(0, 4), (3, 4), (4, 8)])
def test_rounds_are_compared_with_their_like(one_way: int, left: int) -> None:
    """Tests that rounds in which pairs send one way count only where many are so."""
    both = [(0, 1), (1, 0), (2, 3), (3, 2)]
    turns = [(0, *pair) for pair in both]
    turns += [(turn + 1, turn % 3, 3) for turn in range(one_way)]
    round_, src, dst = np.array(turns).T
    seen = replace(
        measured(observe(racks((4,)))), round=round_, src=src, dst=dst, rate=1.0 + dst
    )
    alike = seen.alike
    assert alike.rate.tolist() == (1.0 + dst[:left]).tolist()
    assert alike.round.tolist() == round_[:left].tolist()


@pytest.mark.parametrize("punctual", [False, True])
def test_the_slower_flow_of_a_pair_is_late(punctual: bool) -> None:
    """Tests a pair of which one is far slower, one of equals, and a flow one way."""
    seen = replace(
        measured(observe(racks((6,)))),
        round=np.zeros(5, dtype=np.int64),
        src=np.array([0, 1, 2, 3, 4]),
        dst=np.array([1, 0, 3, 2, 5]),
        rate=np.array([10.0, 7.0, 10.0, 9.0, 1.0]),
        punctual=punctual,
    )
    slow = np.inf if punctual else 7.0
    assert seen.most.tolist() == [np.inf, slow, np.inf, np.inf, np.inf]
