"""The operations that a bench can time, as nccl-tests counts and names them."""

from __future__ import annotations

from dataclasses import dataclass

from cloudcoll.errors import UsageError


@dataclass(frozen=True)
class TimedOperation:
    """How one collective is timed and its bandwidth counted.

    Attributes
    ----------
    laps : int
        busbw = algbw times laps (n - 1) / n; 0 for busbw = algbw (nccl-tests,
        ``doc/PERFORMANCE.md``).
    redop : str
        What ranks' elements become one by.
    root : int
        Rank of the root, -1 for an operation without.
    blocks : bool
        Whether the vector is made of an equal block for each rank.
    """

    laps: int
    redop: str = "none"
    root: int = -1
    blocks: bool = False

    def busbw(self, algbw: float, ranks: int) -> float:
        """Return the bandwidth of the busiest link, in the unit of `algbw`."""
        return algbw * self.laps * (ranks - 1) / ranks if self.laps else algbw

    def round_down(self, size: int, ranks: int) -> int:
        """Return the largest size in bytes up to `size` that elements fill, or one."""
        unit = ELEMENT * (ranks if self.blocks else 1)
        return max(size // unit, 1) * unit


ELEMENT = 4
"""Bytes of one: float32."""

OPERATIONS = {
    "allgather": TimedOperation(1, blocks=True),
    "allreduce": TimedOperation(2, redop="sum"),
    "alltoall": TimedOperation(1, blocks=True),
    "bcast": TimedOperation(0, root=0),
    "reduce": TimedOperation(0, redop="sum", root=0),
    "reduce_scatter": TimedOperation(1, redop="sum", blocks=True),
}
"""Name, as in `cloudcoll.collectives.SCHEDULES`, -> operation."""

ALIASES = {"broadcast": "bcast", "all_to_all": "alltoall"}


def operation_name(text: str) -> str:
    """Return the key in `OPERATIONS` of a name such as ``all-to-all``.

    Raises
    ------
    UsageError
        There is none.
    """
    name = text.lower().replace("-", "_")
    name = ALIASES.get(name, name)
    if name not in OPERATIONS:
        raise UsageError(
            f"bench times no collective {text!r} (known: {', '.join(OPERATIONS)})"
        )
    return name
