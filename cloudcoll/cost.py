"""How long a schedule takes on a fabric, for a given order of hosts.

Each step ends when its slowest part does:

    t = max over messages of the path's one-way latency
      + max over links and directions of bytes across it / capacity

(LogGP's large-message term with Hockney's alpha-beta per step, and the load
of shared links as in Cloud Collectives, Luo et al. 2021.) Steps add up;
the streams of a pipelined schedule load the links together instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cloudcoll.errors import UsageError
from cloudcoll.fabric.links import Links
from cloudcoll.fabric.tree import Fabric
from cloudcoll.schedule import Schedule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


Cost = tuple[float, float]
"""Seconds, and a tie-break that falls as load spreads over the links."""


@dataclass(frozen=True)
class FlatSteps:
    """A cost model as flat arrays: what a search engine counts with.

    Seconds are the sum over steps of ``wait_weight`` times the longest path,
    and over phases of the busiest link's time.

    Attributes
    ----------
    links : Links
    slots : ndarray of int64, shape (hosts,)
    src, dst, step : ndarray of int64, shape (messages,)
        Ranks, and the step, which never falls from message to message.
    size : ndarray of float64, shape (messages,)
        Bytes, times the weight of their step.
    phase : ndarray of int64, shape (steps,)
        Steps of one phase load the links together.
    phases : int
    wait_weight : ndarray of float64, shape (steps,)
    """

    links: Links
    slots: Ints
    src: Ints
    dst: Ints
    step: Ints
    size: Floats
    phase: Ints
    phases: int
    wait_weight: Floats


class CostModel:
    """The predicted time of one schedule on one fabric.

    Parameters
    ----------
    schedule : Schedule
    fabric : Fabric
    slots : sequence of int
        Ranks on each host, by position in the fabric's `hosts`; their sum is
        the schedule's world size.

    Raises
    ------
    UsageError
        The slots do not add up to the schedule's ranks.
    """

    def __init__(
        self, schedule: Schedule, fabric: Fabric, slots: Sequence[int]
    ) -> None:
        if sum(slots) != schedule.ranks:
            raise UsageError(
                f"the hosts have {sum(slots)} slots, the schedule "
                f"{schedule.ranks} ranks"
            )
        self.slots = np.asarray(slots, dtype=np.int64)
        self._links = fabric.links()
        self._concurrent = schedule.concurrent
        steps = schedule.steps
        self._count = len(steps)
        self._repeat = np.array([step.repeat for step in steps], dtype=np.float64)
        empty = np.zeros(0, dtype=np.int64)
        self._src = np.concatenate([empty, *(step.src for step in steps)])
        self._dst = np.concatenate([empty, *(step.dst for step in steps)])
        self._size = np.concatenate([np.zeros(0), *(step.size for step in steps)])
        lengths = [len(step.src) for step in steps]
        self._step = np.repeat(np.arange(self._count), lengths)
        # Steps that follow each other must not be empty for reduceat.
        self._starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)

    def seconds(self, order: Ints | Sequence[int]) -> float:
        """Return the predicted seconds of one call.

        Parameters
        ----------
        order : sequence of int
            Positions of the hosts in the fabric; the first takes the first
            ranks.
        """
        return self.cost(order)[0]

    def cost(self, order: Ints | Sequence[int]) -> Cost:
        """Return the predicted seconds, and the tie-break for a search.

        Most changes to an order leave its slowest link as it is. The tie-break
        is the same sum with the root of the squared link times in place of
        their maximum: it also sees the links that are not the slowest. Seconds
        are rounded to one part in 1e9 so that rounding errors decide nothing.
        """
        if not len(self._src):
            return 0.0, 0.0
        hosts = np.asarray(order, dtype=np.int64)
        host_of_rank = np.repeat(hosts, self.slots[hosts])
        member = self._links.member[:, host_of_rank]
        src, dst = member[:, self._src], member[:, self._dst]
        crosses = src != dst
        load = self._load_seconds(src, dst, crosses)
        hops = self._links.latency[src] + self._links.latency[dst]
        path = np.where(crosses, hops, 0.0).sum(axis=0)
        wait = float((np.maximum.reduceat(path, self._starts) * self._repeat).sum())
        if self._concurrent:
            load = (load * self._repeat[:, None]).sum(axis=0, keepdims=True)
            repeat = np.ones(1)
        else:
            repeat = self._repeat
        slowest = float((load.max(axis=1) * repeat).sum())
        spread = float((np.sqrt((load * load).sum(axis=1)) * repeat).sum())
        return float(f"{slowest + wait:.9e}"), spread + wait

    def flat(self) -> FlatSteps:
        """Return what `cost` counts, as flat arrays."""
        each = np.arange(self._count)
        return FlatSteps(
            links=self._links,
            slots=self.slots,
            src=self._src,
            dst=self._dst,
            step=self._step,
            size=self._size * self._repeat[self._step],
            phase=np.zeros_like(each) if self._concurrent else each,
            phases=min(self._count, 1) if self._concurrent else self._count,
            wait_weight=self._repeat,
        )

    def _load_seconds(
        self, src: Ints, dst: Ints, crosses: npt.NDArray[np.bool_]
    ) -> Floats:
        """Return seconds each link direction is busy, shape (steps, 2 links)."""
        links = len(self._links.up)
        row = np.broadcast_to(self._step * links, src.shape)[crosses]
        size = np.broadcast_to(self._size, src.shape)[crosses]
        cells = self._count * links
        shape = (self._count, links)
        up = np.bincount(row + src[crosses], size, cells).reshape(shape)
        down = np.bincount(row + dst[crosses], size, cells).reshape(shape)
        return np.concatenate([up / self._links.up, down / self._links.down], axis=1)
