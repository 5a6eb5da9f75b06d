"""How long a schedule takes on a fabric, for a given order of hosts.

Each step ends when its slowest part does:

    t = max over messages of the path's one-way latency
            + bytes for which two ranks take turns / its slowest link
      + max over links and directions of bytes across it / capacity

Where pairs of hosts have figures of their own (`Pairs`) it ends when the worst
pair or the busiest link does:

    t = max(max over messages of alpha + bytes / the pair's rate,
            max over links and directions of bytes across it / capacity)

(LogGP's large-message term with Hockney's alpha-beta per step, and the load
of shared links as in Cloud Collectives, Luo et al. 2021.) Steps add up;
steps through which a pipeline passes load the links together instead. So do the
operations of a workload, each as often as it is called.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Bools, Floats, Ints
from cloudcoll.collectives import Schedule, Step
from cloudcoll.collectives.workload import Workload
from cloudcoll.errors import UsageError
from cloudcoll.network.tree import Fabric, Links, Pairs

Parts = Sequence[tuple[int, Schedule]]
"""Calls, and what each of them sends."""

Cost = tuple[float, float]
"""Seconds, and a tie-break that falls as load spreads over the links."""


@dataclass(frozen=True)
class FlatSteps:
    """A cost model as flat arrays: what a search engine counts with.

    Seconds are the sum over steps of ``wait_weight`` times the longest path,
    and over phases of the busiest link's time.

    Attributes
    ----------
    slots : ndarray of int64, shape (hosts,)
    seats : int
        Hosts of an order that have ranks: the first ones.
    src, dst, step : ndarray of int64, shape (messages,)
        Ranks, and the step, which never falls from message to message.
    size : ndarray of float64, shape (messages,)
        Bytes, times the weight of their step.
    alone : ndarray of float64, shape (messages,)
        Bytes whose time on the path's slowest link lengthens the path: of ranks that
        take turns, what is beyond `Schedule.turns`; else 0.
    phase : ndarray of int64, shape (steps,)
        Steps of one phase load the links together.
    wait_weight : ndarray of float64, shape (steps,)
    pairs : Pairs or None
        Instead of latencies and `alone`: the longest path takes what these say,
        and of a phase's paths and links only the slower counts.
    sent : ndarray of float64, shape (messages,)
        Bytes that a pair carries, those that it waits for included.
    """

    links: Links
    slots: Ints
    seats: int
    src: Ints
    dst: Ints
    step: Ints
    size: Floats
    alone: Floats
    phase: Ints
    phases: int
    wait_weight: Floats
    pairs: Pairs | None
    sent: Floats

    @property
    def ranks(self) -> int:
        """World size: where hosts have no seat, all have the same slots."""
        return int(self.slots[: self.seats].sum())


class CostModel:
    """The predicted time of one schedule, or one workload, on one fabric.

    Parameters
    ----------
    schedule : Schedule or Workload
        Of a workload: the sum over its operations of calls x seconds.
    slots : sequence of int
        Ranks on each host, by position in the fabric's `hosts`; their sum is
        the schedule's world size.
    pairs : Pairs, optional
        Of the fabric's hosts; without, a path is the links it crosses.
    seats : int, optional
        How many hosts of an order have ranks, the first ones; all by default.
        With less, all hosts need the same slots.

    Raises
    ------
    UsageError
        The slots do not add up to the schedule's ranks.
    """

    def __init__(
        self,
        schedule: Schedule | Workload,
        fabric: Fabric,
        slots: Sequence[int],
        pairs: Pairs | None = None,
        seats: int | None = None,
    ) -> None:
        self.schedule = schedule
        seats = len(slots) if seats is None else seats
        if (total := sum(slots[:seats])) != schedule.ranks:
            raise UsageError(
                f"the hosts have {total} slots, the schedule {schedule.ranks} ranks"
            )
        self.slots = np.asarray(slots, dtype=np.int64)
        parts = schedule.parts if isinstance(schedule, Workload) else ((1, schedule),)
        steps, repeats, phases = _phases(parts)
        repeat = np.array(repeats, dtype=np.float64)
        empty = np.zeros(0, dtype=np.int64)
        size = np.concatenate([np.zeros(0), *(one.size for one in steps)])
        lengths = [len(one.src) for one in steps]
        step = np.repeat(np.arange(len(steps)), lengths)
        alone, links = _in_turns(parts, schedule.ranks), fabric.links
        self._flat = FlatSteps(
            links=links,
            slots=self.slots,
            seats=seats,
            src=np.concatenate([empty, *(one.src for one in steps)]),
            dst=np.concatenate([empty, *(one.dst for one in steps)]),
            step=step,
            size=size * repeat[step],
            alone=alone,
            phase=np.repeat(np.arange(len(phases)), np.diff([*phases, len(steps)])),
            phases=len(phases),
            wait_weight=repeat,
            pairs=pairs and pairs.over(links),
            sent=size + alone,
        )
        self._turns = np.flatnonzero(alone)
        self._phases = np.array(phases, dtype=np.int64)
        # Steps that follow each other must not be empty for reduceat.
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)

    def seconds(self, order: Ints | Sequence[int]) -> float:
        """Return the predicted seconds of one call, or one step of a workload.

        Parameters
        ----------
        order : sequence of int
            Positions of the hosts in the fabric; the first takes the first
            ranks. What stands behind the seats does not matter.
        """
        return self.cost(order)[0]

    def cost(self, order: Ints | Sequence[int]) -> Cost:
        """Return the predicted seconds, and the tie-break for a search.

        Most changes to an order leave its slowest link as it is. The tie-break
        is the same sum with the root of the squared link times in place of
        their maximum: it also sees the links that are not the slowest (with
        `Pairs`, the paths too). Seconds are rounded to one part in 1e9 so that
        rounding errors decide nothing.
        """
        flat = self._flat
        if not len(flat.src):
            return 0.0, 0.0
        host_of_rank = self.host_of_rank(order)
        phase = flat.phase[flat.step]
        load = self._load_seconds(host_of_rank, phase, flat.phases)
        path = self._path(host_of_rank)
        wait = np.maximum.reduceat(path, self._starts) * flat.wait_weight
        slowest = load.max(axis=1)
        spread = float(np.sqrt((load * load).sum(axis=1)).sum())
        if flat.pairs is None:
            seconds, tail = slowest.sum() + wait.sum(), wait
        else:
            waits = np.add.reduceat(wait, self._phases)
            seconds = np.maximum(slowest, waits).sum()
            tail = np.sqrt(np.add.reduceat(path * path, self._starts))
            tail *= flat.wait_weight
        return float(f"{seconds:.9e}"), spread + float(tail.sum())

    def host_of_rank(self, order: Ints | Sequence[int]) -> Ints:
        """Return each rank's host, as its position in the fabric, shape (ranks,)."""
        hosts = np.asarray(order, dtype=np.int64)[: self._flat.seats]
        return np.repeat(hosts, self._flat.slots[hosts])

    def waits(self, order: Ints | Sequence[int]) -> Floats:
        """Return seconds of each message's path, shape (messages,), of one call.

        Beside the load of links, or in place of it where pairs have figures.
        """
        return self._path(self.host_of_rank(order))

    def busy(self, order: Ints | Sequence[int]) -> Floats:
        """Return seconds that links need for a step's bytes, of one call.

        Shape (steps, 2 links): all links up, then all down.
        """
        flat = self._flat
        return self._load_seconds(self.host_of_rank(order), flat.step, len(flat.phase))

    def _levels(self, host_of_rank: Ints) -> Iterator[tuple[Ints, Ints, Bools]]:
        """Yield each message's link up and link down, and whether it crosses them.

        Level by level, each in the arrays of the one before: new memory of a million
        messages takes longer than what is done with it.
        """
        flat = self._flat
        up, down = np.empty((2, len(flat.src)), dtype=np.int64)
        for member in flat.links.member[:, host_of_rank]:
            # All are in range; any other mode takes into an array of its own.
            member.take(flat.src, out=up, mode="clip")
            member.take(flat.dst, out=down, mode="clip")
            yield up, down, up != down

    def _path(self, host_of_rank: Ints) -> Floats:
        """Return seconds of each message's path, beside the load of links."""
        path: Floats
        flat = self._flat
        if flat.pairs is not None:
            pair = host_of_rank[flat.src], host_of_rank[flat.dst]
            path = flat.pairs.alpha[pair] + flat.sent * flat.pairs.s_per_byte[pair]
            return path
        links, some = flat.links, self._turns
        path, slowest = np.zeros(len(flat.src)), np.zeros(len(some))
        for up, down, crosses in self._levels(host_of_rank):
            path += crosses * (links.latency.take(up) + links.latency.take(down))
            if len(some):
                # Messages that wait for each other are alone on their way.
                ways = 1.0 / links.up[up[some]], 1.0 / links.down[down[some]]
                np.maximum(slowest, np.maximum(*ways), out=slowest, where=crosses[some])
        path[some] += slowest * flat.alone[some]
        return path

    def flat(self) -> FlatSteps:
        """Return what `cost` counts, as flat arrays."""
        return self._flat

    def _load_seconds(self, host_of_rank: Ints, row_of: Ints, rows: int) -> Floats:
        """Return seconds each link direction is busy, shape (rows, 2 links).

        Rows are steps or phases, as `row_of` has them for each message.
        """
        up_rate, down_rate = self._flat.links.up, self._flat.links.down
        shape = rows, len(up_rate)
        row = row_of * len(up_rate)
        sent, received = np.zeros((2, math.prod(shape)))
        for up, down, crosses in self._levels(host_of_rank):
            size = self._flat.size * crosses
            up += row
            down += row
            sent += np.bincount(up, size, len(sent))
            received += np.bincount(down, size, len(received))
        return np.concatenate(
            [sent.reshape(shape) / up_rate, received.reshape(shape) / down_rate], axis=1
        )


