"""Tests of what measurements make of a choice, with jobs of planted speeds."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.measured.synth import observe, racks
from cloudcoll.rankmap import RankMap
from cloudcoll.tune import Answer, answer_of, decide
from cloudcoll.tune.calls import Asked, Call, asked_of_sizes
from cloudcoll.tune.candidates import Candidates
from cloudcoll.tune.choose import ALTERNATIVES, Chooser, TuningJob
from cloudcoll.tune.decide import (
    MARGIN,
    SEVERAL,
    TuningBench,
    _Verdict,
    tune_by_bench,
)
from cloudcoll.tune.measure import (
    GIVEN,
    LEAST,
    ORDERED,
    OWN,
    RIVALS,
    SELDOM,
    SHARE,
    SIZES,
    Numbers,
    Rival,
    Trial,
    TrialResult,
    rival_name,
    rivals_of,
    trial_of,
)

MIB = 1 << 20


class Planned(NamedTuple):
    """What would have been measured, and in how many seconds."""

    trial: Trial
    seconds: float


Truth = Callable[[str, int, float], float]
"""(algorithm, bytes, predicted seconds) -> seconds that it takes in truth."""


def job(*sizes: int) -> TuningJob:
    fabric = racks((5, 3, 6, 2))
    snapshot = replace(observe(fabric, samples=2), fabric=fabric)
    given = tuple(sorted(snapshot.names))
    asked = asked_of_sizes(["allreduce"], sizes, 16, "a mix")
    library = Candidates("openmpi@5.0.11", 16)
    return TuningJob(snapshot, library, given, (1,) * 16, asked)


@pytest.fixture(scope="module")
def chooser(small_search: None) -> Chooser:
    """Of allreduces of all sizes."""
    made = Chooser(job(), even=True)
    made.choose(1.0)
    return made


def rivals_in(chooser: Chooser, order: str, *names: str) -> list[Rival]:
    """Return algorithms as they are measured in an order."""
    others = chooser.job.candidates.others("allreduce", 8 * MIB)
    return [Rival(one, order) for one in others if one.algorithm in names]


def decided(
    chooser: Chooser,
    truth: Truth,
    repeats: int = 8,
    *,
    without: str = "",
    other: RankMap | None = None,
) -> Answer:
    """Return the answer where measurements say what the truth is, with no noise."""
    hoped, own_map = chooser.choose(1.0), chooser.own_map
    maps = {OWN: hoped.rank_map} | ({"own-2": other} if other else {})
    orders = {GIVEN: chooser.job.given, ORDERED: own_map.order}
    orders |= {name: one.order for name, one in maps.items()}
    orders.pop(without, None)
    rivals = rivals_in(chooser, OWN, "ring", "recursive_doubling")
    rivals += rivals_in(chooser, "own-2", "segmented_ring") if other else []
    trial = trial_of("allreduce", hoped.taken, rivals, orders, 1e9)
    assert trial is not None
    times: dict[tuple[int, str], Mapping[int, float]] = {}
    for size in trial.sizes:
        call = next(one.call for one in hoped.taken if one.call.size == size)
        own = chooser.job.candidates.own("allreduce", size)
        names = [(name, own, name) for name in orders]
        names += [
            (rival_name(at), one.candidate, one.order) for at, one in enumerate(rivals)
        ]
        for name, one, order in names:
            place = chooser.positions(orders[order])
            predicted = float(chooser.predictor.seconds(call, one, [place])[0])
            seconds = truth(one.selection.algorithm, size, predicted)
            times[size, name] = dict.fromkeys(range(repeats), seconds)
    found = {"allreduce": TrialResult(trial, times)}
    return _Verdict(chooser.job, chooser, hoped, maps, found).answer()


def algorithms(answer: Answer) -> list[str]:
    tuning = answer.rank_map.tuning
    assert tuning is not None
    return [one.algorithm for one in tuning.of("allreduce")]


def planned(
    monkeypatch: pytest.MonkeyPatch,
    made: TuningJob,
    *,
    even: bool = True,
    seconds: float = 1e6,
) -> list[Planned]:
    """Tune with jobs that can't be started; return what would have been measured."""
    found: list[Planned] = []

    def run(trial: Trial, *rest: object) -> TrialResult:
        until = rest[3]
        assert isinstance(until, float)
        found.append(Planned(trial, until - time.monotonic()))
        raise LaunchError("no hosts")

    monkeypatch.setattr(decide, "run_trial", run)
    hosts = tuple(Host(name) for name in made.given)
    request = LaunchRequest(OpenMpi4(), ("mpirun",), 1, hosts, "F", made.slots)
    numbers = Numbers("none", {})
    bench = TuningBench(request, {}, numbers, time.monotonic() + seconds)
    answer = tune_by_bench(made, bench, even=even)
    by_model = Chooser(made, even=even)
    assert answer.rank_map == answer_of(made, by_model, by_model.choose()).rank_map
    assert not answer.measured
    return found


