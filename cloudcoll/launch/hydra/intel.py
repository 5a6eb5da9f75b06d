"""Intel MPI: a Hydra with options and variables of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import Option
from cloudcoll.launch.hydra import Hydra


@dataclass(frozen=True)
class IntelMpi(Hydra):
    """``mpiexec`` and ``mpirun`` of Intel MPI."""

    title = "Intel MPI (mpiexec, mpirun)"
    mechanism = "a machine file (-machinefile), under Slurm with ssh; each rank reports"
    source = "pip install impi-rt"
    package = ""
    says: ClassVar[str] = "Intel(R) MPI Library"
    host_file: ClassVar[str] = "machinefile"
    host_variables: ClassVar[tuple[str, ...]] = (
        "I_MPI_HYDRA_HOST_FILE",
        "HYDRA_HOST_FILE",
    )
    launcher_variables: ClassVar[tuple[str, ...]] = (
        *("I_MPI_HYDRA_BOOTSTRAP", "HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER"),
    )

    def library(self, version: str) -> str:
        """Return that its rules are not known."""
        return ""

    def counted(self, hosts: tuple[Host, ...], name: str) -> tuple[Host, ...]:
        """Return `hosts`; only a machine file's counts are obeyed."""
        if name == "machinefile":
            return super().counted(hosts, name)
        return tuple(Host(h.name, h.address, None, h.user) for h in hosts)

    def per_host(self, options: Sequence[Option], env: Mapping[str, str]) -> int | None:
        """Return the ranks for every host, None where its list says it."""
        if any(option.name == "machinefile" for option in options):
            return None
        variable = env.get("I_MPI_PERHOST", "")
        each = super().per_host(options, env)
        return each or (int(variable) if variable.isdecimal() else None)
