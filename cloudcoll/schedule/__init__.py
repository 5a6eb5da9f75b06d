"""Communication schedules: who sends how much to whom, step by step.

One file per family. `SCHEDULES` is the table of all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from cloudcoll.errors import UsageError
from cloudcoll.schedule.rabenseifner import rabenseifner
from cloudcoll.schedule.recursive_doubling import recursive_doubling
from cloudcoll.schedule.ring import ring
from cloudcoll.schedule.steps import Schedule, Step

__all__ = ["SCHEDULES", "Schedule", "Step", "build_schedule"]

SCHEDULES: dict[str, dict[str, Callable[[int, int], Schedule]]] = {
    "allreduce": {
        "rabenseifner": rabenseifner,
        "recursive_doubling": recursive_doubling,
        "ring": ring,
    },
}
"""Collective -> algorithm -> function of (ranks, bytes)."""


def build_schedule(collective: str, algorithm: str, ranks: int, size: int) -> Schedule:
    """Return the schedule of one call of a collective.

    Parameters
    ----------
    collective, algorithm : str
        Keys of `SCHEDULES`.
    ranks : int
        World size, at least 1.
    size : int
        Bytes of the full vector.

    Raises
    ------
    UsageError
        Unknown name, or a number out of range; the message names what exists.
    """
    if collective not in SCHEDULES:
        raise UsageError(
            f"unknown collective {collective!r} (known: {', '.join(SCHEDULES)})"
        )
    family = SCHEDULES[collective]
    if algorithm not in family:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} (known: {', '.join(family)})"
        )
    if ranks < 1 or size < 0:
        raise UsageError(f"no schedule for {ranks} ranks and {size} bytes")
    return family[algorithm](ranks, size)