def test_collectives_are_measured_apart_by_what_they_take(
    monkeypatch: pytest.MonkeyPatch, small_search: None
) -> None:
    """Tests that one that can't be measured leaves its time to the next."""
    told: list[str] = []
    asked = asked_of_sizes(["allreduce", "allgather"], [8 * MIB], 16, "a mix")
    made = replace(job(), asked=asked)
    spent = dict.fromkeys(asked.collectives, 0.0)
    for one in Chooser(made, even=True).choose(1.0).taken:
        spent[one.call.collective] += one.call.times * one.own_seconds
    first, second = planned(monkeypatch, replace(made, tell=told.append))
    measured = first.trial.collective, second.trial.collective
    assert measured == tuple(sorted(spent, key=lambda name: -spent[name]))
    share = max(spent.values()) / sum(spent.values())
    assert first.seconds == pytest.approx(share * 1e6, rel=1e-3)
    assert second.seconds == pytest.approx(1e6, rel=1e-3)
    for trial in (first.trial, second.trial):
        own, other = (
            {one.algorithm for one in job().candidates.others(name, 8 * MIB)}
            for name in sorted(asked.collectives, key=trial.collective.__ne__)
        )
        tried = {one.candidate.algorithm for one in trial.rivals}
        assert tried <= own
        assert not tried <= other
    assert [line for line in told if "was not measured" in line] == [
        f"{name} was not measured: no hosts" for name in measured
    ]


def test_what_takes_longest_is_measured_for_longest(
    monkeypatch: pytest.MonkeyPatch, small_search: None
) -> None:
    """Tests that short calls take no time from those that the job waits for."""
    small = Call("bcast", 64, times=12)
    large = Call("allgather", 8 * MIB, times=6)
    asked = Asked((small, large), name="a job")
    made = replace(job(), asked=asked)
    first, *rest = planned(monkeypatch, made, even=False)
    assert first.trial.collective == "allgather"
    assert first.seconds > 0.98e6
    assert [one.trial.collective for one in rest] == ["bcast"]


def test_rather_no_order_given_than_no_measurement(
    monkeypatch: pytest.MonkeyPatch, small_search: None
) -> None:
    """Tests that long calls are measured in the two orders that have to be."""
    asked = Asked((Call("allgather", 32 * MIB, times=6),), name="a job")
    made = replace(job(), asked=asked)
    (only,) = planned(monkeypatch, made, even=False, seconds=97.0)
    assert only.trial.collective == "allgather"
    assert {*only.trial.orders} == {ORDERED, OWN}


def test_what_an_order_is_for_is_measured_in_it(
    monkeypatch: pytest.MonkeyPatch, chooser: Chooser
) -> None:
    """Tests that each order has a rival, first the algorithm that it was made for."""
    made = chooser.alternatives(chooser.choose(1.0))
    (only,) = planned(monkeypatch, chooser.job)
    for number, other in enumerate(made, 2):
        name = f"{OWN}-{number}"
        assert only.trial.orders[name] == other.rank_map.order
        first = next(one for one in only.trial.rivals if one.order == name)
        assert first.candidate.key == other.candidate.key


def test_what_was_not_measured_is_as_sure_as_the_model(
    small_search: None,
) -> None:
    """Tests that a collective without measurements gets the model's sure choice."""
    made = Chooser(job(8 * MIB), even=True)
    hoped, sure = made.choose(1.0), made.choose()
    verdict = _Verdict(made.job, made, hoped, {OWN: hoped.rank_map}, {})
    answer = verdict.answer()
    assert answer.rank_map.order == sure.rank_map.order
    taken = groupby(one.candidate.algorithm for one in sure.taken)
    assert algorithms(answer) == [name for name, _ in taken]
    assert answer.tuned == pytest.approx(sure.tuned)


