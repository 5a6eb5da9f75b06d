"""Which algorithm a library is to run for which call: what `cloudcoll tune` found.

The choice goes with the order that it was found for, in the rank map. Each
library is told in its own way: rules in a file, variables, a plug-in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cloudcoll.errors import UsageError, known_names
from cloudcoll.files.limits import RANKS, SLOTS, TUNED_BYTES, TUNED_RANGES

PARAMETERS = ("segment", "fanout", "radix")
"""What an algorithm can be told."""

MOST_SECONDS = 1e9
"""Of one call."""


@dataclass(frozen=True)
class TunedRange:
    """What carries calls of one collective, from one size on.

    Attributes
    ----------
    collective : str
        A key of `cloudcoll.collectives.SCHEDULES`.
    least : int
        Bytes of the full vector from which it holds, up to the next range of the
        same collective. The first range of a collective begins with 0.
    algorithm : str
        A name of `SCHEDULES`; empty for what the library takes by itself.
    parameters : mapping of str to int
        What the algorithm is told: ``segment``, ``fanout``, ``radix``.
    predicted : float
        Seconds of one call at `size` in the map's order, 0.0 where not known.
    own : float
        The same of the library's own choice.
    size : int
        Bytes of the call of which `predicted` and `own` speak.
    measured : bool
        Whether both are measured, not predicted.
    """

    collective: str
    least: int
    algorithm: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    predicted: float = 0.0
    own: float = 0.0
    size: int = 0
    measured: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the library's own choice stays."""
        return not self.algorithm


@dataclass(frozen=True)
class Tuning:
    """The algorithms of one job.

    Attributes
    ----------
    library : str
        ``NAME@VERSION``, as `cloudcoll.libraries.parse_library` reads it.
    ranks : int
        World size that it was found for; it holds for no other.
    local : int
        Ranks on each host; 0 where hosts have different numbers.
    ranges : tuple of TunedRange
        By collective, and from small to large.
    """

    library: str
    ranks: int
    local: int = 1
    ranges: tuple[TunedRange, ...] = ()

    def __post_init__(self) -> None:
        for collective in self.collectives:
            starts = [one.least for one in self.of(collective)]
            if starts[0] != 0 or starts != sorted(set(starts)):
                raise UsageError(
                    f"the sizes of {collective} in a tuning must begin with 0 and rise"
                )

    @property
    def collectives(self) -> tuple[str, ...]:
        """Those of which something is said, each once."""
        return tuple(dict.fromkeys(one.collective for one in self.ranges))

    def of(self, collective: str) -> tuple[TunedRange, ...]:
        """Return the ranges of one collective; none where nothing is said."""
        return tuple(one for one in self.ranges if one.collective == collective)

    def at(self, collective: str, size: int) -> TunedRange | None:
        """Return what carries a call of `size` bytes; None for nothing said."""
        ranges = self.of(collective)
        if not ranges:
            return None
        return ranges[bisect_right([one.least for one in ranges], size) - 1]

    @property
    def changes_anything(self) -> bool:
        """Whether any call runs another algorithm than the library's own."""
        return any(not one.is_own for one in self.ranges)


def read_tuning(data: object, source: str) -> Tuning:
    """Return a tuning from its JSON form, ``dataclasses.asdict``, checking every field.

    Whether a library has the algorithms is not asked here: see
    `cloudcoll.libraries.telling.check_tuning`.
    """
    where = f"{source}: the tuning"
    found = _object(data, where, Tuning)
    ranges = found.get("ranges", [])
    if not isinstance(ranges, list) or len(ranges) > TUNED_RANGES:
        raise UsageError(f"{where}: 'ranges' must be a list of at most {TUNED_RANGES}")
    local = _number(found, "local", 0, SLOTS, where, 1)
    ranks = _number(found, "ranks", 2, RANKS, where)
    library = _text(found, "library", where)
    read = tuple(_read_range(one, where) for one in ranges)
    try:
        return Tuning(library, ranks, local, read)
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from None


def _read_range(data: object, where: str) -> TunedRange:
    where = f"{where}: a range"
    found = _object(data, where, TunedRange)
    parameters = found.get("parameters", {})
    if not isinstance(parameters, dict):
        raise UsageError(f"{where}: 'parameters' must be an object")
    for name in parameters:
        if name not in PARAMETERS:
            raise UsageError(
                f"{where}: unknown parameter {name!r} {known_names(name, PARAMETERS)}"
            )
    measured = found.get("measured", False)
    if not isinstance(measured, bool):
        raise UsageError(f"{where}: 'measured' must be true or false")
    return TunedRange(
        _text(found, "collective", where),
        _number(found, "least", 0, TUNED_BYTES, where),
        _text(found, "algorithm", where, ""),
        {name: _number(parameters, name, 0, TUNED_BYTES, where) for name in parameters},
        _seconds(found, "predicted", where),
        _seconds(found, "own", where),
        _number(found, "size", 0, TUNED_BYTES, where, 0),
        measured,
    )


def _object(data: object, where: str, kind: type[Any]) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise UsageError(f"{where} must be an object")
    known = [field.name for field in fields(kind)]
    for name in data:
        if name not in known:
            raise UsageError(f"{where}: unknown field {name!r}")
    return data


def _text(
    data: Mapping[str, Any], key: str, where: str, default: str | None = None
) -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise UsageError(f"{where}: {key!r} must be a text")
    return value


def _number(
    data: Mapping[str, Any],
    key: str,
    least: int,
    most: int,
    where: str,
    default: int | None = None,
) -> int:
    value = data.get(key, default)
    if type(value) is not int or not least <= value <= most:  # True is no number here
        raise UsageError(f"{where}: {key!r} must be a whole number, {least} to {most}")
    return value


def _seconds(data: Mapping[str, Any], key: str, where: str) -> float:
    value = data.get(key, 0.0)
    if type(value) not in (int, float) or not 0 <= value <= MOST_SECONDS:
        raise UsageError(f"{where}: {key!r} must be seconds, 0 or more")
    return float(value)
