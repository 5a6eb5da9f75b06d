"""A short bench of what is close, in the job's own launcher.

One job for each collective. Each candidate has a communicator of its own, made while
the library is told to run it (MPI_T), so that all take turns within milliseconds, as
orders do in `cloudcoll bench`: what decides is the ratio of neighbours in time.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, zip_longest

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.bench.compare import start_seconds
from cloudcoll.bench.job import (
    BenchPace,
    BenchPlan,
    JobOutput,
    NamedOrder,
    Row,
    plan_bench,
    run_bench,
)
from cloudcoll.bench.result import OPERATIONS, interval
from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch import LaunchRequest
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.choose import Taken

GIVEN, ORDERED, OWN = "given", "ordered", "own"
"""Names of the library's own choice in the order given, in its own best order, and in
the order of what was chosen; ``own-2``, ... are the best orders of other algorithms."""

SIZES = 4
"""Sizes of a collective that are measured, at most."""

RIVALS = 24
"""Candidates of a collective that are measured, at most, in all orders: of short calls,
which the model knows least of, there is time for as many."""

FEWEST = 2
"""The same where time is short, the most promising ones in the order chosen."""

LEAST, MOST = 4, 30
"""Measurements of each at each size."""

SELDOM = 2
"""As many of each where there is no time for `LEAST` of the largest call: what both say
is known, if it is a large gain."""

NARROW = 0.02
"""Half width of the intervals of ratios, at which a size ends."""

DOUBT = 2.0
"""Times longer than predicted that calls may take: all-to-alls of many senders do. More
orders and rivals than the fewest are measured where there is time for that."""

MIN_S = 0.02
"""A measurement of a fast call is the mean of as many as fit into this."""

SHARE = 0.8
"""Of a collective's time that one size may be predicted to take."""

TIMEOUT_S = 120.0
"""Beside its time, seconds after which a job is stopped."""

DEADLINE_S = 10.0
"""For a program that only prints numbers."""


Group = tuple[NamedOrder, Mapping[str, str]]
"""What has a communicator of its own: hosts in order, and what the library is told."""


@dataclass(frozen=True)
class Rival:
    """A candidate that is measured beside the library's own.

    Attributes
    ----------
    candidate : Candidate
    order : str
        The name of the order in which it is measured.
    """

    candidate: Candidate
    order: str = OWN


@dataclass(frozen=True)
class Trial:
    """What is measured of one collective.

    Attributes
    ----------
    collective : str
    sizes : tuple of int
        Ascending.
    orders : mapping of str to sequence of str
        Hosts by `GIVEN`, `ORDERED`, `OWN`, ``own-2``, ...: of the library's own.
    rivals : tuple of Rival
        By the names ``rival-0``, ``rival-1``, ....
    """

    collective: str
    sizes: tuple[int, ...]
    orders: Mapping[str, tuple[str, ...]]
    rivals: tuple[Rival, ...]

    def groups(self) -> list[Group]:
        """Return what is measured, the library's own in the order chosen first."""
        names: dict[tuple[str, ...], list[str]] = {}
        for name in (OWN, *self.orders):
            same = names.setdefault(self.orders[name], [])
            same += [name] if name not in same else []
        own: list[Group] = [
            (NamedOrder(same[0], hosts, tuple(same[1:])), {})
            for hosts, same in names.items()
        ]
        return [
            *own,
            *(
                (
                    NamedOrder(rival_name(at), self.orders[one.order]),
                    one.candidate.settings,
                )
                for at, one in enumerate(self.rivals)
            ),
        ]

    def group_of(self, one: Candidate, order: str) -> str:
        """Return the name of what measures a candidate in an order; empty for none."""
        if one.is_own:
            return order if order in self.orders else ""
        keys = [(rival.candidate.key, rival.order) for rival in self.rivals]
        found = one.key, order
        return rival_name(keys.index(found)) if found in keys else ""


def rival_name(at: int) -> str:
    """Return the name of a rival's group."""
    return f"rival-{at}"


@dataclass(frozen=True)
class TrialResult:
    """What a trial found.

    Attributes
    ----------
    trial : Trial
    times : mapping
        (bytes, name) -> seconds by repeat; names that equal another are there, too.
    """

    trial: Trial
    times: Mapping[tuple[int, str], Mapping[int, float]]

    @property
    def sizes(self) -> list[int]:
        """Those at which everything was measured, ascending."""
        names = {OWN, *self.trial.orders}
        return [
            size
            for size in self.trial.sizes
            if all((size, name) in self.times for name in names)
        ]

    def seconds(self, size: int, name: str) -> float:
        """Return the median; NaN for nothing measured."""
        found = self.times.get((size, name), {})
        return float(np.median(list(found.values()))) if found else math.nan

    def gain(self, size: int, name: str, over: str) -> tuple[float, float]:
        """Return how many times faster one is than another, and the least it may be.

        The median of the ratios of neighbours in time, and the low end of its 95 %
        interval; that is the least of them where they are too few to have one.
        """
        mine, theirs = (self.times.get((size, n), {}) for n in (name, over))
        both = sorted(set(mine) & set(theirs))
        if not both:
            return math.nan, 0.0
        ratios: Floats = np.array([theirs[at] / mine[at] for at in both])
        low, _ = interval(ratios)
        return float(np.median(ratios)), float(min(ratios)) if math.isnan(low) else low


