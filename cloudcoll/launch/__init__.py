"""Start a job in the order of a `RankMap`, with the launcher it already uses."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.launch.execute import execute, launcher_version, written_files
from cloudcoll.launch.hydra import Hydra
from cloudcoll.launch.hydra.intel import IntelMpi
from cloudcoll.launch.leaf import choose_inbox
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.openmpi.orte import OpenMpi4
from cloudcoll.launch.plan import (
    Launcher,
    LaunchPlan,
    LaunchRequest,
    Version,
    plan_launch,
)
from cloudcoll.launch.slurm import Srun

__all__ = [
    "LAUNCHERS",
    "LaunchPlan",
    "LaunchRequest",
    "Launcher",
    "choose_inbox",
    "execute",
    "launcher_version",
    "parse_launch",
    "plan_launch",
    "written_files",
]

LAUNCHERS: tuple[Launcher, ...] = (OpenMpi(), OpenMpi4(), Hydra(), IntelMpi(), Srun())
"""Who is asked, in this order, whether a command line is theirs."""


def parse_launch(
    argv: Sequence[str], env: Mapping[str, str], version: Version | None = None
) -> LaunchRequest:
    """Return what a launcher's command line asks for.

    Parameters
    ----------
    argv : sequence of str
        The command line, the launcher's name first.
    env : mapping of str to str
        The environment it will run in.
    version : callable, optional
        Returns what the launcher prints with ``--version``; runs it by default.

    Raises
    ------
    CloudcollError
        An unknown launcher, or a command line that can't be reordered.
    """
    ask = functools.cache(version or functools.partial(launcher_version, argv[0]))
    for launcher in LAUNCHERS:
        if launcher.recognises(argv, ask):
            return launcher.parse(argv, env, ask)
    known = ", ".join(launcher.title for launcher in LAUNCHERS)
    name = repr(os.path.basename(argv[0]))
    if ask.cache_info().misses:
        first = ask().strip().partition("\n")[0]
        name = f"{name}, which says {first or 'nothing'!r} to --version"
    raise LaunchError(f"unknown launcher {name} (known: {known})")
