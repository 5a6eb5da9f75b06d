"""Cray MPICH: ranks renumbered by a file, under ``srun`` or PALS' ``mpiexec``.

``MPICH_RANK_REORDER_METHOD=3`` has the library read the MPI rank of each slot,
slot after slot and host after host (``intro_mpi`` of Cray MPICH 8). What
launchers and their variables call a rank stays as it was, so ranks can't
report themselves. Written from documentation; no such system was tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import (
    Syntax,
    even_counts,
    program_start,
    scan_options,
)
from cloudcoll.launch.hosts import ListLauncher
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

CRAY = "CRAY_MPICH_VERSION"
"""Set by the module that brings the library."""

PALS = Syntax.of(
    "exclusive help line-buffer no-abort-on-failure verbose version",
    "cpu-bind depth env gpu-bind mem-bind n ppn rlimits umask wdir",
    "np n d depth l line-buffer V version",
)
"""The options of PALS' ``mpiexec`` that keep ranks where they are."""


def reordered(
    request: LaunchRequest, placement: Sequence[str], directory: Path
) -> LaunchPlan:
    """Return the plan that puts MPI rank ``i`` on host ``placement[i]``.

    LaunchError where ranks are dealt over the hosts: the method needs blocks.
    """
    if request.cyclic:
        raise LaunchError("Cray MPICH reorders ranks only where they fill the hosts")
    path = str(directory / "MPICH_RANK_ORDER")
    ranks = defaultdict[str, list[str]](list)
    for rank, host in enumerate(placement):
        ranks[host].append(str(rank))
    lines = [",".join(ranks[host]) for host in request.used]
    return LaunchPlan(
        argv=request.argv,
        files={path: "".join(f"{line}\n" for line in lines)},
        env={"MPICH_RANK_REORDER_METHOD": "3", "MPICH_RANK_REORDER_FILE": path},
    )


@dataclass(frozen=True)
class Pals(ListLauncher):
    """``mpiexec`` of HPE's PALS in a PBS job, with Cray MPICH."""

    programs = frozenset({"mpiexec", "mpirun"})
    title = "PALS (mpiexec)"
    mechanism = "MPICH_RANK_REORDER_FILE; not read back; not tried"
    source = "part of HPE Cray's system software"

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is PALS' ``mpiexec``."""
        return super().recognises(argv, version) and "pals" in version().lower()

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        options, start = scan_options(argv, PALS)
        start = program_start(argv, start)
        if ":" in argv[start:]:
            raise LaunchError("several programs on one command line (':')")
        if CRAY not in env or "PBS_NODEFILE" not in env:
            raise LaunchError(f"PBS_NODEFILE or {CRAY} is not set")
        if "MPICH_RANK_REORDER_METHOD" in env:
            raise LaunchError("MPICH_RANK_REORDER_METHOD is set already")
        hosts = self.read_hostfile(env["PBS_NODEFILE"], "pbs")
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=start,
            hosts=hosts,
            source=env["PBS_NODEFILE"],
            counts=even_counts(hosts, options, "n", "ppn"),
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        return reordered(request, placement, directory)
