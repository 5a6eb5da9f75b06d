"""Where a launcher's hosts come from: files, and variables of resource managers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument, read_hosts
from cloudcoll.launch.plan import Version

Reader = Callable[[str, str], tuple[Host, ...]]
"""Path, and a format of `cloudcoll.hosts` -> hosts."""


def read_hostfile(path: str, format: str) -> tuple[Host, ...]:
    """Return the hosts of a file, in the order of its lines.

    Not of a pipe, which is a LaunchError: reading would take it from the launcher.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise LaunchError(f"{path} is not a regular file: give the hosts in one")
    return read_hosts(path, format=format)


@dataclass(frozen=True)
class ListLauncher:
    """A launcher that is given a list of hosts, known by the names of its programs."""

    read_hostfile: Reader = read_hostfile

    programs: ClassVar[frozenset[str]]
    package: ClassVar[str] = ""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether the program has one of its names."""
        return os.path.basename(argv[0]) in self.programs


MANAGERS = {
    "SLURM_JOB_ID": "Slurm",
    "SLURM_JOBID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "PE_HOSTFILE": "Grid Engine",
    "FLUX_JOB_ID": "Flux",
}
"""Variable -> the resource manager that sets it."""

GROUP = re.compile(r"(\d+)(?:\(x(\d+)\))?")


def manager(env: Mapping[str, str]) -> str:
    """Return the resource manager whose allocation this is, empty if none."""
    return next((name for key, name in MANAGERS.items() if key in env), "")


def refuse_others(env: Mapping[str, str], *known: str) -> str:
    """Return the resource manager, which is one of `known`; empty if there is none."""
    found = manager(env)
    if found and found not in known:
        variable = next(key for key in MANAGERS if key in env)
        raise LaunchError(f"inside a {found} allocation ({variable} is set)")
    return found


def slurm_hosts(env: Mapping[str, str], slots: str) -> tuple[Host, ...]:
    """Return the nodes of a Slurm job, in Slurm's own order.

    The variable `slots`, such as ``SLURM_TASKS_PER_NODE``, counts what fits on each:
    ``2(x3),1``. LaunchError where one is missing or does not parse.
    """
    nodes = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")
    if not nodes:
        raise LaunchError("SLURM_JOB_NODELIST is not set: start this inside the job")
    names = [host.name for host in parse_host_argument(nodes)]
    counts = per_node(env.get(slots, ""))
    if len(counts) != len(names):
        raise LaunchError(
            f"{slots}={env.get(slots, '')!r} does not fit the {len(names)} nodes of "
            f"{nodes}"
        )
    pairs = zip(names, counts, strict=True)
    return tuple(Host(name, slots=count) for name, count in pairs)


def per_node(text: str) -> list[int]:
    """Return the numbers of ``2(x3),1``; none if it does not parse."""
    groups = [GROUP.fullmatch(part) for part in text.split(",")]
    return [
        int(group[1]) for group in groups if group for _ in range(int(group[2] or 1))
    ]