def test_what_is_measured_faster_is_taken(chooser: Chooser) -> None:
    """Tests that measurements which bear the model out change the algorithm."""
    answer = decided(chooser, lambda name, size, predicted: predicted)
    assert algorithms(answer) == ["", "ring"]
    assert answer.measured
    assert answer.tuned * MARGIN < answer.ordered < answer.given
    ring = answer.rows[-1].range
    assert ring.measured
    assert ring.own / ring.predicted > 2


def test_an_order_that_was_not_measured_is_predicted(chooser: Chooser) -> None:
    """Tests that it is taken to be off by as much as the order that was measured."""
    whole = decided(chooser, lambda name, size, predicted: 3 * predicted)
    less = decided(chooser, lambda name, size, predicted: 3 * predicted, without=GIVEN)
    assert less.given == pytest.approx(whole.given)
    assert (less.ordered, less.tuned) == pytest.approx((whole.ordered, whole.tuned))
    assert less.rank_map.order == whole.rank_map.order


def test_what_is_measured_slower_is_not(chooser: Chooser) -> None:
    """Tests a network where no other algorithm is faster, whatever was predicted."""
    answer = decided(chooser, lambda name, size, s: s * (9 if name == "ring" else 1))
    assert algorithms(answer) == [""]
    assert answer.rank_map.order == chooser.own_map.order
    assert answer.tuned == answer.ordered


def test_two_measurements_may_be_enough(chooser: Chooser) -> None:
    """Tests calls so long that there was time for two: one much faster is taken."""
    own = {one.call.size: one for one in chooser.choose(1.0).taken}

    def truth(name: str, size: int, predicted: float) -> float:
        # The model does not expect it.
        return own[size].seconds / 3 if name == "recursive_doubling" else predicted

    for repeats, taken in ((1, False), (2, True)):
        tuning = decided(chooser, truth, repeats).rank_map.tuning
        assert tuning is not None
        largest = tuning.at("allreduce", max(own))
        assert largest is not None
        assert (largest.algorithm == "recursive_doubling") == taken


def test_one_measurement_is_enough_for_what_the_model_expects(
    chooser: Chooser,
) -> None:
    """Tests a single measurement that says what was predicted."""
    answer = decided(chooser, lambda name, size, predicted: predicted, repeats=1)
    assert algorithms(answer) == ["", "ring"]


def test_few_repeats_have_to_agree_on_more(small_search: None) -> None:
    """Tests a ring measured 20 % faster, too seldom and then often enough."""
    chooser = Chooser(job(MIB >> 4), even=True)
    own = {one.call.size: one for one in chooser.choose(1.0).taken}

    def truth(name: str, size: int, predicted: float) -> float:
        if name == "ring":
            return own[size].own_seconds / 1.2
        return predicted * (1 if name == own[size].own.selection.algorithm else 9)

    assert algorithms(decided(chooser, truth, SEVERAL - 1)) == [""]
    assert algorithms(decided(chooser, truth, SEVERAL)) == ["", "ring"]


def test_what_is_surely_faster_is_taken_beside_what_may_be(chooser: Chooser) -> None:
    """Tests a rival whose median is the least by far, and whose repeats disagree."""
    hoped = chooser.choose(1.0)
    sure, doubtful = rivals_in(chooser, OWN, "ring", "recursive_doubling")
    if sure.candidate.selection.algorithm != "ring":
        sure, doubtful = doubtful, sure
    size = max(one.call.size for one in hoped.taken)
    orders = {GIVEN: chooser.job.given, ORDERED: chooser.own_map.order}
    orders[OWN] = hoped.rank_map.order
    trial = Trial("allreduce", (size,), orders, (sure, doubtful))
    times: dict[tuple[int, str], Mapping[int, float]] = {
        (size, name): dict.fromkeys(range(3), 1.0) for name in orders
    }
    times[size, rival_name(0)] = dict.fromkeys(range(3), 0.5)
    times[size, rival_name(1)] = {0: 0.1, 1: 0.1, 2: 2.0}
    found = {"allreduce": TrialResult(trial, times)}
    verdict = _Verdict(chooser.job, chooser, hoped, {OWN: hoped.rank_map}, found)
    tuning = verdict.answer().rank_map.tuning
    assert tuning is not None
    largest = tuning.at("allreduce", size)
    assert largest is not None
    assert largest.algorithm == "ring"


