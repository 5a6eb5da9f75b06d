"""Start a job in the order of a `RankMap`, with the launcher it already uses."""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cloudcoll.errors import LaunchError, nearest
from cloudcoll.launch.execute import (
    NoLauncher,
    NotStarted,
    execute,
    launcher_version,
    written_files,
)
from cloudcoll.launch.plan import (
    LaunchPlan,
    LaunchRequest,
    Version,
    plan_launch,
)
from cloudcoll.launch.wrapper import choose_inbox

if TYPE_CHECKING:
    from cloudcoll.launch.plan import HostLauncher

__all__ = [
    "ALL_LAUNCHERS",
    "HOST_LAUNCHERS",
    "INTERPRETERS",
    "LAUNCHERS",
    "LaunchPlan",
    "LaunchRequest",
    "LauncherEntry",
    "NoLauncher",
    "NotStarted",
    "choose_inbox",
    "execute",
    "host_launcher",
    "launcher_version",
    "parse_launch",
    "plan_launch",
    "written_files",
]


class LauncherEntry(NamedTuple):
    """Where a launcher is, without importing it: a job pays for its own alone.

    Attributes
    ----------
    module : str
        In this package.
    name : str
        Of the class.
    programs : str
        First letters of the programs that can be it; it decides itself.
    """

    module: str
    name: str
    programs: str

    def load(self) -> Any:
        """Return the launcher."""
        return getattr(
            importlib.import_module(f"{__name__}.{self.module}"), self.name
        )()

    def may_be(self, program: str) -> bool:
        """Return whether it has such a name: mpirun.openmpi is an mpirun."""
        return _first_letters(program) in self.programs.split()


_MPI = "mpirun mpiexec"

LAUNCHERS = (
    LauncherEntry("openmpi", "OpenMpi", _MPI),
    LauncherEntry("openmpi", "OpenMpi4", _MPI),
    LauncherEntry("hydra", "Hydra", _MPI),
    LauncherEntry("hydra", "IntelMpi", _MPI),
    LauncherEntry("hydra", "MpirunRsh", "mpirun_rsh"),
    LauncherEntry("slurm", "Srun", "srun"),
    LauncherEntry("flux", "FluxRun", "flux"),
    LauncherEntry("cray", "Pals", _MPI),
    LauncherEntry("deepspeed", "DeepSpeed", "deepspeed"),
    LauncherEntry("horovod", "Horovod", "horovodrun"),
)
"""Who is asked, in this order, whether a command line is theirs."""

INTERPRETERS = ("python", "pypy")
"""Programs that start nothing elsewhere, unless what they run is a launcher."""

HOST_LAUNCHERS = (
    LauncherEntry("torchrun", "Torchrun", "torchrun python pypy"),
    LauncherEntry("accelerate", "Accelerate", "accelerate python pypy"),
    LauncherEntry("lightgbm", "LightGbm", "lightgbm"),
)
"""The same for launchers that are started on every host."""

ALL_LAUNCHERS = (*LAUNCHERS, *HOST_LAUNCHERS)


def host_launcher(argv: Sequence[str]) -> HostLauncher | None:
    """Return who starts ranks on this host alone by this command line, if so."""
    return next(
        (o for o in _possible(HOST_LAUNCHERS, argv) if o.recognises(argv)), None
    )


def _possible(entries: Sequence[LauncherEntry], argv: Sequence[str]) -> Iterator[Any]:
    """Yield those that the program's name allows, each loaded when it is reached."""
    for entry in entries:
        if entry.may_be(argv[0]):
            yield entry.load()


def _first_letters(program: str) -> str:
    """Return what a program is: python3.11 is a python, mpirun.openmpi an mpirun."""
    letters = re.match("[a-z_]*", os.path.basename(program))
    assert letters is not None, "an empty match is one"
    return letters[0]


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
    if _first_letters(argv[0]) in INTERPRETERS:
        raise LaunchError(
            f"{os.path.basename(argv[0])!r} starts one process, on this host, so "
            "there is no order to choose: put 'cloudcoll run' before what starts all "
            "of them (mpirun, srun, torchrun, ...); where they are started one by "
            "one, 'cloudcoll exec --map MAP' sets RANK and the like, and 'cloudcoll "
            "export MAP --format lightgbm' writes LightGBM's list of machines"
        )
    ask = functools.cache(version or functools.partial(launcher_version, argv[0]))
    for launcher in _possible(LAUNCHERS, argv):
        if launcher.recognises(argv, ask):
            request: LaunchRequest = launcher.parse(argv, env, ask)
            return request
    known = ", ".join(entry.load().title for entry in ALL_LAUNCHERS)
    program = os.path.basename(argv[0])
    name, near = repr(program), nearest(program, _programs())
    if ask.cache_info().misses:
        near = ""
        first = ask().strip().partition("\n")[0]
        name = f"{name}, which says {first or 'nothing'!r} to --version"
    raise LaunchError(f"unknown launcher {name} ({near}known: {known})")


def _programs() -> set[str]:
    named = {name for entry in ALL_LAUNCHERS for name in entry.programs.split()}
    return named.difference(INTERPRETERS)
