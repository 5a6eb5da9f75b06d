"""Put a map's algorithms in force in all ranks of a launch, or say why not.

Libraries that read a file (Open MPI, MPICH) have it in memory: the shim writes it in
each rank before MPI_Init, if all ranks have it (shim/tune.c). So no host needs a
folder of others, and no two ranks differ. NCCL asks a plugin, which has its table from
a variable and calls the same roll (shim/nccl/tuner). The others are told by variables
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest
from cloudcoll.launch.roll import variable
from cloudcoll.launch.shim import (
    AS_GIVEN,
    LIBRARY,
    ORDER,
    ROLL,
    ROLL_KEY,
    TUNER,
    check_launcher,
    check_library,
    setting,
)
from cloudcoll.launch.wrapper import Inbox, choose_inbox, own_shell
from cloudcoll.libraries import local_ranks
from cloudcoll.libraries.tell import LONGEST_PATH, PLUGIN, TABLE, tell
from cloudcoll.libraries.tell_open_mpi import numbers
from cloudcoll.libraries.telling import Told, library_version
from cloudcoll.tuning import Tuning

TUNE, TUNED = "CLOUDCOLL_TUNE", "CLOUDCOLL_TUNED"
"""The variables with what the library is told, and with what is to run then."""

BY_LAUNCHER = ("openmpi", "mpich")
"""Libraries whose version and settings the launcher tells."""

OF_LAUNCHER = ("intelmpi",)
"""Others that no other launcher than their own starts."""


@dataclass(frozen=True)
class Tuned:
    """A launch with the algorithms of a tuning.

    Attributes
    ----------
    request : LaunchRequest
        With what tells them in front of its programs; as it was where nothing does.
    notes : tuple of str
        What is not in force and why, a line each.
    collectives : tuple of str
        Those whose algorithms are in force.
    roll : Inbox or None
        Where ranks call before any of them changes; None if none does.
    reads_back : bool
        Whether they say there what runs.
    """

    request: LaunchRequest
    notes: tuple[str, ...] = ()
    collectives: tuple[str, ...] = ()
    roll: Inbox | None = None
    reads_back: bool = True

    def added_to(self, plan: LaunchPlan) -> LaunchPlan:
        """Return the plan of the request with the rest of what the algorithms need."""
        if not self.roll:
            return plan
        return replace(plan, roll=plan.roll or self.roll, tuned=self.reads_back)


def tuned_launch(
    request: LaunchRequest, tuning: Tuning, env: Mapping[str, str]
) -> Tuned:
    """Return the launch with the algorithms of a tuning, if they can be in force."""
    try:
        told = _told(request, tuning, env)
        if not told.anything:
            return Tuned(request, told.notes)
        asks = TABLE in told.variables
        if not (told.file or asks):
            words = setting(told.variables, own_shell(env))
            return Tuned(request.behind(words), told.notes, told.collectives)
        check_launcher(request)
        check_library(TUNER if asks else LIBRARY)
        if len(bytes(TUNER)) > LONGEST_PATH and asks:
            raise LaunchError(f"NCCL reads {LONGEST_PATH} bytes of a path: {TUNER}")
    except CloudcollError as error:
        return Tuned(request, (str(error),))
    inbox = choose_inbox(request, ROLL_KEY)
    if asks:
        variables = {**told.variables, PLUGIN: str(TUNER), ROLL: variable(inbox)}
    else:
        variables = {
            ORDER: AS_GIVEN,
            ROLL: variable(inbox),
            TUNE: _told_text(told),
            TUNED: _functions_text(told, tuning),
        }
    words = setting(variables, inbox.shell, "" if asks else LIBRARY)
    behind = request.handing_on(inbox).behind(words)
    return Tuned(behind, told.notes, told.collectives, inbox, reads_back=not asks)


def own_variables(tuning: Tuning, env: Mapping[str, str]) -> Told:
    """Return what a program that is started on this host alone is told."""
    told = tell(tuning, settings=env)
    if told.file:
        note = "algorithms are told to MPI only where its launcher starts all ranks"
        return Told(notes=(note,))
    return told


def _told(request: LaunchRequest, tuning: Tuning, env: Mapping[str, str]) -> Told:
    """Return what the library is told, nothing if this is another job."""
    ranks, local = sum(request.counts), local_ranks(request.slots)
    if tuning.ranks != ranks:
        return Told(notes=(f"the tuning is for {tuning.ranks} ranks, not {ranks}",))
    if tuning.local != local:
        found = local or "different numbers of"
        wanted = tuning.local or "different numbers of"
        note = f"the tuning is for {wanted} ranks on each host, not {found}"
        return Told(notes=(note,))
    key, _ = library_version(tuning.library)
    if key in BY_LAUNCHER:
        return tell(tuning, request.library, request.settings)
    library = request.library if key in OF_LAUNCHER else ""
    settings = {**env, **request.settings}
    return tell(tuning, library, settings, nodes=len(request.used))


def _told_text(told: Told) -> str:
    """Return `told` as shim/tune.c reads it."""
    settings = " ".join(f"{name}={value}" for name, value in told.variables.items())
    text = numbers(told.file) if told.functions else told.file.rstrip()
    # The file is read as a string up to its end, which must not be a page's.
    padding = "" if len(text) % 4096 else " "
    return f"{settings};{told.file_variable};{text}{padding}"


def _functions_text(told: Told, tuning: Tuning) -> str:
    ranges = (f"{call} {least} {name or '-'}" for call, least, name in told.functions)
    return ",".join([str(tuning.ranks), *ranges])
