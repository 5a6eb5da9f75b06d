"""One order and the algorithms that go with it, for all that a job calls.

The best order of one algorithm is seldom that of another, and a job has one order for
all its calls. So the orders are what is gone through: the order given, what people use
without a solver, where the search for each promising algorithm would start, and the
best order of what is fastest in those. In each of them every call takes its fastest
candidate; the order in which all calls together take least is the answer.

An algorithm is changed only where the model, as often wrong as it was in measurements,
is still right in nine cases of ten. Below that the library's own stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives.workload import Workload
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.model import fabric_of, network_of, problem_on
from cloudcoll.model.cost import COVERED, MEASURED_OVER_PREDICTED
from cloudcoll.model.message_costs import FREE, costs_in
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.solve import Watch, solve
from cloudcoll.solve.constraints import Constraints, ruled_problem
from cloudcoll.solve.orders import baseline_orders
from cloudcoll.tune.calls import Asked, Call, evenly
from cloudcoll.tune.candidates import Candidate, Candidates
from cloudcoll.tune.sheet import COMPARED, Predictor, Sheet, messages

ALIKE = 0.02
"""A candidate as fast as the fastest but for this share may stand in for it: fewer
ranges, and no change of a segment for what no model knows."""

STARTED = 6
"""Algorithms for whose traffic orders are sought, those with most to gain."""

ALTERNATIVES = 4
"""Of these, those whose best orders are measured beside the one that is predicted to be
the best: in 5 of 24 cells the fastest algorithm was one of them, in an order of its own
(benchmarks/tuning.py)."""

SEARCHED_HOSTS = 64
"""Up to so many hosts the best order of what is fastest is searched for, too; of more,
a search takes seconds and the orders to start from are near the best."""

HEAVY = 100_000
"""Messages of a schedule that is searched for only where nothing else is called."""

ROUNDS = 2
"""Of order and algorithms in turn: a third changes nothing."""


def sure_gain() -> float:
    """Return how many times faster than another an algorithm is to be predicted.

    Each is measured at its own multiple of what is predicted, and which one is not
    known (`cloudcoll.model.cost`); of all pairs, `COVERED` leave the faster one
    faster.
    """
    off = np.array(MEASURED_OVER_PREDICTED)
    return float(np.quantile(np.divide.outer(off, off), COVERED))


def needed(gain: float, size: int) -> float:
    """Return how many times faster an algorithm has to be predicted for a size.

    Of smaller messages than were compared with predictions, the model may be off by as
    much again: what a message costs a rank is not in it.

    Parameters
    ----------
    gain : float
        Where predictions were compared with measurements.
    size : int
        Bytes.
    """
    return gain if size >= COMPARED else gain * gain


@dataclass(frozen=True)
class TuningJob:
    """What is tuned, and where it runs.

    Attributes
    ----------
    snapshot : NetworkSnapshot
    candidates : Candidates
        Of the job's library.
    given : tuple of str
        Hosts in the user's order.
    slots : tuple of int
        Ranks on each.
    asked : Asked
    free_rank0 : bool
        Let the host of rank 0 move.
    seed : int
    tell : callable
        Told what is being done.
    """

    snapshot: NetworkSnapshot
    candidates: Candidates
    given: tuple[str, ...]
    slots: tuple[int, ...]
    asked: Asked
    free_rank0: bool = False
    seed: int = 0
    tell: Callable[[str], None] = lambda words: None

    @property
    def ranks(self) -> int:
        """World size."""
        return sum(self.slots)


@dataclass(frozen=True)
class Taken:
    """What carries one call, in the order chosen.

    Attributes
    ----------
    call : Call
    own : Candidate
        What the library takes by itself.
    candidate : Candidate
        What it is to run; `own` where nothing is changed.
    seconds, own_seconds : float
        In the order chosen, of one call.
    """

    call: Call
    own: Candidate
    candidate: Candidate
    seconds: float
    own_seconds: float


@dataclass(frozen=True)
class TunedOrder:
    """An order, and what carries each call in it.

    Attributes
    ----------
    rank_map : RankMap
        Solved for the algorithms taken.
    taken : tuple of Taken
        Of every call asked for, those of no time included.
    given, ordered, tuned : float
        Seconds of all calls by the library's own algorithms in the order given, by
        the same in their best order, and by what was chosen.
    sheet : Sheet
        All that was predicted.
    asked : Asked
        With how often each call is made.
    """

    rank_map: RankMap
    taken: tuple[Taken, ...]
    given: float
    ordered: float
    tuned: float
    sheet: Sheet
    asked: Asked


@dataclass(frozen=True)
class CandidateOrder:
    """The best order for a candidate, should that be faster than predicted.

    Attributes
    ----------
    rank_map : RankMap
    collective : str
    candidate : Candidate
        The algorithm, of that collective.
    """

    rank_map: RankMap
    collective: str
    candidate: Candidate


class Chooser:
    """Chooses for one job.

    Parameters
    ----------
    job : TuningJob
    even : bool
        Whether each call is to be as long in all as any other, whatever it takes.
    """

    def __init__(self, job: TuningJob, *, even: bool = False) -> None:
        self.job = job
        fabric = fabric_of(job.snapshot).restrict(job.given)
        # Whoever predicts or solves below takes this one, and infers none.
        self._snapshot = (
            job.snapshot
            if job.snapshot.fabric is not None
            else replace(job.snapshot, fabric=fabric_of(job.snapshot))
        )
        network = network_of(self._snapshot, job.given, fabric=fabric)
        self._slots_of = dict(zip(job.given, job.slots, strict=True))
        costs = costs_in(job.snapshot, job.candidates.key, job.slots) or FREE
        self.predictor = Predictor(network, self._slots_of, costs)
        self._fabric: Fabric = network.fabric
        self._drawn = fabric
        named = baseline_orders(job.given, self._fabric)
        self.given = self.positions(named["given"])
        orders = [self._allowed(self.positions(order)) for order in named.values()]
        job.tell("predicting what each algorithm takes")
        self.sheet = Sheet(
            job.asked.calls, job.candidates, self.predictor, _unlike(orders)
        )
        self.asked = job.asked
        if even:
            self.asked = evenly(job.asked, [one[0, 0] for one in self.sheet.seconds])
        self.rest = self._rest_seconds()
        self._own_column = 0

    @cached_property
    def own_map(self) -> RankMap:
        """The best order by the library's own algorithms.

        With it comes everything that has to be known before one can choose.
        """
        sheet = self.sheet
        sheet.add(self._starts())
        sheet.give_up_far()
        self.job.tell("searching the best order of the library's own algorithms")
        own_map = self._solved([entries[0] for entries in sheet.entries])
        own_order = self.positions(own_map.order)
        sheet.add([own_order])
        self._own_column = sheet.column(own_order)
        if len(self.job.given) <= SEARCHED_HOSTS:
            self._search_more()
        return own_map

    def choose(self, gain: float | None = None) -> TunedOrder:
        """Return the order and the algorithms that take least together.

        Parameters
        ----------
        gain : float, optional
            How many times faster than the library's own another is to be predicted,
            to be taken: `sure_gain` by default, 1 for what is to be measured.
        """
        sheet, gain = self.sheet, sure_gain() if gain is None else gain
        own_map = self.own_map
        column = self._best_column(gain)
        picked = self._picked(column, gain)
        if not any(picked):
            return self._choice(own_map, self._own_column, gain)
        self.job.tell("searching the best order of what was chosen")
        entries = [e[at] for e, at in zip(sheet.entries, picked, strict=True)]
        rank_map = self._solved(entries, also=self._names(sheet.orders[column]))
        order = self.positions(rank_map.order)
        sheet.add([order])
        return self._choice(rank_map, sheet.column(order), gain)

    def alternatives(self, hoped: TunedOrder) -> list[CandidateOrder]:
        """Return the best orders of the most promising algorithms that are not taken.

        Parameters
        ----------
        hoped : TunedOrder
        """
        if len(self.job.given) > SEARCHED_HOSTS:
            return []
        self.job.tell("searching the best orders of other algorithms")
        known = {self.job.given, self.own_map.order, hoped.rank_map.order}
        taken = {
            (one.call.collective, one.candidate.selection.algorithm)
            for one in hoped.taken
            if one.call.times
        }
        found: list[CandidateOrder] = []
        for call, one in self._promising():
            key = call.collective, one.selection.algorithm
            if one.is_own or key in taken or len(found) == ALTERNATIVES:
                continue
            rank_map = self._solved([self._swapped(t, call, one) for t in hoped.taken])
            if rank_map.order not in known:
                known.add(rank_map.order)
                self.sheet.add([self.positions(rank_map.order)])
                found.append(CandidateOrder(rank_map, call.collective, one))
        return found

    def _swapped(self, taken: Taken, call: Call, one: Candidate) -> Candidate:
        """Return what carries a call where one collective has another algorithm."""
        if taken.call.collective != call.collective:
            return taken.candidate
        again = self.job.candidates.again(one, call.collective, taken.call.size)
        return again or taken.candidate

    def total(self, column: int, gain: float) -> float:
        """Return seconds of all calls in an order, each by what it would take."""
        picked = self._picked(column, gain)
        seconds = sum(
            call.times * rows[at, column]
            for (call, _, rows), at in zip(self._sheet_rows(), picked, strict=True)
        )
        return float(seconds) + self.rest(self.sheet.orders[column])

    def _sheet_rows(self) -> Iterator[tuple[Call, list[Candidate], Floats]]:
        """Return each call with its candidates and what they take in all orders."""
        return zip(
            self.asked.calls, self.sheet.entries, self.sheet.seconds, strict=True
        )

    def _picked(self, column: int, gain: float) -> list[int]:
        """Return which candidate each call takes in an order.

        Sizes of one collective follow each other: what carried the one below stays as
        long as it is as fast as any.
        """
        picked: list[int] = []
        before: tuple[str, object] = ("", None)
        for call, entries, rows in self._sheet_rows():
            at = self._pick(rows, column, needed(gain, call.size))
            if at and before[0] == call.collective:
                same = [i for i, one in enumerate(entries) if one.key == before[1]]
                if same and rows[same[0], column] <= rows[at, column] * (1 + ALIKE):
                    at = same[0]
            picked.append(at)
            before = call.collective, entries[at].key
        return picked

    def _pick(self, rows: Floats, column: int, gain: float) -> int:
        """Return the first of the fastest candidates; 0, the own one, if not sure."""
        seconds = rows[:, column]
        fastest = seconds.min()
        at = int(np.flatnonzero(seconds <= fastest * (1 + 1e-6))[0])
        # Order alone would do as well: what is changed has to beat that.
        own = min(seconds[0], rows[0, self._own_column])
        return at if own >= gain * seconds[at] and own > 0 else 0

    def _starts(self) -> list[Ints]:
        """Return orders from which the search for promising algorithms would start."""
        if len(set(self.job.slots)) > 1:
            return []
        found = []
        for call, one in self._promising():
            choice = ruled_problem(
                self._snapshot,
                self.predictor.schedule(call, one),
                self._drawn,
                self._slots_of,
                constraints=Constraints(),
                free_rank0=self.job.free_rank0,
                also={},
            )
            found += list(choice.starts.values())
        return found

    def _promising(self) -> list[tuple[Call, Candidate]]:
        """Return the algorithms with most to gain, each where it is called longest."""
        best: dict[tuple[str, str], tuple[float, float, Call, Candidate]] = {}
        for call, entries, rows in self._sheet_rows():
            least = rows.min(axis=1)
            near = least.min() * needed(sure_gain(), call.size)
            for one, seconds in zip(entries, least, strict=True):
                if call.times == 0 or seconds > near:
                    continue
                found = -call.times * float(least[0]), float(seconds), call, one
                key = call.collective, one.selection.algorithm
                if key not in best or found[:2] < best[key][:2]:
                    best[key] = found
        ranked = sorted(best.values(), key=lambda found: found[:2])
        return [
            (call, one)
            for _, _, call, one in ranked[:STARTED]
            if messages(self.predictor.schedule(call, one)) <= HEAVY
        ]

    def ranked(self, taken: Taken, order: Ints) -> list[Candidate]:
        """Return the candidates of a call, the fastest in an order first."""
        at = self.asked.calls.index(taken.call)
        rows = self.sheet.seconds[at][:, self.sheet.column(order)]
        places = np.argsort(rows, kind="stable").tolist()
        return [self.sheet.entries[at][place] for place in places]

    def _search_more(self) -> None:
        """Search the best order of what is fastest, and again for what is so in it."""
        for _ in range(ROUNDS):
            column = self._best_column(1.0)
            picked = self._picked(column, 1.0)
            entries = [e[at] for e, at in zip(self.sheet.entries, picked, strict=True)]
            self.job.tell("searching the best order of the fastest algorithms")
            found = self._solved(entries, also=self._names(self.sheet.orders[column]))
            before = len(self.sheet.orders)
            self.sheet.add([self.positions(found.order)])
            if len(self.sheet.orders) == before:
                return

    def _best_column(self, gain: float) -> int:
        """Return the order in which all calls take least; the first of equals."""
        totals = [self.total(at, gain) for at in range(len(self.sheet.orders))]
        own = self.total(self._own_column, np.inf)
        best = int(np.argmin(totals))
        return best if totals[best] < own * (1 - 1e-6) else self._own_column

    def _solved(
        self, entries: Sequence[Candidate], also: Sequence[str] | None = None
    ) -> RankMap:
        """Return the best order for all calls by these candidates."""
        job = self.job
        return solve(
            self._snapshot,
            self._searched(entries),
            given=job.given,
            slots=job.slots,
            seed=job.seed,
            free_rank0=job.free_rank0,
            also={"tuned": also} if also else None,
            watch=Watch(),
        )

    def _searched(self, entries: Sequence[Candidate]) -> Workload:
        """Return what an order is searched for.

        Of many hosts without the calls that a search would count for minutes, if there
        are others: their messages are so many that few orders differ in them.
        """
        ranks, asked = self.job.ranks, self.asked
        if len(self.job.given) <= SEARCHED_HOSTS:
            return asked.sent(entries, ranks)
        light = tuple(
            call
            if messages(self.predictor.schedule(call, one)) <= HEAVY
            else replace(call, times=0)
            for call, one in zip(asked.calls, entries, strict=True)
        )
        if any(call.times for call in light) or asked.rest:
            asked = replace(asked, calls=light)
        return asked.sent(entries, ranks, together=True)

    def _choice(self, rank_map: RankMap, column: int, gain: float) -> TunedOrder:
        """Return what is taken in an order, as it is told."""
        sheet, picked = self.sheet, self._picked(column, gain)
        taken = tuple(
            Taken(
                call,
                entries[0],
                entries[at],
                float(rows[at, column]),
                float(rows[0, column]),
            )
            for (call, entries, rows), at in zip(
                self._sheet_rows(), picked, strict=True
            )
        )
        return TunedOrder(
            rank_map=rank_map,
            taken=taken,
            given=self.total(0, np.inf),
            ordered=self.total(self._own_column, np.inf),
            tuned=self.total(column, gain),
            sheet=sheet,
            asked=self.asked,
        )

    def _rest_seconds(self) -> Callable[[Ints], float]:
        """Return what tells how long the calls take that are not chosen for."""
        if not self.asked.rest:
            return lambda order: 0.0
        network = self.predictor.network
        sent = Workload("rest", self.job.ranks, self.asked.rest)
        model = problem_on(
            network.fabric, sent, self._slots_of, pairs=network.pairs
        ).model
        return model.seconds

    def positions(self, names: Sequence[str]) -> Ints:
        """Return an order of names as positions in the predictor's fabric."""
        return np.array([self._fabric.position(name) for name in names])

    def _names(self, order: Ints) -> tuple[str, ...]:
        return tuple(self._fabric.hosts[at] for at in order.tolist())

    def _allowed(self, order: Ints) -> Ints:
        """Return an order with the host of rank 0 in front, if that is to stay."""
        if self.job.free_rank0:
            return order
        return np.roll(order, -int(np.flatnonzero(order == self.given[0])[0]))


def _unlike(orders: Sequence[Ints]) -> list[Ints]:
    """Return each order once, the first ones first."""
    return list({tuple(order.tolist()): order for order in orders}.values())
