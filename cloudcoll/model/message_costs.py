"""What a message and a byte cost a rank, beside what the network takes for them.

A probe's programs wait in the kernel and send as TCP likes; ranks poll, ask for large
messages, copy, and may share a processor; and what a rank sends at once after a pause
overruns a short queue. These are LogGP's overhead and gap per byte (Alexandrov et al.
1995), as far as they are not in the fabric: how much longer a ring takes than
predicted, in which each rank sends one message and gets one in a step. They are alike
in every order of hosts, so no order depends on them, but which algorithm is the fastest
does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.libraries import local_ranks
from cloudcoll.measured.snapshot import NetworkSnapshot

MOST_S, SIZE = 60.0, 1 << 40
"""No message costs more seconds, nor has more bytes: else what a file says is wrong."""

KEY = "message_costs"
"""Where a snapshot's metadata has them."""


@dataclass(frozen=True)
class MessageCosts:
    """What is added to predictions.

    Attributes
    ----------
    sizes : tuple of float
        Bytes of messages that were measured, ascending.
    each : tuple of float
        Seconds that one of so many bytes costs the rank that sends it and the one that
        gets it. Between them, and beyond, it is on a line, which does not fall beyond.
    """

    sizes: tuple[float, ...]
    each: tuple[float, ...]

    def of(self, size: Floats) -> Floats:
        """Return the seconds that messages of so many bytes cost."""
        found = np.interp(size, self.sizes, self.each)
        if len(self.sizes) > 1:
            rise, run = (float(np.diff(one[-2:])[0]) for one in (self.each, self.sizes))
            found += max(rise, 0.0) / run * np.maximum(size - self.sizes[-1], 0.0)
        return found

    def seconds(self, schedule: Schedule) -> float:
        """Return what they come to in one call: that of the busiest rank of each phase.

        Sending and getting go on at the same time. A pipeline's first piece takes one
        message more in each step that follows.
        """
        if not any(self.each):
            return 0.0
        segment = schedule.parameters.get("segment", 0)
        total = 0.0
        pairs = zip(schedule.phases, schedule.steps, strict=True)
        for _, same in itertools.groupby(pairs, lambda pair: pair[0]):
            steps = [step for _, step in same]
            spent, longest = np.zeros((2, schedule.ranks)), 0.0
            for step in steps:
                size, pieces = step.size, np.ones_like(step.size)
                if segment:
                    pieces = np.maximum(np.ceil(size / segment), 1.0)
                    size = size / pieces
                one = self.of(size)
                longest = max(longest, float(one.max(initial=0.0)))
                for way, ends in enumerate((step.src, step.dst)):
                    found = np.bincount(ends, one * pieces, schedule.ranks)
                    spent[way] += step.repeat * found
            total += float(spent.max()) + (len(steps) - 1) * longest
        return total


FREE = MessageCosts((0.0,), (0.0,))
"""Of a library that nobody measured."""


def costs_in(
    snapshot: NetworkSnapshot, library: str, slots: Sequence[int]
) -> MessageCosts | None:
    """Return what a snapshot has of a library, None for nothing.

    Parameters
    ----------
    snapshot : NetworkSnapshot
    library : str
        Its key.
    slots : sequence of int
        Ranks on each host: more of them share its processors.
    """
    kept = snapshot.metadata.get(KEY)
    found = kept.get(_key(library, slots)) if isinstance(kept, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    sizes, each = (found.get(name) for name in ("sizes", "each"))
    if not (_are_numbers(sizes, SIZE) and _are_numbers(each, MOST_S)):
        return None
    if len(sizes) != len(each) or (np.diff(sizes) <= 0).any():
        return None
    return MessageCosts(tuple(sizes), tuple(each))


def _are_numbers(found: object, most: float) -> TypeGuard[list[float]]:
    """Return whether it is some numbers, none below 0 or above `most`."""
    return (
        isinstance(found, list)
        and len(found) > 0
        and all(isinstance(one, float | int) and 0 <= one <= most for one in found)
    )


def with_costs(
    snapshot: NetworkSnapshot, library: str, slots: Sequence[int], costs: MessageCosts
) -> NetworkSnapshot:
    """Return a snapshot that has them, without a digest."""
    kept = snapshot.metadata.get(KEY)
    known: dict[str, Any] = dict(kept) if isinstance(kept, Mapping) else {}
    known[_key(library, slots)] = {name: [*each] for name, each in vars(costs).items()}
    return replace(snapshot, metadata={**snapshot.metadata, KEY: known}, digest="")


def beside(
    snapshot: NetworkSnapshot, sent: Schedule | Workload, slots: Sequence[int]
) -> float:
    """Return seconds that messages cost in one call, or one step of a workload.

    0 as far as nobody has measured the library that runs it.
    """
    if KEY not in snapshot.metadata:
        return 0.0
    parts = sent.parts if isinstance(sent, Workload) else [(1, sent)]
    return sum(
        calls * costs.seconds(one)
        for calls, one in parts
        if (costs := costs_in(snapshot, one.run_by, slots))
    )


def _key(library: str, slots: Sequence[int]) -> str:
    return f"{library} x {local_ranks(tuple(slots))}"