def _phases(parts: Parts) -> tuple[list[Step], list[int], list[int]]:
    """Return all steps, how often each happens, and where each phase begins.

    The steps of a phase load the links together.
    """
    steps: list[Step] = []
    repeats, phases = [], []
    for calls, part in parts:
        before = -1
        for phase, step in zip(part.phases, part.steps, strict=True):
            if phase != before:
                phases.append(len(steps))
            before = phase
            steps.append(step)
            repeats.append(calls * step.repeat)
    return steps, repeats, phases


def _in_turns(parts: Parts, ranks: int) -> Floats:
    """Return bytes of each message that wait for, or keep waiting, the other way's."""
    found = [np.zeros(0)]
    for _, part in parts:
        for step in part.steps:
            alone = np.maximum(step.size - part.turns, 0.0)
            if alone.any():
                there, back = step.src * ranks + step.dst, step.dst * ranks + step.src
                alone[~np.isin(there, back)] = 0.0
            found.append(alone)
    return np.concatenate(found)


COVERED = 0.90
"""Share of measured times that an interval should hold."""

MEASURED_OVER_PREDICTED = (
    *(0.86, 0.93, 1.00, 1.02, 1.04, 1.06, 1.09, 1.11, 1.13, 1.16),
    *(1.20, 1.26, 1.30, 1.36, 1.43, 1.54, 1.71, 1.81, 2.14, 2.70),
)
"""What real Open MPI took over what was predicted, at equally likely quantiles.

Of 135 cases: 1 and 4 MiB, by a ring and by Rabenseifner, in 34 of the networks of
``benchmarks/grid.py`` (queues of 2 to 200 ms, 64 packets, CoDel; quiet, beside hogs of
CPU, beside others' traffic). The long tail is that of short queues, where
TCP loses what a step sends at once."""

