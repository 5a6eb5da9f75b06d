"""`Schedule` and `Step`: the one representation of every collective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Step:
    """Messages that are under way at the same time.

    Attributes
    ----------
    src, dst : ndarray of int64, shape (messages,)
        Ranks.
    size : ndarray of float64, shape (messages,)
        Bytes of each message.
    repeat : int
        How often the step happens in a row.
    """

    src: npt.NDArray[np.int64]
    dst: npt.NDArray[np.int64]
    size: npt.NDArray[np.float64]
    repeat: int = 1


@dataclass(frozen=True)
class Schedule:
    """The messages of one call of a collective.

    Attributes
    ----------
    collective, algorithm : str
        The operation, and the way it is done.
    library : str
        Whose variant this is, with the versions it was checked against.
    ranks : int
        World size it is exact for.
    size : int
        Bytes of the full vector it is exact for.
    steps : tuple of Step
        In order. With `concurrent` they overlap: a pipelined algorithm's
        streams, which load the links together.
    concurrent : bool
    """

    collective: str
    algorithm: str
    library: str
    ranks: int
    size: int
    steps: tuple[Step, ...]
    concurrent: bool = False

    def describe(self) -> dict[str, Any]:
        """Return what identifies it, as JSON-ready values."""
        keys = ("collective", "algorithm", "library", "ranks", "size")
        return {key: getattr(self, key) for key in keys}

    def pair_bytes(self) -> npt.NDArray[np.float64]:
        """Return bytes from each rank to each other, shape (ranks, ranks)."""
        total = np.zeros((self.ranks, self.ranks))
        for step in self.steps:
            np.add.at(total, (step.src, step.dst), step.size * step.repeat)
        return total


def power_of_two_below(ranks: int) -> int:
    """Return the largest power of two that is not above `ranks` (>= 1)."""
    return 1 << (ranks.bit_length() - 1)


def exchange(ranks: npt.NDArray[np.int64], distance: int, size: float) -> Step:
    """Return the step in which position v trades `size` bytes with v xor distance.

    Parameters
    ----------
    ranks : ndarray of int64
        The rank at each position; a power of two of them.
    distance : int
        A power of two below their number.
    size : float
        Bytes each way.
    """
    partner = ranks[np.arange(len(ranks)) ^ distance]
    return Step(ranks, partner, np.full(len(ranks), float(size)))