@pytest.mark.parametrize(("noise", "taken"), [(0.3, False), (0.01, True)])
def test_an_order_is_taken_beyond_noise_alone(
    chooser: Chooser, noise: float, taken: bool
) -> None:
    """Tests repeats whose median is 6 % less in the best order than in that given."""
    hoped, source = chooser.choose(1.0), random.Random(3)
    sizes = tuple(one.call.size for one in hoped.taken if one.call.times)
    orders = {GIVEN: chooser.job.given, ORDERED: chooser.own_map.order}
    orders[OWN] = hoped.rank_map.order
    trial = Trial("allreduce", sizes, orders, ())
    times: dict[tuple[int, str], Mapping[int, float]] = {}
    for size in sizes:
        # As many above the median as below it.
        off = [noise * n for n in (-2, -1, 0, 1, 2)]
        for name, seconds in ((GIVEN, 1.0), (ORDERED, 0.94), (OWN, 1.5)):
            source.shuffle(off)
            times[size, name] = {
                at: size * seconds * math.exp(one) for at, one in enumerate(off)
            }
    found = {"allreduce": TrialResult(trial, times)}
    verdict = _Verdict(chooser.job, chooser, hoped, {OWN: hoped.rank_map}, found)
    given, ordered = (chooser.job.given, chooser.own_map.order)
    assert given != ordered
    assert verdict.answer().rank_map.order == (ordered if taken else given)


def test_orders_of_other_algorithms_are_left_out_first(chooser: Chooser) -> None:
    """Tests that they are measured where there is time for twice what is predicted."""
    one = chooser.job.given
    orders = {GIVEN: one, ORDERED: one, OWN: one, "own-2": (*one[1:], one[0])}
    rivals = [Rival(o) for o in chooser.job.candidates.others("allreduce", MIB)]
    rivals += [Rival(rivals[0].candidate, "own-2")]
    largest = chooser.choose(1.0).taken[-1]
    each = min(largest.own_seconds, 2 * largest.seconds)
    needed = (2 * 1.5 * largest.own_seconds + 2 * each) * (LEAST + 1) / SHARE
    for seconds, kept in ((1.9 * needed, False), (2.1 * needed, True)):
        trial = trial_of(
            "allreduce", [largest], rivals, orders, seconds, ["own-2", GIVEN]
        )
        assert trial is not None
        assert ("own-2" in trial.orders) == kept
        assert GIVEN in trial.orders
        assert kept or all(rival.order == OWN for rival in trial.rivals)


def test_the_order_given_stays_where_it_is_fastest(chooser: Chooser) -> None:
    """Tests measurements in which neither order nor algorithm gains anything."""
    own = {one.call.size: one for one in chooser.choose(1.0).taken}

    def truth(name: str, size: int, predicted: float) -> float:
        # The better the order was predicted to be, the worse it is.
        worse = own[size].own_seconds ** 2 / predicted
        return worse * (1 if name == own[size].own.selection.algorithm else 99)

    answer = decided(chooser, truth)
    assert answer.rank_map.order == chooser.job.given
    assert algorithms(answer) == [""]
    assert answer.rank_map.kept == "measured no slower than any other: order kept"


def test_the_threshold_is_where_measurements_say(chooser: Chooser) -> None:
    """Tests that a ring which is only fast from 4 MiB on is taken from there on."""
    answer = decided(
        chooser,
        lambda name, size, s: s * (4 if name == "ring" and size < 4 * MIB else 1),
    )
    assert algorithms(answer) == ["", "ring"]
    tuning = answer.rank_map.tuning
    assert tuning is not None
    assert MIB < tuning.of("allreduce")[1].least <= 8 * MIB


def test_the_order_of_another_algorithm_is_taken_where_that_is_faster(
    chooser: Chooser,
) -> None:
    """Tests an algorithm that the model puts second, in the order made for it."""
    hoped = chooser.choose(1.0)
    other = next(
        one
        for one in chooser.alternatives(hoped)
        if one.candidate.selection.algorithm == "segmented_ring"
    )
    # The ring is the model's choice, and fast in no order.
    slow = {"ring": 9.0, "segmented_ring": 0.5}
    answer = decided(
        chooser,
        lambda name, size, s: s * slow.get(name, 1.0),
        other=other.rank_map,
    )
    assert answer.rank_map.order == other.rank_map.order
    assert "segmented_ring" in algorithms(answer)
    # It was not measured in the order of the model's choice, and counts for nothing
    # where its own order is left out.
    without = decided(chooser, lambda name, size, s: s * slow.get(name, 1.0))
    assert without.rank_map.order != other.rank_map.order


