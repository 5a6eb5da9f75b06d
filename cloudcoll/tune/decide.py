"""What measurements say of a choice: the last word on order and algorithms.

An algorithm is changed at a size only where it was measured faster than the library's
own by more than `MARGIN`, beyond doubt, in the order chosen and in the library's own
best order; the order only where all calls take that much less in it than in the one
given, and one of them beyond doubt. Sizes between are predicted by the model, corrected
by how far it was off at the nearest size measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloudcoll import units
from cloudcoll.arrays import Ints
from cloudcoll.bench.job import Row
from cloudcoll.errors import CloudcollError
from cloudcoll.launch import LaunchRequest
from cloudcoll.rankmap import RankMap
from cloudcoll.tune import Answer, answer_of
from cloudcoll.tune.calls import Call
from cloudcoll.tune.candidates import Candidate
from cloudcoll.tune.choose import (
    ALIKE,
    CandidateOrder,
    Chooser,
    Taken,
    TunedOrder,
    TuningJob,
    needed,
    sure_gain,
)
from cloudcoll.tune.measure import (
    GIVEN,
    ORDERED,
    OWN,
    Numbers,
    Trial,
    TrialResult,
    rivals_of,
    run_trial,
    trial_of,
)

MARGIN = 1.03
"""Times faster that an algorithm, or an order, is to be measured."""

NEAR = 1.25
"""The same of a size between those measured, where the model is corrected by them, and
of one that was measured less than `SEVERAL` times; where it was only once, by the model
as well."""

SEVERAL = 6
"""Repeats from which an interval of a median holds 95 %: of fewer, all are above it by
chance in one case of 2^repeats (the sign test)."""

LEAST_S = 5.0
"""Seconds of a collective below which nothing is started for it."""


@dataclass(frozen=True)
class TuningBench:
    """How jobs of ours are started.

    Attributes
    ----------
    request : LaunchRequest
        Of our program in C.
    env : mapping of str to str
        Of the launcher.
    numbers : Numbers
    until : float
        The monotonic clock at which all is to be done.
    on_row : callable
        See `cloudcoll.bench.job.run_bench`.
    """

    request: LaunchRequest
    env: Mapping[str, str]
    numbers: Numbers
    until: float
    on_row: Callable[[Row, float], None] = field(default=lambda row, left: None)


def tune_by_bench(job: TuningJob, bench: TuningBench, *, even: bool = False) -> Answer:
    """Return order and algorithms by the model, then by measuring what is close.

    Parameters
    ----------
    job : TuningJob
    bench : TuningBench
    even : bool
        See `Chooser`.
    """
    chooser = Chooser(job, even=even)
    hoped = chooser.choose(1.0)
    others = chooser.alternatives(hoped)
    maps = {OWN: hoped.rank_map}
    maps |= {f"{OWN}-{n}": one.rank_map for n, one in enumerate(others, 2)}
    found = _measured(job, chooser, hoped, maps, others, bench)
    if not found:
        return answer_of(job, chooser, chooser.choose())
    return _Verdict(job, chooser, hoped, maps, found).answer()


def _measured(
    job: TuningJob,
    chooser: Chooser,
    hoped: TunedOrder,
    maps: Mapping[str, RankMap],
    others: Sequence[CandidateOrder],
    bench: TuningBench,
) -> dict[str, TrialResult]:
    """Return what was measured, by collective: each has its share of the time.

    That is its share of what the job spends in all of them.
    """
    made = {name: one.order for name, one in maps.items()}
    orders = {GIVEN: job.given, ORDERED: chooser.own_map.order, **made}
    # Without the order given more is known than by the model alone.
    spare = [*reversed([name for name in made if name != OWN]), GIVEN]
    found: dict[str, TrialResult] = {}
    spent = dict.fromkeys(hoped.asked.collectives, 0.0)
    for one in hoped.taken:
        spent[one.call.collective] += one.call.times * one.own_seconds
    left = sorted(spent, key=spent.__getitem__, reverse=True)
    while left:
        share = spent[left[0]] / (sum(spent[one] for one in left) or 1.0)
        collective = left.pop(0)
        taken = [one for one in hoped.taken if one.call.collective == collective]
        now = time.monotonic()
        until = now + (bench.until - now) * share
        ranked = {
            name: _ranking(chooser, order, one)
            for (name, order), one in zip(made.items(), (None, *others), strict=True)
        }
        rivals = rivals_of(taken, ranked, job.candidates, bench.numbers)
        trial = trial_of(collective, taken, rivals, orders, until - now, spare)
        if trial is None or until - now < LEAST_S:
            job.tell(f"{collective}: no time to measure, by the model alone")
            continue
        job.tell(_words(trial, until - now))
        try:
            found[collective] = run_trial(
                trial, bench.request, bench.env, bench.numbers, until, bench.on_row
            )
        except CloudcollError as error:
            # The model knows an answer; why it is not measured is said.
            job.tell(f"{collective} was not measured: {error}")
    return {name: one for name, one in found.items() if one.sizes}


def _ranking(
    chooser: Chooser, order: tuple[str, ...], made_for: CandidateOrder | None
) -> Callable[[Taken], list[Candidate]]:
    """Return what ranks the candidates of a call in an order, what it is for first."""
    positions = chooser.positions(order)

    def ranked(taken: Taken) -> list[Candidate]:
        found = chooser.ranked(taken, positions)
        if made_for is None or taken.call.collective != made_for.collective:
            return found
        return sorted(found, key=lambda one: one.key != made_for.candidate.key)

    return ranked


def _words(trial: Trial, seconds: float) -> str:
    return (
        f"measuring {trial.collective}: {len(trial.rivals)} algorithms beside the "
        f"library's own, at {len(trial.sizes)} of the sizes, "
        f"at most {units.seconds(seconds)}"
    )


class _Verdict:
    """What follows from measurements.

    Parameters
    ----------
    job, chooser, hoped
        As they were measured.
    maps : mapping of str to RankMap
        The orders made for algorithms: `OWN`, ``own-2``, ....
    found : mapping of str to TrialResult
        By collective; of the others the model's sure choice is taken.
    """

    def __init__(
        self,
        job: TuningJob,
        chooser: Chooser,
        hoped: TunedOrder,
        maps: Mapping[str, RankMap],
        found: Mapping[str, TrialResult],
    ) -> None:
        self._job, self._chooser, self._found = job, chooser, found
        self._hoped, self._maps = hoped, maps
        self._own_map = chooser.own_map
        self._orders: dict[str, Ints] = {
            GIVEN: chooser.given,
            ORDERED: chooser.positions(self._own_map.order),
            **{name: chooser.positions(one.order) for name, one in maps.items()},
        }

    def answer(self) -> Answer:
        """Return the order that takes least, with what carries each call in it."""
        calls = self._hoped.asked.calls
        owns = [self._chooser.sheet.entries[at][0] for at in range(len(calls))]
        given, ordered = (self._total(name, owns) for name in (GIVEN, ORDERED))
        picks = {name: self._picked(name) for name in self._maps}
        totals = {name: self._total(name, picked) for name, picked in picks.items()}
        name = min(totals, key=totals.__getitem__)
        picked, total = picks[name], totals[name]
        if total * MARGIN < min(given, ordered) and self._any_faster(name, picked):
            rank_map = self._maps[name]
        elif self._own_map.order == self._job.given or (
            ordered * MARGIN < given and self._any_faster(ORDERED, owns)
        ):
            name, rank_map, total, picked = ORDERED, self._own_map, ordered, owns
        else:
            name, rank_map, total, picked = GIVEN, self._as_given(), given, owns
        taken = tuple(
            Taken(
                call,
                own,
                one,
                self._seconds(call, one, name),
                self._seconds(call, own, name),
            )
            for call, own, one in zip(calls, owns, picked, strict=True)
        )
        choice = replace(
            self._hoped,
            rank_map=rank_map,
            taken=taken,
            given=given,
            ordered=ordered,
            tuned=total,
        )
        measured = {
            (one.call.collective, one.call.size): (one.seconds, one.own_seconds)
            for one in taken
            if one.call.size in self._sizes(one.call.collective)
        }
        answer = answer_of(self._job, self._chooser, choice, measured)
        return replace(answer, measured=True)

    def _any_faster(self, name: str, picked: Sequence[Candidate]) -> bool:
        """Return whether a call is beyond doubt faster in an order than in that given.

        True where none was measured in both.
        """
        found = []
        for call, one in zip(self._hoped.asked.calls, picked, strict=True):
            trial = self._found.get(call.collective)
            group = trial.trial.group_of(one, name) if trial else ""
            if trial and call.times and group and call.size in trial.sizes:
                gain, least = trial.gain(call.size, group, GIVEN)
                found += [] if math.isnan(gain) else [least > 1.0]
        return any(found) or not found

    def _as_given(self) -> RankMap:
        """Return a map that keeps the order given."""
        mine = self._own_map
        predicted = {**mine.predicted, "cloudcoll": mine.predicted["given"]}
        return replace(
            mine,
            order=self._job.given,
            slots=self._job.slots,
            predicted=predicted,
            origin="given",
            reason="measured no slower than any other",
        )

    def _sizes(self, collective: str) -> Sequence[int]:
        found = self._found.get(collective)
        return found.sizes if found else ()

    def _picked(self, name: str) -> list[Candidate]:
        """Return what carries each call in an order that was made for algorithms."""
        picked: list[Candidate] = []
        for at, call in enumerate(self._hoped.asked.calls):
            entries = self._chooser.sheet.entries[at]
            before = picked[-1] if picked else entries[0]
            if at and self._hoped.asked.calls[at - 1].collective != call.collective:
                before = entries[0]
            picked.append(self._pick(call, entries[0], before, name))
        return picked

    def _pick(
        self, call: Call, own: Candidate, before: Candidate, name: str
    ) -> Candidate:
        """Return what carries a call: the own one unless another is surely faster."""
        found = self._found.get(call.collective)
        if found is None:
            return self._unmeasured(call, own, name)
        rivals = {one.candidate.key: one.candidate for one in found.trial.rivals}
        here = [self._at(call, one) for one in rivals.values()]
        timed = [(self._seconds(call, one, name), one) for one in here if one]

        def surely(one: Candidate) -> bool:
            return self._is_faster(call, one, own, name, found)

        timed.sort(key=lambda pair: pair[0])
        least, best = next((pair for pair in timed if surely(pair[1])), (0.0, own))
        # What carried the size below stays where it is as fast as any.
        stays = next((pair for pair in timed if pair[1].key == before.key), None)
        if stays and stays[0] <= least * (1 + ALIKE) and surely(stays[1]):
            return stays[1]
        return best

    def _is_faster(
        self,
        call: Call,
        one: Candidate,
        own: Candidate,
        name: str,
        found: TrialResult,
    ) -> bool:
        """Return whether a rival is beyond doubt faster than the library's own."""
        group = found.trial.group_of(one, name)
        if call.size in found.sizes and group:
            repeats = len(found.times[call.size, group])
            least = MARGIN if repeats >= SEVERAL else NEAR
            # One measurement may be chance: the model has to say the same.
            surely = repeats > 1 or self._is_by_far(
                self._predicted, call, one, own, name
            )
            return surely and all(
                found.gain(call.size, group, n)[1] > least for n in (name, ORDERED)
            )
        return self._is_by_far(self._seconds, call, one, own, name)

    @staticmethod
    def _is_by_far(
        seconds: Callable[[Call, Candidate, str], float],
        call: Call,
        one: Candidate,
        own: Candidate,
        name: str,
    ) -> bool:
        """Return whether by these seconds a rival is `NEAR` times faster."""
        owns = (seconds(call, own, n) for n in (name, ORDERED))
        return min(owns) > NEAR * seconds(call, one, name)

    def _unmeasured(self, call: Call, own: Candidate, name: str) -> Candidate:
        """Return the model's sure choice, for a collective without measurements."""
        at = self._hoped.asked.calls.index(call)
        sheet = self._chooser.sheet
        rows = sheet.seconds[at][:, sheet.column(self._orders[name])]
        least = int(rows.argmin())
        reference = min(rows[0], self._predicted(call, own, ORDERED))
        gain = needed(sure_gain(), call.size)
        return sheet.entries[at][least if reference >= gain * rows[least] else 0]

    def _total(self, name: str, picked: Sequence[Candidate]) -> float:
        """Return seconds of all that the job calls, in one of the orders."""
        calls = self._hoped.asked.calls
        spent = sum(
            call.times * self._seconds(call, one, name)
            for call, one in zip(calls, picked, strict=True)
            if call.times
        )
        return spent + self._chooser.rest(self._orders[name])

    def _seconds(self, call: Call, one: Candidate, name: str) -> float:
        """Return what a call takes: measured, else predicted and corrected."""
        predicted = self._predicted(call, one, name)
        found = self._found.get(call.collective)
        if found is None:
            return predicted
        # An order that was left out is off by as much as the one chosen.
        there = name if name in found.trial.orders else OWN
        group = found.trial.group_of(one, there)
        sizes = [s for s in found.sizes if not math.isnan(found.seconds(s, group))]
        if not sizes:
            return math.inf
        near = min(sizes, key=lambda size: abs(math.log(size / call.size)))
        measured = found.seconds(near, group)
        if near == call.size and there == name:
            return measured
        model = self._predicted(Call(call.collective, near), one, there)
        return predicted * measured / model if model else measured

    def _predicted(self, call: Call, one: Candidate, name: str) -> float:
        there = self._at(call, one) or one
        order = self._orders[name]
        return float(self._chooser.predictor.seconds(call, there, [order])[0])

    def _at(self, call: Call, one: Candidate) -> Candidate | None:
        return self._job.candidates.again(one, call.collective, call.size)
