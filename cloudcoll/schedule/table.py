"""The table of all schedules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from cloudcoll.schedule.rabenseifner import rabenseifner
from cloudcoll.schedule.recursive_doubling import recursive_doubling
from cloudcoll.schedule.ring import ring
from cloudcoll.schedule.steps import Flow


@dataclass(frozen=True)
class Family:
    """One line of the table.

    Attributes
    ----------
    build : callable
        Function of (ranks >= 2, bytes, and the parameters it takes).
    library : str
        Whose variant this is, with the versions it was checked against.
    """

    build: Callable[..., Flow]
    library: str

    def parameters(self) -> tuple[str, ...]:
        """Return the names of what `build` takes beside ranks and bytes."""
        return tuple(inspect.signature(self.build).parameters)[2:]


OPEN_MPI = "Open MPI 5.0"

SCHEDULES: dict[str, dict[str, Family]] = {
    "allreduce": {
        "rabenseifner": Family(rabenseifner, OPEN_MPI),
        "recursive_doubling": Family(recursive_doubling, OPEN_MPI),
        "ring": Family(ring, OPEN_MPI),
    },
}
"""Collective -> algorithm -> family."""