def trial_of(
    collective: str,
    taken: Sequence[Taken],
    rivals: Sequence[Rival],
    orders: Mapping[str, tuple[str, ...]],
    seconds: float,
    spare: Sequence[str] = (),
) -> Trial | None:
    """Return what to measure of a collective; None where there is nothing.

    On both sides of every change of the choice, then the largest and what is between,
    as far as the time goes.

    Parameters
    ----------
    collective : str
    taken : sequence of Taken
        Its calls, from small to large, by the model, sure or not.
    rivals : sequence of Rival
        The most promising first.
    orders : mapping
        See `Trial`.
    seconds : float
        There are for it.
    spare : sequence of str
        Names of orders that are left out, one after the other, where there is no time
        for the largest call otherwise.
    """
    called = [one for one in taken if one.call.times] or list(taken)
    time = SHARE * seconds
    # Rather fewer orders, rivals and repeats than not to know of the calls that take
    # longest.
    for name in spare:
        doubt = 1.0 if name == GIVEN else DOUBT
        if doubt * _needs(called[-1], orders, FEWEST) <= time:
            continue
        orders = {kept: one for kept, one in orders.items() if kept != name}
    rivals = [one for one in rivals if one.order in orders][:RIVALS]
    count = min(len(rivals), FEWEST)
    repeats = LEAST if _needs(called[-1], orders, count) <= time else SELDOM
    affordable = [one for one in called if _needs(one, orders, count, repeats) <= time]
    if not count or not affordable:
        return None
    wanted: list[Taken] = []
    for below, above in pairwise(affordable):
        if below.candidate.key != above.candidate.key:
            wanted += [above, below]
    wanted += [affordable[-1], affordable[len(affordable) // 2], affordable[0]]
    wanted += sorted(affordable, key=lambda one: -one.call.times * one.own_seconds)
    measured = list({one.call.size: one for one in wanted}.values())[:SIZES]
    while count < len(rivals) and time >= DOUBT * sum(
        _needs(one, orders, count + 1, repeats) for one in measured
    ):
        count += 1
    sizes = sorted(one.call.size for one in measured)
    return Trial(collective, tuple(sizes), orders, tuple(rivals[:count]))


def _needs(
    one: Taken,
    orders: Mapping[str, tuple[str, ...]],
    rivals: int,
    repeats: int = LEAST,
) -> float:
    """Return the seconds of so many measurements of a call, and of their warm-up."""
    # In other orders the library's own takes longer than in the chosen one.
    own = max(MIN_S, 1.5 * one.own_seconds)
    each = max(MIN_S, min(one.own_seconds, 2 * one.seconds))
    return (len({*orders.values()}) * own + rivals * each) * (repeats + 1)


def plan_groups(
    collective: str,
    sizes: Sequence[int],
    groups: Sequence[Group],
    request: LaunchRequest,
    numbers: Callable[[str, str], int],
    pace: BenchPace,
) -> tuple[BenchPlan, dict[int, int]]:
    """Return the job that measures some groups, and the sizes asked for by its own.

    Parameters
    ----------
    collective : str
    sizes : sequence of int
    groups : sequence of Group
        The first is the one that ratios are of.
    request : LaunchRequest
        Of our program in C.
    numbers : callable
        (variable, value) -> the number that MPI_T takes for it.
    pace : BenchPace
    """
    operation, ranks = OPERATIONS[collective], sum(request.slots)
    asked = {operation.round_down(size, ranks): size for size in sizes}
    plan = plan_bench(
        request,
        [order for order, _ in groups],
        collective=collective,
        sizes=sorted(asked),
        pace=pace,
    )
    told = {
        order.name: {name: numbers(name, value) for name, value in settings.items()}
        for order, settings in groups
        if settings
    }
    settings = {"settings": told} if told else {}
    reference = {"reference": groups[0][0].name}
    return replace(plan, spec={**plan.spec, **reference, **settings}), asked


def run_trial(
    trial: Trial,
    request: LaunchRequest,
    env: Mapping[str, str],
    numbers: Callable[[str, str], int],
    until: float,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
) -> TrialResult:
    """Start the job of a trial and return what it measured.

    Parameters
    ----------
    trial : Trial
    request, numbers
        See `plan_groups`.
    env : mapping
        Of the launcher.
    until : float
        The monotonic clock at which the job should end.
    on_row : callable
        See `run_bench`.

    Raises
    ------
    CloudcollError
        Nothing was measured.
    """
    left = until - time.monotonic()
    box = max(0.0, left - start_seconds(sum(request.slots)))
    pace = BenchPace(MOST, box, NARROW, LEAST, min_seconds=MIN_S)
    groups = trial.groups()
    plan, asked = plan_groups(
        trial.collective, trial.sizes, groups, request, numbers, pace
    )
    done = run_bench(plan, env, max(left, 0.0) + TIMEOUT_S, on_row)
    return TrialResult(trial, times_of(groups, done, asked))


def times_of(
    groups: Sequence[Group], done: JobOutput, asked: Mapping[int, int]
) -> dict[tuple[int, str], dict[int, float]]:
    """Return seconds by repeat, by bytes and name; results that are wrong are none."""
    times: dict[tuple[int, str], dict[int, float]] = {}
    aliases = {order.name: order.same_as for order, _ in groups}
    wrong = {row["order"] for row in done.rows if row["wrong"]}
    for row in done.rows:
        if row["order"] in wrong:
            continue
        for name in (row["order"], *aliases[row["order"]]):
            series = times.setdefault((asked[row["bytes"]], name), {})
            series[row["repeat"]] = row["time_us"] * 1e-6
    return times


class Numbers:
    """What MPI_T takes for the values of variables, which have names in MPICH.

    Parameters
    ----------
    program : str
        Ours in C.
    env : mapping
        In which it finds its library.
    """

    def __init__(self, program: str, env: Mapping[str, str]) -> None:
        self._program, self._env = program, dict(env)
        self._known: dict[tuple[str, str], int | None] = {}

    def __call__(self, name: str, value: str) -> int:
        """Return the number for a value.

        Raises
        ------
        LaunchError
            The library has no such variable that takes numbers.
        """
        if value.isdecimal():
            return int(value)
        key = name, value
        if key not in self._known:
            self._known[key] = self._asked(name, value)
        found = self._known[key]
        if found is None:
            raise LaunchError(f"{name} can't be set to {value} while a job runs")
        return found

    def knows(self, one: Candidate) -> bool:
        """Return whether a candidate can be told while a job runs."""
        try:
            for name, value in one.settings.items():
                self(name, value)
        except LaunchError:
            return False
        return True

    def _asked(self, name: str, value: str) -> int | None:
        try:
            done = subprocess.run(
                [self._program, "--settings", name],
                env={**self._env, name: value},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CloudcollError(
                f"{self._program} did not tell the number of {name}: {error}"
            ) from error
        words = done.stdout.split()
        return int(words[0]) if words and words[0].isdecimal() else None


def rivals_of(
    taken: Sequence[Taken],
    ranked: Mapping[str, Callable[[Taken], Sequence[Candidate]]],
    candidates: Candidates,
    numbers: Numbers,
) -> list[Rival]:
    """Return what is to be measured beside the library's own, the best first.

    Those that are fastest in the order chosen, then by turns those of each order.

    Parameters
    ----------
    taken : sequence of Taken
        Calls of one collective.
    ranked : mapping of str to callable
        By the name of an order, `OWN` first: call -> its candidates, the fastest by the
        model first.
    candidates : Candidates
    numbers : Numbers
        Candidates that can't be told while a job runs are left out.
    """
    lists = [
        [Rival(one, name) for one in _fastest(taken, ranks, candidates, numbers)]
        for name, ranks in ranked.items()
    ]
    turns = chain.from_iterable(zip_longest(lists[0][FEWEST:], *lists[1:]))
    return [*lists[0][:FEWEST], *(one for one in turns if one is not None)][:RIVALS]


def _fastest(
    taken: Sequence[Taken],
    ranked: Callable[[Taken], Sequence[Candidate]],
    candidates: Candidates,
    numbers: Numbers,
) -> list[Candidate]:
    """Return what is fastest in one order, for calls that take most first."""
    found: dict[object, Candidate] = {}
    called = [one for one in taken if one.call.times] or list(taken)
    lists = [
        [one for one in ranked(call) if not one.is_own and numbers.knows(one)]
        for call in sorted(called, key=lambda one: -one.call.times * one.own_seconds)
    ]
    for one in chain.from_iterable(zip_longest(*lists)):
        if one is not None:
            found.setdefault(one.key, one)
    best = list(found.values())
    # The model knows of no segments: two more of the best that has any.
    segmented = next((one for one in best if one.parameters.get("segment")), None)
    if segmented is not None:
        largest = max(called, key=lambda one: one.call.size).call
        others = candidates.others(largest.collective, largest.size)
        like = [
            one
            for one in others
            if one.shape == segmented.shape and one.key not in found
        ]
        at = best.index(segmented) + 1
        best[at:at] = like[:2]
    return best
