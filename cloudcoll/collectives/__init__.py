"""Communication schedules: who sends how much to whom, step by step.

One file per family. `SCHEDULES` is the table of all of them.
"""

from __future__ import annotations

from math import inf

from cloudcoll.collectives.steps import Cargo, Flow, Schedule, Step, bounded_messages
from cloudcoll.collectives.table import SCHEDULES, Family
from cloudcoll.errors import UsageError, known_names

__all__ = [
    "SCHEDULES",
    "Cargo",
    "Family",
    "Flow",
    "Schedule",
    "Step",
    "build_schedule",
    "find_family",
]

LIMITS: dict[str, tuple[int, float]] = {
    "root": (0, inf),
    "segment": (0, inf),
    "radix": (2, inf),
    "fanout": (1, inf),
    "local": (1, inf),
    "columns": (0, inf),
    "allgather": (1, 8),
    "barrier": (1, 6),
    "bcast": (1, 9),
    "gather": (1, 3),
    "reduce": (1, 8),
    "scatter": (1, 3),
}
"""The smallest and the largest value of each parameter that a family may take."""


def find_family(collective: str, algorithm: str) -> Family:
    """Return the line of `SCHEDULES` for an algorithm.

    Raises
    ------
    UsageError
        Unknown name; the message names what exists.
    """
    if collective not in SCHEDULES:
        raise UsageError(
            f"unknown collective {collective!r} {known_names(collective, SCHEDULES)}"
        )
    families = SCHEDULES[collective]
    if algorithm not in families:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} "
            f"{known_names(algorithm, families)}"
        )
    return families[algorithm]


def build_schedule(
    collective: str,
    algorithm: str,
    ranks: int,
    size: int,
    library: str = "",
    /,
    **parameters: int,
) -> Schedule:
    """Return the schedule of one call of a collective.

    Parameters
    ----------
    collective, algorithm : str
        Keys of `SCHEDULES`.
    ranks : int
        World size, at least 1.
    size : int
        Bytes of the full vector.
    library : str
        Key of the one that runs it: ranks of Open MPI take turns, those of MPICH do
        not. Empty for the first that has the algorithm.
    **parameters : int
        What the family takes: ``root`` (a rank), ``segment`` (bytes, 0 for the
        whole message), ``radix``, ``fanout``, ``local`` (ranks of each host),
        ``columns`` (ranks of a row); of what Open MPI puts together, the parts
        by their numbers.

    Raises
    ------
    UsageError
        Unknown name, or a number out of range; the message names what exists.
    """
    family = find_family(collective, algorithm).of(library)
    if ranks < 1 or size < 0:
        raise UsageError(f"no schedule for {ranks} ranks and {size} bytes")
    _check(f"{collective} {algorithm}", family, ranks, parameters)
    with bounded_messages():
        flow = family.build(ranks, size, **parameters) if ranks > 1 else Flow(())
    return Schedule(
        collective,
        algorithm,
        family.library,
        ranks,
        size,
        tuple(step for step in flow.steps if len(step.src)),
        flow.blocks,
        parameters,
        family.turns,
        library,
    )


def _check(name: str, family: Family, ranks: int, parameters: dict[str, int]) -> None:
    if family.only not in (None, ranks):
        raise UsageError(f"{name} is for {family.only} ranks, not {ranks}")
    known = family.parameters()
    for key, value in parameters.items():
        if key not in known:
            takes = f"takes: {', '.join(known)}" if known else "takes none"
            raise UsageError(f"{name} has no parameter {key!r} ({takes})")
        least, most = LIMITS[key]
        if not least <= value <= most:
            allowed = f"at least {least}" if most == inf else f"{least} to {most}"
            raise UsageError(f"{name}: {key} must be {allowed}, not {value}")
    if parameters.get("root", 0) >= ranks:
        raise UsageError(
            f"{name}: root {parameters['root']} is not one of {ranks} ranks, "
            f"0 to {ranks - 1}"
        )
