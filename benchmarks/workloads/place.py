"""Where a workload's rank stands, and what a workload is.

A workload is a module with three things:

``LIBRARY``
    Whose collectives it calls, as ``cloudcoll solve --library`` names it.
``sent(ranks)``
    What one step sends: a list of `Sent`.
``training(place)``
    A context in which the ranks have joined; it gives the step, a function that
    returns the loss (or residual). At a place that is `alone` a step computes
    the same but talks to nobody. Each rank has its own share of the data, by its
    number and not by its host: every order must learn the same.

One that makes a mesh in CloudColl's order, where it is told a snapshot, is in
`OF_MESHES` (`__main__`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mpi4py import MPI

NAP_S = 5e-4
"""Ranks that wait must not take the cores from those that compute."""


class Sent(NamedTuple):
    """A collective of one step.

    Attributes
    ----------
    collective : str
    bytes : int
        Of a group's full vector.
    calls : int
    groups : sequence of sequence of int
        Of ranks; empty for all in one.
    """

    collective: str
    bytes: int
    calls: int = 1
    groups: Sequence[Sequence[int]] = ()


@dataclass(frozen=True)
class Place:
    """A rank of an order.

    Attributes
    ----------
    comm : MPI.Comm
        All ranks in this order.
    addresses : tuple of str
        Of each rank's host.
    port : int
        Free on every host, and of this turn only.
    alone : bool
        Whether to talk to nobody.
    snapshot : str
        Its file, where groups of the ranks as they are get their order from it;
        else empty.
    """

    comm: MPI.Comm
    addresses: tuple[str, ...]
    port: int
    alone: bool = False
    snapshot: str = ""

    @property
    def rank(self) -> int:
        """Its number."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.comm.size

    def wait(self) -> None:
        """Return when all ranks are here."""
        request = self.comm.Ibarrier()
        while not request.Test():
            time.sleep(NAP_S)
