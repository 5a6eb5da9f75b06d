"""Choose a job's algorithms together with its order, and tell what that comes to.

From the choice at some sizes follow ranges of sizes, which a rank map carries.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from cloudcoll.arrays import Ints
from cloudcoll.rankmap import RankMap
from cloudcoll.tune.calls import Asked, Call
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import (
    Chooser,
    Taken,
    TunedOrder,
    TuningJob,
    needed,
    sure_gain,
)
from cloudcoll.tune.sheet import Predictor
from cloudcoll.tuning import TunedRange, Tuning

HALVINGS = 6
"""Of the space between two sizes, by the model: a threshold is as sure as the model."""


def tuning_of(
    taken: Sequence[Taken],
    candidates: Candidates,
    predictor: Predictor,
    order: Ints,
    measured: Mapping[tuple[str, int], tuple[float, float]] | None = None,
) -> Tuning:
    """Return what a library is to be told.

    Neighbouring sizes with the same choice are one range. What is smaller than any
    size that was looked at stays the library's.

    Parameters
    ----------
    taken : sequence of Taken
        By collective, and from small to large.
    candidates : Candidates
    predictor : Predictor
    order : ndarray of int64
        In which thresholds are sought.
    measured : mapping, optional
        (collective, bytes) -> seconds by what was chosen and by the library's own.
    """
    ranges: list[TunedRange] = []
    edges = _Edges(candidates, predictor, order)
    measured = measured or {}
    for collective, sizes in itertools.groupby(taken, lambda one: one.call.collective):
        alike = [
            list(same)
            for _, same in itertools.groupby(sizes, lambda o: o.candidate.key)
        ]
        least = 0
        if not alike[0][0].candidate.is_own:
            ranges.append(TunedRange(collective, 0))
            least = max(1, alike[0][0].call.size // 2)
        for number, same in enumerate(alike):
            ranges.append(_range(collective, least, same, measured))
            if number + 1 < len(alike):
                least = edges.between(same[-1], alike[number + 1][0], measured)
    return Tuning(candidates.library, candidates.ranks, candidates.local, tuple(ranges))


def _range(
    collective: str,
    least: int,
    same: Sequence[Taken],
    measured: Mapping[tuple[str, int], tuple[float, float]],
) -> TunedRange:
    """Return one range; its times are those of a size that was measured or called.

    Of several the largest.
    """

    def worth(one: Taken) -> tuple[bool, bool, int]:
        known = (one.call.collective, one.call.size) in measured
        return known, one.call.times > 0, one.call.size

    told = max(same, key=worth)
    key = told.call.collective, told.call.size
    seconds, own = measured.get(key, (told.seconds, told.own_seconds))
    return TunedRange(
        collective,
        least,
        told.candidate.algorithm,
        dict(told.candidate.parameters),
        predicted=seconds,
        own=own,
        size=told.call.size,
        measured=key in measured,
    )


def _round(size: int) -> int:
    """Return a size with four binary digits, so that it can be read."""
    unit = 1 << max(0, size.bit_length() - 4)
    return -(-size // unit) * unit


class _Edges:
    """Where one choice ends and the next begins."""

    def __init__(
        self, candidates: Candidates, predictor: Predictor, order: Ints
    ) -> None:
        self._candidates, self._predictor = candidates, predictor
        self._order = order
        self._gain = sure_gain()

    def between(
        self,
        last: Taken,
        first: Taken,
        measured: Mapping[tuple[str, int], tuple[float, float]],
    ) -> int:
        """Return the bytes from which the choice above holds.

        In the middle where measurements decided: what the model says of that is
        no more than it was found to be.
        """
        low, high = last.call.size, first.call.size
        if {(one.call.collective, one.call.size) for one in (last, first)} & {
            *measured
        }:
            return isqrt(low * high)
        for _ in range(HALVINGS):
            middle = isqrt(low * high)
            if self._holds(last, first, middle):
                high = middle
            else:
                low = middle
        return _round(high)

    def _holds(self, last: Taken, first: Taken, size: int) -> bool:
        """Return whether the choice above is to be taken at a size already."""
        call = Call(last.call.collective, size)
        below, above = (self._seconds(call, one.candidate) for one in (last, first))
        if below is None or above is None:
            return below is None
        gain = needed(self._gain, size)
        if last.candidate.is_own:
            return below >= gain * above
        if first.candidate.is_own:
            return above < gain * below
        return above <= below

    def _seconds(self, call: Call, wanted: Candidate) -> float | None:
        """Return what a candidate takes at another size; None if it does not run."""
        one = self._candidates.again(wanted, call.collective, call.size)
        if one is None:
            return None
        return float(self._predictor.seconds(call, one, [self._order])[0])


@dataclass(frozen=True)
class Row:
    """One range of sizes, as it is told.

    Attributes
    ----------
    range : TunedRange
    most : int or None
        Bytes below which it holds; None for the last range of a collective.
    own : tuple of str
        What the library runs in it by itself, from small to large.
    """

    range: TunedRange
    most: int | None
    own: tuple[str, ...]

    @property
    def gain(self) -> float:
        """How many times faster it is than the library's own in the same order."""
        return self.range.own / self.range.predicted if self.range.predicted else 1.0


