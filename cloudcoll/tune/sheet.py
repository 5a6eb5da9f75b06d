"""What every candidate takes in every order: one column for each order.

Most candidates are far from the fastest in any order. They are left out before the
model counts them: nothing can be faster than its messages one after the other on the
fastest card of all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.model import KnownNetwork, problem_on
from cloudcoll.model.cost import CostModel
from cloudcoll.model.message_costs import FREE, MessageCosts
from cloudcoll.network.tree import Links
from cloudcoll.tune.calls import Call
from cloudcoll.tune.candidates import Candidate, Candidates

COMPARED = 1 << 20
"""Bytes from which predictions were compared with measurements
(`cloudcoll.model.cost.MEASURED_OVER_PREDICTED`)."""

FAR = 2.5
"""Times longer than the fastest of a call from which a candidate is given up, after
orders of all kinds; its square for shorter calls than were compared."""

KEPT_MESSAGES = 20_000
"""Of a schedule whose arrays are kept from order to order; of 1024 ranks they are some
megabytes."""

WORK = 4_000_000
"""Messages that one candidate may have counted in all orders that are tried at first;
those of an all-to-all of 1024 ranks are a million."""


class Predictor:
    """Seconds of one call in some orders.

    Parameters
    ----------
    network : KnownNetwork
        Of the job's hosts.
    slots_of : mapping of str to int
        Ranks on each host.
    costs : MessageCosts, optional
        Of the job's library on these hosts.
    """

    def __init__(
        self,
        network: KnownNetwork,
        slots_of: Mapping[str, int],
        costs: MessageCosts = FREE,
    ) -> None:
        self.network = network
        self._costs = costs
        self.ranks = sum(slots_of.values())
        self._slots = dict(slots_of)
        self._links = network.fabric.links
        self._kept: dict[object, tuple[CostModel, float]] = {}

    def seconds(
        self,
        call: Call,
        one: Candidate,
        orders: Sequence[Ints],
        sent: Schedule | None = None,
    ) -> Floats:
        """Return what a call takes in each order, by positions in the fabric.

        With what the candidate sends, where that is at hand.
        """
        model, costs = self._model(call, one, sent)
        return np.array([model.seconds(order) + costs for order in orders])

    def schedule(self, call: Call, one: Candidate) -> Schedule:
        """Return what a candidate sends."""
        taken = one.selection
        return build_schedule(
            call.collective,
            taken.algorithm,
            self.ranks,
            call.size,
            taken.library,
            **taken.parameters,
        )

    def least(self, schedule: Schedule) -> float:
        """Return seconds that no order can beat, cheaply; 0.0 where nothing is known.

        Every step waits for a message, and for its largest to pass the fastest card.
        """
        if self.network.pairs is not None:
            return 0.0
        rate, latency = _best_case(self._links, len(self._slots), self.ranks)
        seconds = self._costs.seconds(schedule)
        before, largest = -1, 0.0
        for phase, step in zip(schedule.phases, schedule.steps, strict=True):
            seconds += latency * step.repeat
            size = float(step.size.max()) * step.repeat
            if phase != before:
                seconds += largest / rate
                largest = 0.0
            largest, before = max(largest, size), phase
        return seconds + largest / rate

    def _model(
        self, call: Call, one: Candidate, sent: Schedule | None
    ) -> tuple[CostModel, float]:
        """Return what the network takes, by the order, and what messages cost."""
        key = call.collective, call.size, one.key
        if key in self._kept:
            return self._kept[key]
        network = self.network
        sent = self.schedule(call, one) if sent is None else sent
        model = problem_on(network.fabric, sent, self._slots, pairs=network.pairs).model
        found = model, self._costs.seconds(sent)
        if messages(sent) <= KEPT_MESSAGES:
            self._kept[key] = found
        return found


def messages(schedule: Schedule) -> int:
    """Return how many there are, those of a repeated step once."""
    return sum(len(step.src) for step in schedule.steps)


def _slack(call: Call) -> float:
    """Return how many times faster than predicted a short call may be, else 1."""
    return 1.0 if call.size >= COMPARED else FAR


def _best_case(links: Links, hosts: int, ranks: int) -> tuple[float, float]:
    """Return the rate of the fastest card and the seconds of the shortest way.

    Where hosts have several ranks, messages may stay inside.
    """
    if ranks > hosts:
        return math.inf, 0.0
    cards = links.member[-1]
    rate = float(np.maximum(links.up[cards], links.down[cards]).max())
    near = np.sort(links.latency[cards])[:2]
    return rate, float(near.sum())


class Sheet:
    """The candidates of all calls, and what they take in all orders so far.

    Attributes
    ----------
    calls : tuple of Call
    entries : list of list of Candidate
        Of each call, the library's own first.
    seconds : list of ndarray of float64, shape (candidates, orders)
        Of each call.
    orders : list of ndarray of int64, shape (hosts,)
        Positions in the fabric.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        candidates: Candidates,
        predictor: Predictor,
        orders: Sequence[Ints],
    ) -> None:
        self.calls = tuple(calls)
        self.predictor = predictor
        self.orders = list(orders)
        self.entries: list[list[Candidate]] = []
        self.seconds: list[Floats] = []
        for call in self.calls:
            own = candidates.own(call.collective, call.size)
            others = candidates.others(call.collective, call.size)
            self._first_columns(call, own, others)

    def _first_columns(
        self, call: Call, own: Candidate, others: Sequence[Candidate]
    ) -> None:
        predictor, orders = self.predictor, self.orders
        kept, rows = [own], [predictor.seconds(call, own, orders)]
        fastest = rows[0].min()
        slack = _slack(call)
        # Segments of all lengths are alike: the first stands for them.
        others = list({one.shape: one for one in reversed(others)}.values())[::-1]
        drawn = [(one, predictor.schedule(call, one)) for one in others]
        bounds = [predictor.least(schedule) for _, schedule in drawn]
        for at in np.argsort(bounds, kind="stable").tolist():
            one, schedule = drawn[at]
            # What may be as fast is counted: the plainest of equals is taken.
            if bounds[at] > slack * fastest * (1 + 1e-6):
                break
            tried = max(1, WORK // max(1, messages(schedule)))
            row = np.full(len(orders), math.inf)
            row[:tried] = predictor.seconds(call, one, orders[:tried], schedule)
            kept.append(one)
            rows.append(row)
            fastest = min(fastest, row.min())
        # In the order of the library's own list, so that ties go to the plainest.
        place = {id(one): at for at, one in enumerate(others)}
        tidy = sorted(range(1, len(kept)), key=lambda at: place[id(kept[at])])
        self.entries.append([own, *(kept[at] for at in tidy)])
        self.seconds.append(np.array([rows[0], *(rows[at] for at in tidy)]))

    def give_up_far(self) -> None:
        """Leave out candidates that are far from the fastest in every order so far."""
        for at, seconds in enumerate(self.seconds):
            near = seconds.min(axis=1) <= FAR * _slack(self.calls[at]) * seconds.min()
            near[0] = True
            self.seconds[at] = seconds[near]
            self.entries[at] = [
                one for one, kept in zip(self.entries[at], near, strict=True) if kept
            ]

    def add(self, orders: Sequence[Ints]) -> None:
        """Count all candidates that are left in more orders; those known are skipped.

        Parameters
        ----------
        orders : sequence of ndarray of int64
        """
        known = {tuple(order.tolist()) for order in self.orders}
        new: list[Ints] = []
        for order in orders:
            if (key := tuple(order.tolist())) not in known:
                known.add(key)
                new.append(order)
        if not new:
            return
        self.orders += new
        for at, call in enumerate(self.calls):
            rows = [self.predictor.seconds(call, one, new) for one in self.entries[at]]
            self.seconds[at] = np.hstack([self.seconds[at], np.array(rows)])

    def column(self, order: Ints) -> int:
        """Return the column of an order that was added."""
        return next(
            at for at, one in enumerate(self.orders) if np.array_equal(one, order)
        )
