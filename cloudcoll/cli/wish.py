"""What the user wants of the order of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cloudcoll.cli.choice import AUTO
from cloudcoll.launch import LaunchRequest

HOUR = 3600.0


@dataclass(frozen=True)
class Wish:
    """What the user wants of the order.

    Attributes
    ----------
    map_path : Path or None
        A rank map that settles it.
    snapshot_path : Path or None
        The snapshot to solve from; the latest of these hosts by default.
    probe : bool
        Whether to measure when there is no fresh snapshot.
    max_age : float
        Seconds after which a snapshot is no longer fresh.
    free_rank0 : bool
        Let the host of rank 0 move.
    collective, algorithm : str
        What to solve for; ``auto`` is what the library takes by itself.
    library : str
        Whose collectives the job runs, as ``NAME[@VERSION]``; empty for the
        launcher's own.
    size : int
        Bytes of one call.
    workload, parallel : str or None
        What to solve for instead of one collective: see `asked_workload`.
    pins : tuple of (int, str)
        Ranks and the hosts they stay on.
    same_rack : tuple of str
        Groups of ranks that share a rack: see `named_groups`.
    keep_below : float
        Share of the time that must be gained to change the order.
    take : bool
        Choose among all hosts listed; by default the ranks stay on the hosts
        that the unmodified command uses.
    """

    map_path: Path | None = None
    snapshot_path: Path | None = None
    probe: bool = True
    max_age: float = HOUR
    free_rank0: bool = False
    collective: str = "allreduce"
    algorithm: str = AUTO
    library: str = ""
    size: int = 16 << 20
    workload: str | None = None
    parallel: str | None = None
    pins: tuple[tuple[int, str], ...] = ()
    same_rack: tuple[str, ...] = ()
    keep_below: float = 0.0
    take: bool = False

    def candidates(self, request: LaunchRequest) -> tuple[str, ...]:
        """Return the hosts among which there is a choice."""
        return request.roomy if self.take else request.used
