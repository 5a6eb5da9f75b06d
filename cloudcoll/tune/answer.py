"""What a tuning comes to: a rank map that carries it, and what it should gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloudcoll.rankmap import RankMap
from cloudcoll.tune.choose import Choice, Chooser, Job, Taken
from cloudcoll.tune.ranges import tuning_of
from cloudcoll.tuning import TunedRange


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


def tune(job: Job, *, even: bool = False) -> Answer:
    """Return order and algorithms by the model alone.

    Parameters
    ----------
    job : Job
    even : bool
        See `Chooser`.
    """
    chooser = Chooser(job, even=even)
    return answer_of(job, chooser, chooser.choose())


def answer_of(
    job: Job,
    chooser: Chooser,
    choice: Choice,
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
