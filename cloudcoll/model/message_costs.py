"""What a message and a byte cost a rank, beside what the network takes for them.

A probe's programs wait in the kernel and send as TCP likes; ranks poll, ask for large
messages, copy, and may share a processor. These are LogGP's overhead and gap per byte
(Alexandrov, Ionescu, Schauser and Scheiman 1995), as far as they are not in the fabric:
how much longer a ring takes than predicted, in which each rank sends one message and
gets one in a step. They are alike in every order of hosts, so no order depends on them,
but which algorithm is the fastest does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Workload
from cloudcoll.libraries import local_ranks
from cloudcoll.measured.snapshot import NetworkSnapshot

MOST_S = 60.0
"""No message costs as much: what a file says of that is wrong."""

KEY = "message_costs"
"""Where a snapshot's metadata has them."""


@dataclass(frozen=True)
class MessageCosts:
    """What is added to predictions.

    Attributes
    ----------
    per_message : float
        Seconds of each message that a rank sends or gets, whichever are more.
    per_byte : float
        Seconds of each of its bytes.
    """

    per_message: float = 0.0
    per_byte: float = 0.0

    def seconds(self, schedule: Schedule) -> float:
        """Return what they come to in one call: that of the busiest rank of each phase.

        A pipeline's first piece takes one message more in each step that follows.
        """
        if not (self.per_message or self.per_byte):
            return 0.0
        segment = schedule.parameters.get("segment", 0)
        total = 0.0
        pairs = zip(schedule.phases, schedule.steps, strict=True)
        for _, same in itertools.groupby(pairs, lambda pair: pair[0]):
            steps = [step for _, step in same]
            count, size = np.zeros((2, 2, schedule.ranks))
            for step in steps:
                pieces = np.ceil(step.size / segment) if segment else None
                for way, ends in enumerate((step.src, step.dst)):
                    for sums, each in ((count, pieces), (size, step.size)):
                        found = np.bincount(ends, each, schedule.ranks)
                        sums[way] += step.repeat * found
            messages = count.max() + len(steps) - 1
            total += self.per_message * messages + self.per_byte * size.max()
        return float(total)


FREE = MessageCosts()
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
    numbers = [
        one
        for name in ("per_message", "per_byte")
        if isinstance(one := found.get(name), float) and 0 <= one < MOST_S
    ]
    return MessageCosts(*numbers) if len(numbers) == 2 else None


def with_costs(
    snapshot: NetworkSnapshot, library: str, slots: Sequence[int], costs: MessageCosts
) -> NetworkSnapshot:
    """Return a snapshot that has them, without a digest."""
    kept = snapshot.metadata.get(KEY)
    known: dict[str, Any] = dict(kept) if isinstance(kept, Mapping) else {}
    known[_key(library, slots)] = asdict(costs)
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
