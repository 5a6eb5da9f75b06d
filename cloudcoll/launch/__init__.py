"""Start a job in the order of a `RankMap`, with the launcher it already uses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.launch.execute import execute, launcher_version, written_files
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.plan import Launcher, LaunchPlan, LaunchRequest, plan_launch

__all__ = [
    "LAUNCHERS",
    "LaunchPlan",
    "LaunchRequest",
    "Launcher",
    "execute",
    "launcher_version",
    "parse_launch",
    "plan_launch",
    "written_files",
]

LAUNCHERS: dict[str, Launcher] = {"mpirun": OpenMpi(), "mpiexec": OpenMpi()}
"""Name of the program -> how its command line is read and rewritten."""


def parse_launch(
    argv: Sequence[str], env: Mapping[str, str], version_text: str
) -> LaunchRequest:
    """Return what a launcher's command line asks for.

    Parameters
    ----------
    argv : sequence of str
        The command line, the launcher's name first.
    env : mapping of str to str
        The environment it will run in.
    version_text : str
        What the launcher prints with ``--version``.

    Raises
    ------
    CloudcollError
        An unknown launcher, or a command line that can't be reordered.
    """
    name = os.path.basename(argv[0])
    if name not in LAUNCHERS:
        raise LaunchError(f"unknown launcher {name!r} (known: {', '.join(LAUNCHERS)})")
    return LAUNCHERS[name].parse(argv, env, version_text)
