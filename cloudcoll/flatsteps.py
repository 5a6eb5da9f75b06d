"""What a schedule sends on a fabric, as arrays: what search engines count with."""

from __future__ import annotations

from dataclasses import dataclass

from cloudcoll.fabric.links import Links, Pairs
from cloudcoll.samples import Floats, Ints


@dataclass(frozen=True)
class FlatSteps:
    """A cost model as flat arrays: what a search engine counts with.

    Seconds are the sum over steps of ``wait_weight`` times the longest path,
    and over phases of the busiest link's time.

    Attributes
    ----------
    links : Links
    slots : ndarray of int64, shape (hosts,)
    seats : int
        Hosts of an order that have ranks: the first ones.
    src, dst, step : ndarray of int64, shape (messages,)
        Ranks, and the step, which never falls from message to message.
    size : ndarray of float64, shape (messages,)
        Bytes, times the weight of their step.
    alone : ndarray of float64, shape (messages,)
        Bytes whose time on the path's slowest link lengthens the path, 0 for
        those of ranks that do not take turns.
    phase : ndarray of int64, shape (steps,)
        Steps of one phase load the links together.
    phases : int
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
