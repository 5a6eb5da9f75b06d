"""What a library is told so that a tuning is in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cloudcoll.libraries.question import Version
from cloudcoll.tuning import TunedRange, Tuning


class Ask(NamedTuple):
    """A tuning, for one version of its library, beside a user's own settings.

    Attributes
    ----------
    tuning : Tuning
    version : tuple of int
        Empty where it is not known.
    settings : mapping of str to str
        What the user tells the library, by its own names.
    """

    tuning: Tuning
    version: Version
    settings: Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """What a library is told.

    Attributes
    ----------
    variables : mapping of str to str
        Environment variables.
    file_variable : str
        The variable that names the file; empty where there is none.
    file : str
        Its text.
    notes : tuple of str
        What is not told and why, and what else follows: a line each.
    collectives : tuple of str
        Those of which something is told.
    functions : tuple of (str, int, str)
        Collective, bytes from which it holds, and how the library's own function is
        called that has to run then; empty for any. None for libraries where nobody
        sees that.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    file_variable: str = ""
    file: str = ""
    notes: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    functions: tuple[tuple[str, int, str], ...] = ()

    @property
    def anything(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.variables or self.file)


def spans(tuning: Tuning, collective: str) -> Iterator[tuple[TunedRange, int | None]]:
    """Yield the ranges of a collective with the size at which each ends, None for none.

    Neighbours that say the same are one.
    """
    ranges = list[TunedRange]()
    for one in tuning.of(collective):
        if not ranges or _choice(ranges[-1]) != _choice(one):
            ranges.append(one)
    ends = [*(one.least for one in ranges[1:]), None]
    yield from zip(ranges, ends, strict=True)


def _choice(one: TunedRange) -> tuple[str, dict[str, int]]:
    return one.algorithm, dict(one.parameters)


def changed(tuning: Tuning) -> tuple[str, ...]:
    """Return the collectives of which any call runs another algorithm."""
    found = (one.collective for one in tuning.ranges if not one.is_own)
    return tuple(dict.fromkeys(found))


def yours(names: Iterable[str], settings: Mapping[str, str], what: str) -> str:
    """Return the line about settings of the user's that win, empty for none."""
    found = [f"{name}={settings[name]}" for name in names if name in settings]
    if not found:
        return ""
    return f"your own {', '.join(found)} holds: {what}"
