"""What the user asks of an order, and of a bench."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import UsageError, known_names, nearest
from cloudcoll.launch import LaunchRequest
from cloudcoll.libraries import parse_library
from cloudcoll.work.sent import AUTO, is_workload, variant

HOUR = 3600.0


@dataclass(frozen=True)
class OrderRequest:
    """What the user asks of the order of a launch.

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
    too_old : float
        Seconds after which one is not used at all; VMs move.
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
        Groups of ranks that share a rack: see `cloudcoll.work.sent.asked_constraints`.
    keep_below : float or None
        Share of the time that must be gained to change the order; by default what
        predictions of these hosts are off by, and 1 % at least.
    take : bool
        Choose among all hosts listed; by default the ranks stay on the hosts
        that the unmodified command uses.
    tune : bool
        Put the algorithms in force that were chosen with the order.
    """

    map_path: Path | None = None
    snapshot_path: Path | None = None
    probe: bool = True
    max_age: float = HOUR
    too_old: float = 7 * 24 * HOUR
    free_rank0: bool = False
    collective: str = "allreduce"
    algorithm: str = AUTO
    library: str = ""
    size: int = 16 << 20
    workload: str | None = None
    parallel: str | None = None
    pins: tuple[tuple[int, str], ...] = ()
    same_rack: tuple[str, ...] = ()
    keep_below: float | None = None
    take: bool = False
    tune: bool = False

    def __post_init__(self) -> None:
        # From Python a path may come as text, whatever the types say.
        for name in ("map_path", "snapshot_path"):
            if (path := getattr(self, name)) is not None:
                object.__setattr__(self, name, Path(path))

    def candidates(self, request: LaunchRequest) -> tuple[str, ...]:
        """Return the hosts among which there is a choice."""
        return request.roomy if self.take else request.used

    def check(self) -> None:
        """Check what can be known to be wrong before anything is measured or started.

        Raises
        ------
        UsageError
            Options that contradict each other, names of nothing, files that are not
            there; the message has the nearest name.
        """
        several = is_workload(self.workload, self.parallel)
        if self.map_path and (
            several
            or self.pins
            or self.same_rack
            or self.keep_below is not None
            or self.take
        ):
            raise UsageError(
                "--map has an order already: leave out --workload, --parallel, --pin, "
                "--same-rack, --keep-below and --take, or solve again with them"
            )
        if (
            self.tune
            and not self.map_path
            and (self.pins or self.same_rack or self.take or self.algorithm != AUTO)
        ):
            raise UsageError(
                "--tune chooses order and algorithms: leave out --pin, --same-rack, "
                "--take and --algorithm, or choose for a --map"
            )
        make_map = "make one with 'cloudcoll solve SNAP -o MAP'"
        _check_file("--map", self.map_path, make_map)
        _check_file("--snapshot", self.snapshot_path, "measure with 'cloudcoll probe'")
        if several:
            self._check_workload()
        else:
            self._check_collective()

    def _check_workload(self) -> None:
        # With NumPy, which a launch can do without: only for what was typed alone.
        if self.workload is not None and not os.path.exists(self.workload):
            from cloudcoll.collectives.readymade import READY_MADE

            if (name := self.workload.partition(":")[0]) not in READY_MADE:
                raise UsageError(
                    f"no workload {name!r}: neither a file nor ready-made "
                    f"{known_names(name, READY_MADE)}"
                )
        if self.parallel is not None:
            from cloudcoll.collectives.groups import parse_parallel

            parse_parallel(self.parallel)

    def _check_collective(self) -> None:
        if self.library and self.algorithm == AUTO:
            parse_library(self.library)
        if (self.collective, self.algorithm) == ("allreduce", AUTO):
            return
        from cloudcoll.collectives import SCHEDULES, find_family

        if self.algorithm != AUTO:
            name = self.algorithm
            if self.library:
                name = variant(self.collective, name, self.library)
            find_family(self.collective, name)
        elif self.collective not in SCHEDULES:
            raise UsageError(
                f"unknown collective {self.collective!r} "
                f"{known_names(self.collective, SCHEDULES)}"
            )


def _check_file(option: str, path: Path | None, advice: str) -> None:
    """Raise UsageError if an option names a file that is not there."""
    if path is None or os.path.exists(path):
        return
    try:
        near = nearest(path.name, os.listdir(path.parent))
    except OSError:
        near = ""
    raise UsageError(f"{option} {path}: there is no such file ({near}{advice})")


ORDERS = "given,sorted,grouped,random:5,cloudcoll"
BACKENDS = {"mpi": ("mpi4py", "c"), "torch": ("gloo", "nccl")}


@dataclass(frozen=True)
class CompareOptions:
    """What is measured in several orders of hosts, and for how long.

    Attributes
    ----------
    orders : str
        Such as ``given,sorted,random:5,cloudcoll``.
    collective, algorithm : str
        As of `OrderRequest`.
    via, backend : str
        Whose collectives are timed, and with what: see `BACKENDS`.
    first, last, factor : int
        Bytes of the smallest and of the largest call, and from one to the next.
    repeats : int
        Most measurements of each order at each size.
    seconds : float
        For all, from the search for the order to the job's end.
    narrow : float
        Per cent to which all ratios are known when measuring ends.
    seed : int
        Of the random orders.
    timeout : float
        Seconds after which the job is killed.
    """

    orders: str = ORDERS
    collective: str = "allreduce"
    algorithm: str = AUTO
    via: str = "mpi"
    backend: str | None = None
    first: int = 1 << 20
    last: int = 16 << 20
    factor: int = 4
    repeats: int = 20
    seconds: float = 140.0
    narrow: float = 1.0
    seed: int = 0
    timeout: float = 1800.0
