"""The path that MPI takes, whatever card that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cloudcoll.hosts import Host
from cloudcoll.probe.job import Job
from cloudcoll.probe.transport import Conduct

PROGRAM = ("-m", "mpi4py", "-m", "cloudcoll._probes.mpi_probe")
"""Arguments of Python; mpi4py's own runner ends the whole job on an error."""


class Mpi(Job):
    """A job of any MPI's launcher; needs mpi4py on every host."""

    name = "mpi"
    module = "mpi4py"

    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program."""
        return (*self.launcher, sys.executable, *PROGRAM)
