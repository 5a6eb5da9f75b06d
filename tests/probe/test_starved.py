from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.hosts import Host
from cloudcoll.probe.extra_rounds import repeat_loads, repeat_trips
from cloudcoll.probe.frames import FrameError
from cloudcoll.probe.plan import ProbePlan, Round, plan_probes
from cloudcoll.probe.results import Results

pair = st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda p: p[0] != p[1])


def plan_for(hosts: int, concurrency: int | None = None) -> ProbePlan:
    plan = plan_probes(
        tuple(Host(f"vm-{i}") for i in range(hosts)), concurrency=concurrency
    )
    return replace(plan, passes=(("rtt", hosts - 1, False), ("load", 1, False)))


def report(results: Results, round_: Round, *value: int) -> None:
    """Let every host of a round report samples or windows of a value, or none."""
    for src, dst in round_.pairs:
        frame: dict[str, Any] = {"slot": round_.number, "type": "flow", "peer": src}
        frame["windows"] = [*value] * 4
        reporter = dst
        if round_.kind == "rtt":
            reporter, frame["type"], frame["peer"] = src, "rtt", dst
            frame |= {"sent": 2, "ns": [*value]}
        results.add(reporter, frame)


def starve(results: Results, host: int, peer: int, round_: Round) -> None:
    results.add(host, {"type": "starved", "slot": round_.number, "peer": peer})


@given(
    st.lists(pair, max_size=30, unique=True),
    st.integers(1, 6),
    st.floats(0.0, 1.0),
)
def test_repeated_trips_fit(
    pairs: list[tuple[int, int]], concurrency: int, seconds: float
) -> None:
    """Tests that rounds are disjoint, numbered, and end in time."""
    plan = plan_for(12, concurrency)
    rounds = repeat_trips(plan, pairs, 50, seconds)
    assert [slot.number for slot in rounds] == list(range(50, 50 + len(rounds)))
    for slot in rounds:
        hosts = [host for met in slot.pairs for host in met]
        assert len(set(hosts)) == len(hosts) <= 2 * concurrency
        assert slot.start + plan.length("rtt") <= seconds + 1e-9
    met = [p for slot in rounds for p in slot.pairs]
    assert len(set(met)) == len(met)
    assert set(met) <= set(pairs)
    if seconds >= len(pairs) * plan.length("rtt"):
        assert set(met) == set(pairs)


def test_repeated_loads_are_whole_rounds() -> None:
    """Tests that a round goes again without the dead, as far as there is time."""
    plan = plan_for(6)
    loads = [Round(n, "load", 0.0, ((0, 1), (2, 3), (4, n % 2 + 5))) for n in range(3)]
    again = repeat_loads(plan, loads, {3}, 20, 2.5 * plan.length("load"))
    assert [(slot.number, slot.start) for slot in again] == [
        (20, 0.0),
        (21, pytest.approx(plan.length("load"))),
    ]
    assert [slot.pairs for slot in again] == [((0, 1), (4, 5)), ((0, 1), (4, 6))]


def test_a_host_that_sent_nothing_was_starved() -> None:
    """Tests that it counts as such though it came in time; one without replies not."""
    plan = plan_for(4)
    results = Results(plan)
    trips = next(slot for slot in plan.rounds() if slot.kind == "rtt")
    (late, peer), (deaf, other) = trips.pairs
    for host, to, sent in ((late, peer, 0), (deaf, other, 2)):
        frame = {"type": "rtt", "slot": trips.number, "peer": to}
        results.add(host, {**frame, "sent": sent, "ns": []})
    assert results.starved == {("rtt", trips.number, late)}


@pytest.mark.parametrize("end", [0, 1])
def test_either_end_can_be_starved(end: int) -> None:
    """Tests that a pair counts as starved whichever of the two says so."""
    plan = plan_for(4)
    results = Results(plan)
    rounds = list(plan.rounds())
    both = rounds[0].pairs[0]
    starve(results, both[end], both[1 - end], rounds[0])
    assert results.starved_pairs(set()) == [both]
    assert results.starved_pairs({both[0]}) == []
    assert results.starved_loads(set()) == []
    with pytest.raises(FrameError, match="nobody asked"):
        starve(results, both[0], both[0], rounds[0])


def test_samples_of_a_starved_host_give_way() -> None:
    """Tests that a pair keeps bad samples only as long as there are no others."""
    plan = plan_for(4)
    results = Results(plan)
    first = next(plan.rounds())
    asker, peer = first.pairs[0]
    report(results, first, 9000)
    starve(results, asker, peer, first)
    assert results.rtt(set()).seconds == pytest.approx([9000e-9, 9000e-9])
    (again,) = repeat_trips(plan, results.starved_pairs(set()), plan.count, 1.0)
    results.expect([again])
    report(results, again, 100)
    assert results.starved_pairs(set()) == []
    rtt = results.rtt(set())
    (row,) = np.flatnonzero((rtt.src == asker) & (rtt.dst == peer))
    assert rtt.of(int(row)) == pytest.approx([100e-9])
    assert rtt.sent[row] == 2


def test_a_repeated_load_takes_the_first_ones_place() -> None:
    """Tests that the best attempt counts, under the number it was asked for by."""
    plan = plan_for(4)
    results = Results(plan)
    load = list(plan.rounds())[-1]
    report(results, load, 1000)
    src, dst = load.pairs[1]
    starve(results, src, dst, load)
    for attempt, bytes_ in ((0, 2000), (1, 3000)):
        assert results.starved_loads(set()) == [load]
        (again,) = repeat_loads(plan, [load], (), plan.count + attempt, 1.0)
        results.expect([again], [load])
        report(results, again, bytes_)
        if attempt == 0:  # no better: what came first stays
            starve(results, dst, src, again)
            assert set(results.flows(set()).window_bytes) == {1000}
    assert results.starved_loads(set()) == []
    flows = results.flows(set())
    assert set(flows.round) == {load.number}
    assert set(flows.window_bytes) == {3000}
    assert results.starved_loads({src}) == []


def test_who_heard_nothing_meets_again() -> None:
    """Tests that a pair without any reply, or byte, may have come too late for it."""
    plan = plan_for(4)
    results = Results(plan)
    trip, *_, load = plan.rounds()
    report(results, trip)
    assert results.starved_pairs(set()) == list(trip.pairs)
    report(results, load)
    assert results.starved_loads(set()) == [load]
    dead = {trip.pairs[0][0]}
    assert results.starved_pairs(dead) == [p for p in trip.pairs if not dead & {*p}]
    again = repeat_trips(plan, trip.pairs, plan.count, 1.0)
    results.expect(again)
    for slot in again:
        report(results, slot, 100)
    assert results.starved_pairs(set()) == []
    # What was lost in the meeting that nobody kept is no loss of the network's.
    assert sorted(set(results.rtt(set()).sent)) == [0, 2]
    (once_more,) = repeat_loads(plan, [load], (), plan.count + len(again), 1.0)
    results.expect([once_more], [load])
    report(results, once_more, 1000)
    assert results.starved_loads(set()) == []
    assert set(results.flows(set()).window_bytes) == {1000}
