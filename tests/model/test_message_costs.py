"""Tests of what messages cost ranks: counted by hand, kept, and predicted with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloudcoll.collectives import build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model import problem_of
from cloudcoll.model.message_costs import (
    FREE,
    KEY,
    MessageCosts,
    costs_in,
    with_costs,
)
from cloudcoll.solve import solve

MESSAGE, BYTE = MessageCosts((0.0,), (1.0,)), MessageCosts((0.0, 8.0), (0.0, 8.0))
"""Of which each costs a second, or each byte."""


@pytest.mark.parametrize(
    ("collective", "algorithm", "parameters", "messages", "sent"),
    [
        # Each rank sends one of four blocks on in each of three steps.
        ("allgather", "ring", {}, 3, 3 * 256),
        ("allreduce", "ring", {}, 6, 6 * 256),
        ("allreduce", "recursive_doubling", {}, 2, 2 * 1024),
        # The root sends to three, one after the other.
        ("bcast", "linear", {}, 3, 3 * 1024),
        # Each of the middle gets and sends eight pieces; the first takes three steps.
        ("bcast", "pipeline", {"segment": 128}, 8 + 2, 1024 + 2 * 128),
    ],
)
def test_counted_by_hand(
    collective: str,
    algorithm: str,
    parameters: dict[str, int],
    messages: int,
    sent: int,
) -> None:
    """Tests the busiest rank of 4, of a call of 1 KiB."""
    schedule = build_schedule(collective, algorithm, 4, 1024, **parameters)
    assert MESSAGE.seconds(schedule) == messages
    assert BYTE.seconds(schedule) == sent
    both = MessageCosts((0.0, 1.0), (2.0, 5.0))
    assert both.seconds(schedule) == 2 * messages + 3 * sent
    assert FREE.seconds(schedule) == 0


@pytest.fixture(scope="module")
def snapshot() -> NetworkSnapshot:
    """Of 16 hosts in uneven racks."""
    fabric = racks((5, 3, 6, 2))
    return replace(observe(fabric, samples=2), fabric=fabric)


def test_between_and_beyond_what_was_measured() -> None:
    """Tests sizes on a line, by hand."""
    costs = MessageCosts((10.0, 20.0, 40.0), (1.0, 3.0, 4.0))
    sizes = np.array([0.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0])
    assert costs.of(sizes).tolist() == [1.0, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0]
    falling = MessageCosts((10.0, 20.0), (3.0, 1.0))
    assert falling.of(sizes).tolist() == [3.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0]


def test_kept_with_the_library_they_are_of(
    snapshot: NetworkSnapshot, tmp_path: Path
) -> None:
    """Tests a snapshot's file, other libraries, and what is no figure of ours."""
    costs, one = MessageCosts((1024.0, 65536.0), (1e-4, 2e-4)), [1] * 16
    path = tmp_path / "net.snap"
    with_costs(snapshot, "openmpi", one, costs).save(path)
    found = load_snapshot(path)
    assert costs_in(found, "openmpi", one) == costs
    assert costs_in(found, "openmpi", [2] * 8) is None
    assert costs_in(found, "mpich", one) is None
    both = with_costs(found, "mpich", one, MESSAGE)
    assert costs_in(both, "openmpi", one) == costs
    (key,) = found.metadata[KEY]
    good = {"sizes": [1.0, 2.0], "each": [0.0, 1.0]}
    assert costs_in(replace(found, metadata={KEY: {key: good}}), "openmpi", one)
    for wrong in (
        *({}, [1], good | {"each": "no"}, good | {"each": []}, good | {"each": [1.0]}),
        *(good | {"each": [0.0, -1.0]}, good | {"each": [0.0, 61.0]}),
        *(good | {"sizes": [2.0, 2.0]}, good | {"sizes": [None, 2.0]}),
    ):
        bad = replace(found, metadata={KEY: {key: wrong}})
        assert costs_in(bad, "openmpi", one) is None


def test_all_predictions_have_them(
    snapshot: NetworkSnapshot, small_search: None
) -> None:
    """Tests a schedule, a workload, and a map with its bound and intervals."""
    slots = dict.fromkeys(sorted(snapshot.names), 1)
    dear = with_costs(snapshot, "openmpi", list(slots.values()), MESSAGE)
    ring, other = (
        build_schedule("allreduce", "ring", 16, 1024, library)
        for library in ("openmpi", "mpich")
    )
    everyone = np.arange(16)[None]
    call = Operation("allreduce", "ring", 1024, everyone, 3, library="openmpi")
    for sent, costs in ((ring, 30), (other, 0), (Workload("w", 16, (call,)), 90)):
        before, after = (
            problem_of(one, sent, slots).seconds(tuple(slots))
            for one in (snapshot, dear)
        )
        assert after - before == pytest.approx(costs)
    plain, added = (solve(one, ring, given=tuple(slots)) for one in (snapshot, dear))
    assert added.order == plain.order
    for name, seconds in plain.predicted.items():
        assert added.predicted[name] == pytest.approx(seconds + 30)
    assert added.lower_bound is not None
    assert plain.lower_bound is not None
    assert added.lower_bound == pytest.approx(plain.lower_bound + 30)
    low, high = added.intervals["cloudcoll"]
    assert low < added.predicted["cloudcoll"] < high
    assert low > 15
