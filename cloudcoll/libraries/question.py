"""What a library is asked for, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from cloudcoll.errors import UsageError

ELEMENT = 4
"""Bytes of an element, where a rule counts elements: a float's."""

Version = tuple[int, ...]

Known = TypeVar("Known")


@dataclass(frozen=True)
class Question:
    """One call of a collective, as a library's rules see it.

    Attributes
    ----------
    collective : str
        A key of `cloudcoll.collectives.SCHEDULES`.
    ranks : int
        World size, at least 2.
    size : int
        Bytes of the full vector: of allgather and alltoall the `ranks` blocks
        together.
    local : int
        Ranks on each host; 0 where hosts have different numbers.
    version : tuple of int
        Of the library.
    settings : mapping of str to str
        What is forced, by the library's own names.
    """

    collective: str
    ranks: int
    size: int
    local: int = 1
    version: Version = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def block(self) -> int:
        """Bytes of one rank's block."""
        return self.size // self.ranks

    @property
    def hosts(self) -> int:
        """Number of hosts, the last one perhaps with fewer ranks; 0 if not known."""
        return -(-self.ranks // self.local) if self.local else 0

    @property
    def two_levels(self) -> bool:
        """Whether there are several hosts, and several ranks on some."""
        return self.local != 1 and self.hosts != 1


@dataclass(frozen=True)
class Selection:
    """The algorithm that a library takes.

    Attributes
    ----------
    algorithm : str
        A name of `cloudcoll.collectives.SCHEDULES`, of the collective asked for.
    parameters : mapping of str to int
        What `cloudcoll.collectives.build_schedule` is to be told beside.
    rule : str
        Where the choice comes from.
    assumption : str
        What is assumed on the way; empty for nothing.
    library : str
        Key of the library that runs it; empty for none in particular.
    """

    algorithm: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    rule: str = ""
    assumption: str = ""
    library: str = ""

    def __str__(self) -> str:
        assumed = f"; {self.assumption}" if self.assumption else ""
        return f"{self.algorithm} ({self.rule}{assumed})"


def only(library: str, algorithms: Mapping[str, Known], collective: str) -> Known:
    """Return what is known of a collective, which the library has."""
    if collective not in algorithms:
        known = ", ".join(algorithms)
        raise UsageError(
            f"unknown collective {collective!r} of {library} (known: {known})"
        )
    return algorithms[collective]


def number(settings: Mapping[str, str], name: str, default: int) -> int:
    """Return a setting that is a number; the default where it is none."""
    text = settings.get(name, "")
    return int(text) if text.isdecimal() else default


def dotted(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


def power_of_two(ranks: int) -> int:
    """Return the largest power of two that is not above `ranks`."""
    return 1 << (ranks.bit_length() - 1)
