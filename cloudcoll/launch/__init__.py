"""Start a job in the order of a `RankMap`, with the launcher it already uses."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.launch.accelerate import Accelerate
from cloudcoll.launch.cray import Pals
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.execute import execute, launcher_version, written_files
from cloudcoll.launch.flux import FluxRun
from cloudcoll.launch.horovod import Horovod
from cloudcoll.launch.hydra import Hydra
from cloudcoll.launch.hydra.intel import IntelMpi
from cloudcoll.launch.leaf import choose_inbox
from cloudcoll.launch.lightgbm import LightGbm
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.openmpi.orte import OpenMpi4
from cloudcoll.launch.own_host import own_host
from cloudcoll.launch.plan import (
    HostLauncher,
    Launcher,
    LaunchPlan,
    LaunchRequest,
    Version,
    plan_launch,
)
from cloudcoll.launch.slurm import Srun
from cloudcoll.launch.torchrun import Torchrun

__all__ = [
    "HOST_LAUNCHERS",
    "LAUNCHERS",
    "HostLauncher",
    "LaunchPlan",
    "LaunchRequest",
    "Launcher",
    "choose_inbox",
    "execute",
    "host_launcher",
    "launcher_version",
    "own_host",
    "parse_launch",
    "plan_launch",
    "written_files",
]

LAUNCHERS: tuple[Launcher, ...] = (
    OpenMpi(),
    OpenMpi4(),
    Hydra(),
    IntelMpi(),
    Srun(),
    FluxRun(),
    Pals(),
    DeepSpeed(),
    Horovod(),
)
"""Who is asked, in this order, whether a command line is theirs."""

HOST_LAUNCHERS: tuple[HostLauncher, ...] = (Torchrun(), Accelerate(), LightGbm())
"""The same for launchers that are started on every host."""


def host_launcher(argv: Sequence[str]) -> HostLauncher | None:
    """Return who starts ranks on this host alone by this command line, if so."""
    return next((one for one in HOST_LAUNCHERS if one.recognises(argv)), None)


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
    known = ", ".join(_titles())
    name = repr(os.path.basename(argv[0]))
    if ask.cache_info().misses:
        first = ask().strip().partition("\n")[0]
        name = f"{name}, which says {first or 'nothing'!r} to --version"
    raise LaunchError(f"unknown launcher {name} (known: {known})")


def _titles() -> list[str]:
    per_host = [launcher.title for launcher in HOST_LAUNCHERS]
    return [launcher.title for launcher in LAUNCHERS] + per_host
