"""``mpirun_rsh`` of MVAPICH 2, whose ranks follow the lines of its host file.

Read from its user guide (2.3, "Run MPI applications using mpirun_rsh") and
``src/pm/mpirun/mpirun_params.c``; not tried here. What follows the options is
put into double quotes on its way, so no line of shell can stand there: ranks do
not report. With ``-export-all``, variables stand in the command lines of its ssh.
MVAPICH 3 starts by Hydra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import (
    Syntax,
    last_values,
    program_start,
    rank_count,
    scan_options,
    where,
    without,
)
from cloudcoll.launch.hosts import ListLauncher
from cloudcoll.launch.hydra import fill_hosts, machinefile
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

SYNTAX = Syntax.of(
    "debug export export-all fastssh help legacy rsh show ssh tv v xterm",
    "hostfile launcher np sg",
)
"""The options that leave ranks where the host file has them."""


@dataclass(frozen=True)
class MpirunRsh(ListLauncher):
    """``mpirun_rsh``."""

    programs = frozenset({"mpirun_rsh"})
    title = "MVAPICH 2 (mpirun_rsh)"
    mechanism = "its host file (-hostfile), in order; not read back; not tried"
    source = "MVAPICH's own packages"

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        Raises
        ------
        CloudcollError
            No host file, or one that does not parse or has too few places.
        """
        options, start = scan_options(argv, SYNTAX)
        files = last_values(options, "hostfile")
        if not files:
            raise LaunchError("no host list is given (-hostfile)")
        ranks = rank_count(options, "np")
        if ranks is None:
            raise LaunchError("the number of ranks is not given (-np)")
        listed = self.read_hostfile(files[-1], "mpich")
        hosts = tuple(replace(host, slots=host.slots or 1) for host in listed)
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=program_start(argv, start),
            hosts=hosts,
            source=files[-1],
            counts=fill_hosts(hosts, files[-1], ranks),
            placement_options=where(options, {"hostfile"}),
            shows_variables=True,
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path = str(directory / "hosts")
        kept = without(request.argv, request.placement_options, request.start)
        return LaunchPlan(
            argv=(kept[0], "-hostfile", path, *kept[1:], *request.led_by(())),
            files={path: machinefile(placement)},
        )
