"""Which algorithm a command is about: named, or taken by a library itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cloudcoll.errors import UsageError, known_names
from cloudcoll.libraries import (
    Selection,
    forced_settings,
    library_key,
    local_ranks,
    parse_library,
    select,
)

AUTO = "auto"
DEFAULT_LIBRARY = "openmpi"

LIBRARY_HELP = "openmpi, mpich, nccl, gloo, ..., with @VERSION if you know it."
ALGORITHM_HELP = "By name, or auto: what the library chooses itself."


def choose(
    collective: str,
    algorithm: str,
    library: str,
    slots: Sequence[int],
    size: int,
    *,
    settings: Mapping[str, str] | None = None,
) -> Selection:
    """Return the algorithm named, or the one that the library takes.

    Parameters
    ----------
    collective, algorithm : str
        `AUTO` leaves the algorithm to the library.
    library : str
        ``NAME[@VERSION]``; empty for `DEFAULT_LIBRARY`, or for no library's in
        particular where the algorithm is named.
    slots : sequence of int
        Ranks on each host.
    size : int
        Bytes of one call.
    settings : mapping of str to str, optional
        What the library is told; what the environment says if not given.

    Raises
    ------
    UsageError
        An unknown library, version or algorithm.
    """
    if algorithm != AUTO:
        name = variant(collective, algorithm, library) if library else algorithm
        return Selection(name, rule="as asked for", library=library_key(library))
    library = library or DEFAULT_LIBRARY
    if settings is None:
        settings = forced_settings(library, os.environ)
    local = local_ranks(tuple(slots))
    return select(library, collective, sum(slots), size, local=local, settings=settings)


def same_library(one: str, other: str) -> bool:
    """Return whether two names, with or without a version, are one library's."""
    return bool(other) and parse_library(one)[0] == parse_library(other)[0]


def variant(collective: str, algorithm: str, library: str) -> str:
    """Return the name of a library's own variant of an algorithm.

    Raises
    ------
    UsageError
        The library is unknown, or does not have it.
    """
    from cloudcoll.collectives import SCHEDULES

    library = library.partition("@")[0]
    if collective not in SCHEDULES:
        return algorithm
    asked = library_key(library)
    families = SCHEDULES[collective]
    own = [name for name in families if families[name].variants_of(asked)]
    for name in (f"{asked}_{algorithm}", algorithm):
        if name in own:
            return name
    if own:
        raise UsageError(
            f"unknown {collective} algorithm {algorithm!r} of {library} "
            f"{known_names(algorithm, own)}"
        )
    known = sorted({v.library for one in families.values() for v in one.variants})
    raise UsageError(
        f"no {collective} of library {library!r} is known (known: {', '.join(known)})"
    )
