"""The path that MPI takes, whatever card that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cloudcoll.agentfile import rank_program
from cloudcoll.hosts import Host
from cloudcoll.probe.job import Job
from cloudcoll.probe.transport import Conduct


class Mpi(Job):
    """A job of any MPI's launcher; needs mpi4py on every host."""

    name = "mpi"
    module = "mpi4py"

    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program."""
        return (*self.launcher, sys.executable, *rank_program("mpi_probe"))
