"""From the choice at some sizes to ranges of sizes: what a rank map carries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import isqrt

from cloudcoll.arrays import Ints
from cloudcoll.tune.calls import Call
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import Taken, needed, sure_gain
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


def _collective(one: Taken) -> str:
    return one.call.collective


def _choice(one: Taken) -> object:
    return one.candidate.key


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
        for one in self._ways(call):
            if one.key == wanted.key:
                return float(self._predictor.seconds(call, one, [self._order])[0])
        return None

    def _ways(self, call: Call) -> Iterator[Candidate]:
        yield self._candidates.own(call.collective, call.size)
        yield from self._candidates.others(call.collective, call.size)
