"""Start the programs that call the libraries on hosts of a lab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from cloudcoll import lab as labs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = {
    "gloo": "gloo.py",
    "lightgbm": "lgbm.py",
    "mpich": "mpi.py",
    "openmpi": "mpi.py",
    "xgboost": "xgb.py",
}
SONAMES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}
"""By which mpi4py asks for the libraries."""

MCA = {
    "btl": "tcp,self",
    "coll_tuned_use_dynamic_rules": "1",
    "pml": "ob1",
    "plm_rsh_agent": "ssh",
    "mpi_yield_when_idle": "1",
}
LIBRARY_ENVIRONMENT = {
    **{f"OMPI_MCA_{name}": value for name, value in MCA.items()},
    # UCX and libfabric would see that all hosts are one machine.
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": "eth0",
    "FI_PROVIDER": "tcp",
    # MPICH 4.3 as of PyPI has no other way to let other ranks of a core run: with it a
    # round of messages among 16 ranks on two cores takes .3 ms, and without it 20 ms.
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "GLOO_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "1",
}
PORTS = count(29500)
"""One for each job: that of the last one may not be free yet."""
DEADLINE = 300.0
"""Seconds for all cases of one job."""


@dataclass(frozen=True)
class Start:
    """How the programs of a library are started.

    Attributes
    ----------
    library : str
        A key of `PROGRAMS`.
    python : str
        The interpreter, which has the library.
    launcher : str
        ``mpirun`` or ``mpiexec`` of the library, for those that have one.
    libmpi : str
        The library's file, where it is not the one that mpi4py finds.
    """

    library: str
    python: str = sys.executable
    launcher: str = ""
    libmpi: str = ""

    def run(
        self, lab: labs.Lab, ranks: int, local: int, cases: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], str]:
        """Run cases on the first hosts of a lab, with `local` ranks on each.

        Returns
        -------
        lines : list of dict
            What rank 0 printed, as far as it came.
        problem : str
            What went wrong, if something did.
        """
        hosts = [host.name for host in lab.hosts[: -(-ranks // local)]]
        argv = [self.python, str(HERE / PROGRAMS[self.library]), json.dumps(cases)]
        environment = LIBRARY_ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        with tempfile.TemporaryDirectory() as folder:
            if self.libmpi:
                os.symlink(self.libmpi, Path(folder) / SONAMES[self.library])
                environment["LD_LIBRARY_PATH"] = folder
                environment["MPI4PY_MPIABI"] = self.library
            if self.library in SONAMES:
                options = self._options(lab, hosts, local, environment)
                command = [self.launcher, *options, "-n", str(ranks), *argv]
                jobs = [_start(lab, labs.HEAD, command, environment)]
            else:
                environment["MACHINES"] = ",".join(hosts)
                environment["PORT"] = str(next(PORTS))
                environment["WORLD_SIZE"] = str(ranks)
                jobs = [
                    _start(lab, host, argv, environment | {"RANK": str(rank)})
                    for rank, host in enumerate(hosts)
                ]
            ended = [(*job.communicate(), job.returncode) for job in jobs]
        # Some libraries print words of their own.
        own = [line for line in ended[0][0].splitlines() if line.startswith("{")]
        lines = [json.loads(line) for line in own]
        problems = [err.strip() or str(code) for _, err, code in ended if code]
        return lines, next(iter(problems), "the job ended early")

    def _options(
        self,
        lab: labs.Lab,
        hosts: list[str],
        local: int,
        environment: dict[str, str],
    ) -> list[str]:
        if self.library == "openmpi":
            exported = [word for name in environment for word in ("-x", name)]
            slots = ",".join(f"{host}:{local}" for host in hosts)
            return ["--host", slots, "--bind-to", "none", *exported]
        names = ",".join(hosts)
        agent = ["-launcher", "ssh", "-launcher-exec", str(lab.ssh)]
        return [*agent, "-ppn", str(local), "-hosts", names]


def _start(
    lab: labs.Lab, host: str, argv: Sequence[str], environment: dict[str, str]
) -> subprocess.Popen[str]:
    """Start a program on a host; it ends in time."""
    limited = ["timeout", "--kill-after=5", str(DEADLINE), *argv]
    command, env = labs.exec_argv(lab, host, limited)
    return subprocess.Popen(
        command,
        env=env | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
