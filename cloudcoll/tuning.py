"""Which algorithm a library is to run for which call: what `cloudcoll tune` found.

The choice goes with the order that it was found for, in the rank map. Each
library is told in its own way: rules in a file, variables, a plug-in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudcoll.errors import UsageError


@dataclass(frozen=True)
class TunedRange:
    """What carries calls of one collective, from one size on.

    Attributes
    ----------
    collective : str
        A key of `cloudcoll.schedule.SCHEDULES`.
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
        ``NAME@VERSION``, as `cloudcoll.selection.parse_library` reads it.
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
