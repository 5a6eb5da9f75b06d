"""`Schedule` and `Step`: the one representation of every collective.

The data of a call is cut into equal blocks. A message carries some of them, and
its bytes follow from their number, so that what the cost model counts and what
the tests prove to arrive cannot differ.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats, Ints
from cloudcoll.errors import UsageError
from cloudcoll.files.limits import MESSAGES


@dataclass(frozen=True)
class Cargo:
    """Which blocks the messages of a step carry.

    In turn t of the step, message m carries the blocks ``first[m] + t * shift
    + offsets[:count[m]]``, modulo the number of blocks of the schedule, or
    within the `span` blocks that ``first[m]`` is among.

    Attributes
    ----------
    first, count : ndarray of int64, shape (messages,)
    offsets : ndarray of int64, shape (at least the largest count,), optional
        0, 1, 2, ... by default: neighbouring blocks.
    shift : int
        How far the blocks move from one repetition of the step to the next.
    span : int
        Into how many blocks in a row the data falls apart that go round by
        themselves; 0 for all.
    reduces : bool
        The receiver adds the blocks to its own; else they replace these.
    relays : bool
        The blocks are sent as they came last, without what the sender has.
    """

    first: Ints
    count: Ints
    offsets: Ints | None = None
    shift: int = 0
    span: int = 0
    reduces: bool = False
    relays: bool = False

    def blocks(self, turn: int, blocks: int) -> tuple[Ints, Ints]:
        """Return message and block of everything carried in one turn, from 0.

        The schedule has so many blocks.
        """
        message = np.repeat(np.arange(len(self.count)), self.count)
        start = np.repeat(np.cumsum(self.count) - self.count, self.count)
        place = np.arange(len(message)) - start
        offset = place if self.offsets is None else self.offsets[place]
        span, first = self.span or blocks, self.first[message]
        begin = first // span * span if self.span else 0
        return message, begin + (first + turn * self.shift + offset) % span

    def refined(self, factor: int) -> Cargo:
        """Return the same cargo where each block is cut into `factor` blocks."""
        offsets = self.offsets
        if offsets is not None:
            offsets = (offsets[:, None] * factor + np.arange(factor)).ravel()
        return replace(
            self,
            first=self.first * factor,
            count=self.count * factor,
            offsets=offsets,
            shift=self.shift * factor,
            span=self.span * factor,
        )


@dataclass(frozen=True)
class Step:
    """Messages that are under way at the same time.

    Attributes
    ----------
    src, dst : ndarray of int64, shape (messages,)
        Ranks.
    size : ndarray of float64, shape (messages,)
        Bytes of each message.
    repeat : int
        How often the step happens in a row.
    cargo : Cargo, optional
        What the messages carry. Only the proof that a schedule delivers looks.
    overlaps : bool
        Segments of the data go through this step and the one before at the same
        time, so that both load the links together.
    """

    src: Ints
    dst: Ints
    size: Floats
    repeat: int = 1
    cargo: Cargo | None = None
    overlaps: bool = False


class Flow(NamedTuple):
    """What the function of an algorithm returns: its steps, as part of a `Schedule`."""

    steps: Sequence[Step]
    blocks: int = 1


@dataclass(frozen=True)
class Schedule:
    """The messages of one call of a collective.

    Attributes
    ----------
    collective, algorithm : str
        The operation, and the way it is done.
    library : str
        Whose variant this is, with the versions it was checked against.
    ranks : int
        World size it is exact for.
    size : int
        Bytes of the full vector it is exact for: what every rank holds before
        an allreduce, and after an allgather; what it sends in an alltoall
        or to its neighbour.
    steps : tuple of Step
        In order; some may overlap with the one before.
    blocks : int
        Into how many equal blocks the data is cut (`Cargo`). Of an alltoall,
        block ``origin * ranks + (dst - origin) % ranks`` goes from origin to dst;
        of an allgather or reduce-scatter each rank has blocks / ranks in order.
    parameters : mapping of str to int
        Root, segment and the like, where they were given.
    turns : float
        Bytes that two ranks send to each other in one step at the same time; for what
        is beyond, they take turns.
    run_by : str
        Key of the library that runs it; empty for none in particular.
    """

    collective: str
    algorithm: str
    library: str
    ranks: int
    size: int
    steps: tuple[Step, ...]
    blocks: int = 1
    parameters: Mapping[str, int] = field(default_factory=dict)
    turns: float = math.inf
    run_by: str = ""

    def describe(self) -> dict[str, Any]:
        """Return what identifies it, as JSON-ready values."""
        keys = ["collective", "algorithm", "library", "ranks", "size"]
        named = {key: getattr(self, key) for key in keys}
        if self.run_by:
            named["run_by"] = self.run_by
        given = {"parameters": dict(self.parameters)} if self.parameters else {}
        return named | given

    @property
    def phases(self) -> tuple[int, ...]:
        """The phase of each step, from 0: steps that overlap are one phase."""
        begins = [not step.overlaps for step in self.steps[1:]]
        return tuple(itertools.accumulate(begins, initial=0))[: len(self.steps)]

    def pair_bytes(self) -> Floats:
        """Return bytes from each rank to each other, shape (ranks, ranks)."""
        if not self.steps:
            return np.zeros((self.ranks, self.ranks))
        src = np.concatenate([step.src for step in self.steps])
        dst = np.concatenate([step.dst for step in self.steps])
        size = np.concatenate([step.size * step.repeat for step in self.steps])
        total = np.bincount(src * self.ranks + dst, size, self.ranks**2)
        return total.reshape(self.ranks, self.ranks).astype(np.float64, copy=False)


_left: ContextVar[int | None] = ContextVar("_left", default=None)


@contextlib.contextmanager
def bounded_messages() -> Iterator[None]:
    """Refuse to make more than `MESSAGES` messages meanwhile.

    A line of a workload's file may ask for a schedule that no memory holds.
    """
    before = _left.set(MESSAGES)
    try:
        yield
    finally:
        _left.reset(before)


def send(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    block: float,
    first: npt.ArrayLike = 0,
    count: npt.ArrayLike = 1,
    *,
    offsets: Ints | None = None,
    shift: int = 0,
    span: int = 0,
    repeat: int = 1,
    reduces: bool = False,
    relays: bool = False,
) -> Step:
    """Return the step of messages that carry these blocks.

    Numbers stand for all messages alike; a message of no blocks is left out.

    Parameters
    ----------
    src, dst : array_like of int
        Ranks.
    block : float
        Bytes of a block.
    first, count, offsets, shift, span, reduces, relays
        What is carried: see `Cargo`.
    repeat : int
        How often the step happens in a row.
    """
    arrays = np.broadcast_arrays(*np.atleast_1d(src, dst, first, count))
    kept = arrays[3] > 0
    src, dst, first, count = (np.asarray(x[kept], dtype=np.int64) for x in arrays)
    if (left := _left.get()) is not None:
        if len(src) > left:
            raise UsageError(
                f"a schedule of more than {MESSAGES} messages: take fewer ranks, or "
                "another algorithm"
            )
        _left.set(left - len(src))
    cargo = Cargo(first, count, offsets, shift, span, reduces, relays)
    return Step(src, dst, count * np.float64(block), repeat, cargo)


def pipelined(steps: Iterable[Step]) -> list[Step]:
    """Return steps as those of a pipeline: they all overlap.

    Empty ones are left out, so that the first that is left begins the phase.
    """
    kept = (step for step in steps if len(step.src))
    return [replace(step, overlaps=number > 0) for number, step in enumerate(kept)]


def refine(flow: Flow, blocks: int) -> Flow:
    """Return the same flow with its data cut into more blocks, a multiple of those."""
    factor = blocks // flow.blocks
    steps = [
        replace(step, cargo=step.cargo and step.cargo.refined(factor))
        for step in flow.steps
    ]
    return flow._replace(steps=steps, blocks=blocks)


def place(flow: Flow, ranks: Ints) -> Flow:
    """Return the same flow among other ranks: one for each that the flow counts."""
    steps = [
        replace(step, src=ranks[step.src], dst=ranks[step.dst]) for step in flow.steps
    ]
    return flow._replace(steps=steps)
