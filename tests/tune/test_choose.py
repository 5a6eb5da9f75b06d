"""Tests of order and algorithms together, against all orders of small networks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cloudcoll.collectives import build_schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.measured.synth import observe, racks
from cloudcoll.model import problem_of
from cloudcoll.tune import Answer, tune, tuning_of
from cloudcoll.tune.calls import LADDER, Call, asked_of_sizes, asked_of_workload
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import Chooser, TunedOrder, TuningJob, needed, sure_gain

pytestmark = pytest.mark.usefixtures("small_search")

MIB = 1 << 20
LIBRARY = "openmpi@5.0.11"


def planted(sizes: tuple[int, ...], uplink: float = 50e6) -> NetworkSnapshot:
    """Return a snapshot that knows the racks it was taken of."""
    fabric = racks(sizes, uplink=uplink)
    return replace(observe(fabric, samples=2), fabric=fabric)


def job(snapshot: NetworkSnapshot, *collectives: str, size: int = 0) -> TuningJob:
    """Return one rank on each host, in the order of their names."""
    given = tuple(sorted(snapshot.names))
    ranks = len(given)
    asked = asked_of_sizes(collectives, [size] if size else [], ranks, "a mix")
    return TuningJob(snapshot, Candidates(LIBRARY, ranks), given, (1,) * ranks, asked)


def chosen(one: TuningJob) -> TunedOrder:
    return Chooser(one).choose()


def seconds(
    one: TuningJob, call: Call, way: Candidate, order: tuple[str, ...]
) -> float:
    """Return what all other commands predict."""
    schedule = build_schedule(
        call.collective,
        way.selection.algorithm,
        one.ranks,
        call.size,
        way.selection.library,
        **way.selection.parameters,
    )
    slots = dict(zip(one.given, one.slots, strict=True))
    return problem_of(one.snapshot, schedule, slots).seconds(order)


@pytest.mark.parametrize("collective", ["allreduce", "allgather", "bcast"])
@pytest.mark.parametrize("sizes", [(3, 1, 2), (2, 2, 2)])
def test_no_order_and_algorithm_is_better(
    collective: str, sizes: tuple[int, ...]
) -> None:
    """Tests against every candidate in every order that the answer is the best.

    Or that no other algorithm is surely faster than the library's own.
    """
    one = job(planted(sizes), collective, size=8 * MIB)
    found = chosen(one)
    taken = next(t for t in found.taken if t.call.size == 8 * MIB)
    orders = [(one.given[0], *rest) for rest in itertools.permutations(one.given[1:])]
    own = one.candidates.own(collective, 8 * MIB)
    ways = one.candidates.others(collective, 8 * MIB)
    slots = dict(zip(one.given, one.slots, strict=True))

    def best(way: Candidate) -> float:
        schedule = build_schedule(
            collective,
            way.selection.algorithm,
            one.ranks,
            8 * MIB,
            way.selection.library,
            **way.selection.parameters,
        )
        problem = problem_of(one.snapshot, schedule, slots)
        return min(problem.seconds(order) for order in orders)

    least, own_least = min(map(best, ways)), best(own)
    if own_least >= sure_gain() * least:
        assert taken.seconds == pytest.approx(least, rel=0.021)
        assert not taken.candidate.is_own
    else:
        assert taken.candidate.is_own
        assert taken.seconds == pytest.approx(own_least)


def test_predictions_are_those_of_all_commands() -> None:
    """Tests that what is told of each call is what `problem_of` says of it."""
    one = job(planted((3, 1, 2)), "allreduce", "bcast")
    found = chosen(one)
    for taken in found.taken:
        for way, told in (
            (taken.candidate, taken.seconds),
            (taken.own, taken.own_seconds),
        ):
            again = seconds(one, taken.call, way, found.rank_map.order)
            assert told == pytest.approx(again, rel=1e-6)


def test_the_ring_takes_the_place_of_rabenseifner() -> None:
    """Tests the case of the lab: uneven racks, large allreduces, Open MPI 5."""
    one = job(planted((5, 3, 6, 2)), "allreduce", size=8 * MIB)
    found = chosen(one)
    large = found.taken[-1]
    assert large.own.selection.algorithm == "rabenseifner"
    assert large.candidate.algorithm == "ring"
    assert found.given > found.ordered > found.tuned
    assert found.ordered / found.tuned > 2
    small = found.taken[0]
    assert small.call.size == LADDER[0]
    assert small.candidate.is_own


@pytest.mark.slow
def test_more_is_needed_where_less_is_known() -> None:
    """Tests that small calls keep the library's own unless far more is predicted."""
    found = chosen(job(planted((5, 3, 6, 2)), "allreduce"))
    for taken in found.taken:
        gain = taken.own_seconds / taken.seconds
        if not taken.candidate.is_own:
            assert gain >= sure_gain() * (sure_gain() if taken.call.size < MIB else 1)
    assert next(t for t in found.taken if t.call.size == MIB // 4).candidate.is_own
    assert needed(1.0, 8) == 1.0


def test_nothing_is_changed_for_nothing() -> None:
    """Tests that with one switch for all the library's own stays in the order given."""
    one = job(planted((8,), uplink=1e12), "reduce_scatter", size=8 * MIB)
    found = chosen(one)
    assert all(taken.candidate.is_own for taken in found.taken)
    assert found.rank_map.order == one.given
    assert found.given == found.ordered == found.tuned


def test_one_order_for_all_calls() -> None:
    """Tests that what is called most decides on the order of a mix."""
    snapshot = planted((5, 3, 6, 2))
    given = tuple(sorted(snapshot.names))
    candidates = Candidates(LIBRARY, 16)
    totals = []
    for calls in ((1000, 1), (1, 1000)):
        operations = tuple(
            Operation("allreduce", "ring", size, np.arange(16)[None], times)
            for size, times in zip((4096, 16 * MIB), calls, strict=True)
        )
        asked = asked_of_workload(Workload("job", 16, operations), candidates)
        found = chosen(TuningJob(snapshot, candidates, given, (1,) * 16, asked))
        assert found.tuned <= found.ordered <= found.given
        assert sum(call.times for call in found.asked.calls) == 1001
        totals.append(found.tuned)
    assert len({*totals}) == 2


def test_calls_of_some_ranks_bear_on_the_order_alone() -> None:
    """Tests that groups of ranks keep the library's algorithms, and are counted."""
    snapshot = planted((4, 4))
    given, candidates = tuple(sorted(snapshot.names)), Candidates(LIBRARY, 8)
    halves = np.array([[0, 2, 4, 6], [1, 3, 5, 7]])
    operations = (
        Operation("allreduce", "ring", 4 * MIB, np.arange(8)[None], 1),
        Operation("allgather", "nccl_ring", 64 * MIB, halves, 100, "halves"),
    )
    asked = asked_of_workload(Workload("job", 8, operations), candidates)
    assert asked.collectives == ("allreduce",)
    assert [one.library for one in asked.rest] == ["openmpi"]
    found = chosen(TuningJob(snapshot, candidates, given, (1,) * 8, asked))
    order = found.rank_map.order
    racks_of = {
        leaf: number
        for number, rack in enumerate(snapshot.fabric.root.children)  # type: ignore[union-attr]
        for leaf in rack.leaves()
    }
    for half in halves.tolist():
        assert len({racks_of[order[rank]] for rank in half}) == 1


def test_an_even_mix_spends_as_much_in_each_size() -> None:
    """Tests how often each size is called where nobody said so."""
    chooser = Chooser(job(planted((5, 3, 6, 2)), "allreduce"), even=True)
    spent = [
        call.times * rows[0, 0]
        for call, rows in zip(chooser.asked.calls, chooser.sheet.seconds, strict=True)
    ]
    assert max(spent) < 1.6 * min(spent)


def answer() -> Answer:
    return tune(job(planted((3, 1, 2)), "allreduce", "bcast"), even=True)


def test_the_map_carries_the_choice() -> None:
    """Tests that ranges of the map say what was chosen on both sides of thresholds."""
    one = job(planted((3, 3, 2)), "allreduce", "bcast")
    chooser = Chooser(one, even=True)
    found = chooser.choose()
    order = chooser.positions(found.rank_map.order)
    tuning = tuning_of(found.taken, one.candidates, chooser.predictor, order)
    assert tuning.ranks == 8
    assert tuning.library == LIBRARY
    for taken in found.taken:
        said = tuning.at(taken.call.collective, taken.call.size)
        assert said is not None
        assert said.algorithm == taken.candidate.algorithm
        assert said.parameters == taken.candidate.parameters
    assert tuning.changes_anything
    for collective in ("allreduce", "bcast"):
        algorithms = [
            (r.algorithm, tuple(r.parameters.items())) for r in tuning.of(collective)
        ]
        assert all(a != b for a, b in itertools.pairwise(algorithms))


def test_answers_are_the_same_every_time() -> None:
    """Tests that the same snapshot gives the same map."""
    assert answer() == answer()


def test_rows_tell_every_range() -> None:
    """Tests that the rows of an answer are its map's ranges, one after the other."""
    found = answer()
    tuning = found.rank_map.tuning
    assert tuning is not None
    assert tuple(row.range for row in found.rows) == tuning.ranges
    for row, after in itertools.pairwise(found.rows):
        if row.range.collective == after.range.collective:
            assert row.most == after.range.least
        else:
            assert row.most is None
    assert all(row.own for row in found.rows)
    assert all(row.gain >= sure_gain() for row in found.rows if row.range.algorithm)