def test_alternatives_are_orders_of_their_own(chooser: Chooser) -> None:
    """Tests that each is of an algorithm not taken, and that none is there already."""
    hoped = chooser.choose(1.0)
    found = chooser.alternatives(hoped)
    assert 1 <= len(found) <= ALTERNATIVES
    orders = {one.rank_map.order for one in found}
    assert len(orders) == len(found)
    assert not orders & {hoped.rank_map.order, chooser.own_map.order}
    taken = {one.candidate.selection.algorithm for one in hoped.taken}
    for one in found:
        assert one.candidate.selection.algorithm not in taken
        assert not one.candidate.is_own


def test_rivals_of_the_chosen_order_come_first(chooser: Chooser) -> None:
    """Tests that orders take turns after the most promising ones of the one chosen."""
    hoped = chooser.choose(1.0)
    largest = hoped.taken[-1:]
    ring, doubling = (
        rivals_in(chooser, OWN, name)[0].candidate
        for name in ("ring", "recursive_doubling")
    )
    both = [ring, doubling, hoped.taken[-1].own]
    found = rivals_of(
        largest,
        {OWN: lambda call: both[:2], "own-2": lambda call: both[::-1]},
        chooser.job.candidates,
        Numbers("none", {}),
    )
    assert found == [
        *(Rival(ring), Rival(doubling)),
        *(Rival(doubling, "own-2"), Rival(ring, "own-2")),
    ]


def test_sizes_on_both_sides_of_a_threshold(chooser: Chooser) -> None:
    """Tests what is measured: both sides of each change, the largest, and what fits."""
    hoped = chooser.choose(1.0)
    one = chooser.job.given
    orders = {GIVEN: one, ORDERED: one, OWN: one}
    rivals = [Rival(one) for one in chooser.job.candidates.others("allreduce", MIB)]
    trial = trial_of("allreduce", hoped.taken, rivals, orders, 1e9)
    assert trial is not None
    assert len(trial.sizes) <= SIZES
    assert len(trial.rivals) <= RIVALS
    sizes = [taken.call.size for taken in hoped.taken]
    keys = [taken.candidate.key for taken in hoped.taken]
    change = next(i for i in range(len(keys) - 1) if keys[i] != keys[i + 1])
    assert {sizes[change], sizes[change + 1], sizes[-1]} <= {*trial.sizes}
    assert len(trial.groups()) == 1 + len(trial.rivals)
    short = trial_of("allreduce", hoped.taken, rivals, orders, 5.0)
    assert short is not None
    assert 2 <= len(short.rivals) < len(trial.rivals)
    for taken in hoped.taken:
        if taken.call.size in short.sizes:
            assert taken.own_seconds * LEAST < 5.0
    assert max(short.sizes) < max(trial.sizes)
    largest = hoped.taken[-1]
    orders[GIVEN] = (*one[1:], one[0])
    seconds = (2 * 1.5 + 2) * largest.own_seconds * (LEAST + 1)
    seldom = trial_of("allreduce", [largest], rivals, orders, seconds)
    assert seldom is not None
    assert {*seldom.orders} == {GIVEN, ORDERED, OWN}
    fewer = seconds * (SELDOM + 1) / (LEAST + 1)
    assert trial_of("allreduce", [largest], rivals, orders, fewer) is None
    part = trial_of("allreduce", [largest], rivals, orders, seconds, [GIVEN])
    assert part is not None
    assert {*part.orders} == {ORDERED, OWN}
    assert trial_of("allreduce", hoped.taken, [], orders, 1e9) is None
    assert trial_of("allreduce", hoped.taken, rivals, orders, 1e-9) is None


def test_ratios_are_of_neighbours_in_time() -> None:
    """Tests that drift which hits both alike does not hide a gain."""
    trial = Trial("allreduce", (8,), {OWN: ("a", "b")}, ())
    drift = [1.0, 9.0, 2.0, 7.0, 3.0]
    times = {
        (8, OWN): dict(enumerate(drift)),
        (8, "rival-0"): {at: s / 2 for at, s in enumerate(drift)},
        (8, "seldom"): {0: 2.0, 2: 1.0},
    }
    measured = TrialResult(trial, times)
    assert measured.gain(8, "rival-0", OWN) == (2.0, 2.0)
    assert measured.gain(8, "seldom", OWN) == (1.25, 0.5)
    assert math.isnan(measured.gain(8, "none", OWN)[0])
    assert measured.sizes == [8]