@dataclass(frozen=True)
class Answer:
    """What was found for one job.

    Attributes
    ----------
    rank_map : RankMap
        Carries the tuning.
    rows : tuple of Row
        Of every range.
    given, ordered, tuned : float
        Seconds of all calls: as the job runs now, by order alone, and by order and
        algorithms.
    name : str
        What the calls are.
    measured : bool
        Whether these are measured.
    """

    rank_map: RankMap
    rows: tuple[Row, ...]
    given: float
    ordered: float
    tuned: float
    name: str
    measured: bool = False

    @property
    def gain(self) -> float:
        """Share of the time as the job runs now that order and algorithms save."""
        return 1 - self.tuned / self.given if self.given else 0.0


def tune(job: TuningJob, *, even: bool = False) -> Answer:
    """Return order and algorithms by the model alone.

    Parameters
    ----------
    job : TuningJob
    even : bool
        See `Chooser`.
    """
    chooser = Chooser(job, even=even)
    return answer_of(job, chooser, chooser.choose())


def best_in(
    job: TuningJob, collective: str, size: int, order: Sequence[str]
) -> Tuning | None:
    """Return the fastest algorithm for one call in one order; None if none surely is.

    Parameters
    ----------
    job : TuningJob
    collective : str
    size : int
        Bytes.
    order : sequence of str
        Hosts.
    """
    call, candidates = Call(collective, size, 1), job.candidates
    chooser = Chooser(replace(job, asked=Asked((call,))))
    place = chooser.positions(order)
    chooser.sheet.add([place])
    rows = chooser.sheet.seconds[0][:, chooser.sheet.column(place)]
    least = int(rows.argmin())
    if rows[0] < needed(sure_gain(), size) * rows[least]:
        return None
    own, one = (chooser.sheet.entries[0][at] for at in (0, least))
    taken = Taken(call, own, one, float(rows[least]), float(rows[0]))
    return tuning_of([taken], candidates, chooser.predictor, place)


def answer_of(
    job: TuningJob,
    chooser: Chooser,
    choice: TunedOrder,
    measured: Mapping[tuple[str, int], tuple[float, float]] | None = None,
) -> Answer:
    """Return a choice as a rank map and what is told of it."""
    tuning = tuning_of(
        choice.taken,
        job.candidates,
        chooser.predictor,
        chooser.positions(choice.rank_map.order),
        measured,
    )
    rank_map = replace(choice.rank_map, tuning=tuning, snapshot=job.snapshot.digest)
    rows = []
    for collective in tuning.collectives:
        ranges = tuning.of(collective)
        ends = [*(one.least for one in ranges[1:]), None]
        sizes = [one for one in choice.taken if one.call.collective == collective]
        for one, end in zip(ranges, ends, strict=True):
            rows.append(Row(one, end, _own_names(sizes, one, end)))
    return Answer(
        rank_map,
        tuple(rows),
        choice.given,
        choice.ordered,
        choice.tuned,
        choice.asked.name,
    )


def _own_names(sizes: list[Taken], one: TunedRange, end: int | None) -> tuple[str, ...]:
    """Return what the library runs by itself in a range."""
    inside = [
        taken.own.selection.algorithm
        for taken in sizes
        if one.least <= taken.call.size and (end is None or taken.call.size < end)
    ]
    # A range below all sizes is what the smallest one's rule says.
    return tuple(dict.fromkeys(inside or [sizes[0].own.selection.algorithm]))
