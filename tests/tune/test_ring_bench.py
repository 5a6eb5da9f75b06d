"""Tests of what messages cost ranks, measured in a job of planted speeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cloudcoll.bench.job import BenchPlan, JobOutput
from cloudcoll.errors import CloudcollError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model import network_of
from cloudcoll.model.message_costs import MessageCosts, with_costs
from cloudcoll.solve.orders import grouped_order
from cloudcoll.tune import ring_bench
from cloudcoll.tune.calls import Call, asked_of_sizes
from cloudcoll.tune.candidates import Candidates
from cloudcoll.tune.choose import Chooser, TuningJob
from cloudcoll.tune.decide import TuningBench
from cloudcoll.tune.measure import Numbers
from cloudcoll.tune.ring_bench import BLOCKS, costs_of, measured_costs
from cloudcoll.tune.sheet import Predictor
from probes.timing import sizes_in_time

MESSAGE = MessageCosts((0.0,), (1.0,))
"""Of which each costs a second."""


@pytest.mark.parametrize(
    ("longer", "each"),
    [
        ({1: 3.0, 11: 23.0, 20: 24.0}, (3.0, 23.0, 24.0)),
        ({1: 5.0, 11: 4.0}, (5.0, 4.0)),
        ({1: -3.0, 11: -1.0, 20: 2.0}, (0.0, 0.0, 2.0)),
    ],
)
def test_costs_are_what_was_longer_than_predicted(
    longer: dict[int, float], each: tuple[float, ...]
) -> None:
    """Tests sizes that took longer than predicted, and those that took less."""
    assert costs_of(longer) == MessageCosts(tuple(map(float, longer)), each)


def job(library: str = "openmpi@5.0.11") -> TuningJob:
    fabric = racks((5, 3, 6, 2))
    snapshot = replace(observe(fabric, samples=2), fabric=fabric)
    given = tuple(sorted(snapshot.names))
    asked = asked_of_sizes(["allreduce"], [1024], 16, "a mix")
    return TuningJob(snapshot, Candidates(library, 16), given, (1,) * 16, asked)


class Told(Numbers):
    """Of a library that takes numbers as they are."""

    def __init__(self) -> None:
        super().__init__("none", {})

    def _asked(self, name: str, value: str) -> int | None:
        return None


def bench(made: TuningJob, seconds: float) -> TuningBench:
    hosts = tuple(map(Host, made.given))
    request = LaunchRequest(OpenMpi4(), ("mpirun",), 1, hosts, "F", made.slots)
    return TuningBench(request, {}, Told(), time.monotonic() + seconds)


def planted(
    made: TuningJob, costs: MessageCosts, seen: list[BenchPlan]
) -> Callable[..., JobOutput]:
    """Return what measures rings whose messages cost so much."""
    network = network_of(made.snapshot, made.given)
    predictor = Predictor(network, dict.fromkeys(made.given, 1))
    order = grouped_order(made.given, network.fabric)
    place = np.array([network.fabric.position(name) for name in order])

    def run(plan: BenchPlan, env: Mapping[str, str], *rest: Any) -> JobOutput:
        seen.append(plan)
        rows = []
        for size in plan.spec["sizes"]:
            call = Call("allgather", size)
            ring = ring_bench._ring(made.candidates, call, None)
            alone = float(predictor.seconds(call, ring, [place])[0])
            seconds = alone + costs.seconds(predictor.schedule(call, ring))
            for repeat, off in enumerate((1.0, 0.9, 5.0, 1.0)):
                row = {"bytes": size, "order": "ring", "repeat": repeat, "wrong": 0}
                rows.append({**row, "time_us": 1e6 * seconds * off})
        return JobOutput({}, tuple(rows))

    return run


@pytest.mark.parametrize("library", ["openmpi@5.0.11", "mpich@5.0.2"])
def test_what_is_planted_is_found(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests costs by the medians of rings, which are told to run at both sizes."""
    made, seen = job(library), list[BenchPlan]()
    costs = MessageCosts((0.0, 1e6), (3e-4, 3e-4 + 1e6 * 2e-9))
    monkeypatch.setattr(ring_bench, "run_bench", planted(made, costs, seen))
    monkeypatch.setattr(Told, "_asked", lambda *_: 3)
    found = measured_costs(made, bench(made, 60.0))
    assert list(found.sizes) == list(BLOCKS)
    expected = costs.of(np.array(BLOCKS)).tolist()
    assert found.each == pytest.approx(expected, rel=1e-3)
    (plan,) = seen
    assert plan.spec["sizes"] == [16 * block for block in BLOCKS]
    assert plan.spec["settings"]["ring"]
    assert plan.spec["seconds"] <= ring_bench.SECONDS


def test_what_a_command_line_forces_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests a program that can tell its library nothing."""
    made, seen = job(), list[BenchPlan]()
    monkeypatch.setattr(ring_bench, "run_bench", planted(made, MESSAGE, seen))
    monkeypatch.setattr(Told, "knows", lambda *_: False)
    found = measured_costs(made, bench(made, 60.0), forced=True)
    assert found.each == pytest.approx([1.0, 1.0, 1.0], rel=1e-3)
    assert "settings" not in seen[0].spec


def test_no_time_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a bench of some seconds, of which rings would take too large a share."""
    made, seen = job(), list[BenchPlan]()
    monkeypatch.setattr(ring_bench, "run_bench", planted(made, MESSAGE, seen))
    with pytest.raises(CloudcollError, match="no time"):
        measured_costs(made, bench(made, 10.0))
    assert not seen


def test_a_job_with_time_for_few_measures_small_messages() -> None:
    """Tests seconds of rings of a slow network, in the time that is left for them."""
    assert sizes_in_time((0.05, 0.3, 1.1), ring_bench.LEAST, 2.6) == range(3)


def test_predictions_have_them() -> None:
    """Tests that what is known of a library is added to what the network takes."""
    made = job()
    dear = replace(
        made, snapshot=with_costs(made.snapshot, "openmpi", made.slots, MESSAGE)
    )
    plain, added = Chooser(made), Chooser(dear)
    call, own = Call("allreduce", 1024), made.candidates.own("allreduce", 1024)
    sent = plain.predictor.schedule(call, own)
    for order in (plain.given, plain.given[::-1]):
        before, after = (
            one.predictor.seconds(call, own, [order])[0] for one in (plain, added)
        )
        assert after - before == pytest.approx(MESSAGE.seconds(sent))
    least = added.predictor.least(sent) - plain.predictor.least(sent)
    assert least == pytest.approx(MESSAGE.seconds(sent))
    assert not math.isnan(least)