WITH_MESSAGE_COSTS = (
    *(0.68, 0.81, 0.87, 0.89, 0.92, 0.94, 0.95, 0.96, 0.98, 0.98),
    *(1.00, 1.00, 1.01, 1.02, 1.04, 1.05, 1.08, 1.11, 1.26, 1.73),
)
"""The same where what messages cost was measured (`cloudcoll.model.message_costs`): of
209 cases, in 58 of these networks, six of them behind policers. Where a message of
64 KiB was taken to cost no less than one of 1 KiB, it is counted as half of that."""


def interval(
    seconds: Sequence[float], shares: Sequence[float], *, costs_known: bool = False
) -> tuple[float, float]:
    """Return between which seconds `COVERED` of the measured times should be.

    The network may be another than the likeliest, and the model misses what it does
    not know of: ranks without a processor of their own and, unless `costs_known`,
    losses in short queues. Both are mixed, as if they had nothing to do with each
    other.

    Parameters
    ----------
    seconds : sequence of float
        Predicted for each fabric that the network may be.
    shares : sequence of float
        How likely each is.
    costs_known : bool
        Whether what messages cost is in the seconds.
    """
    known = WITH_MESSAGE_COSTS if costs_known else MEASURED_OVER_PREDICTED
    missed = np.array(known)
    times = np.multiply.outer(np.array(seconds), missed).ravel()
    weight = np.repeat(np.array(shares), len(missed))
    order = np.argsort(times)
    below = np.cumsum(weight[order]) / weight.sum()
    tail = (1 - COVERED) / 2
    # A time counts half below itself: the middle of the steps.
    middle = below - weight[order] / weight.sum() / 2
    low, high = np.interp([tail, 1 - tail], middle, times[order])
    return float(low), float(high)
