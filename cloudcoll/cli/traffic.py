"""The options that say what is sent: one collective, or a whole workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cloudcoll.cli.algorithm import AUTO, choose
from cloudcoll.errors import UsageError
from cloudcoll.files import bounded, read_text
from cloudcoll.limits import TEXT_BYTES

if TYPE_CHECKING:
    from cloudcoll.schedule import Schedule
    from cloudcoll.schedule.workload import Workload

Command = TypeVar("Command", bound=Callable[..., Any])

SINGLE = ("collective", "algorithm", "library", "size", "settings")
"""Options of one collective, which a workload has no use for."""


def workload_options(command: Command) -> Command:
    """Add ``--workload`` and ``--parallel`` to a command."""
    for option in (
        click.option(
            "--parallel",
            metavar="SPLIT",
            help="How a model is split: tp=8,pp=4,dp=16[,order=...]",
        ),
        click.option(
            "--workload",
            metavar="W",
            help="All collectives of a job: a file, a profile, or ddp, fsdp, ....",
        ),
    ):
        command = option(command)
    return command


def is_workload(workload: str | None, parallel: str | None) -> bool:
    """Return whether the options ask for a workload, not for one collective.

    Raises
    ------
    UsageError
        An option beside it that is for one collective.
    """
    if workload is None and parallel is None:
        return False
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in SINGLE and source is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option.opts[0]} is for one collective: a workload has its own"
            )
    return True


def asked_workload(
    workload: str | None, parallel: str | None, ranks: int | None
) -> Workload | None:
    """Return the workload that the options ask for, None for one collective.

    Parameters
    ----------
    workload : str or None
        The name of a ready-made one with its numbers, or a file.
    parallel : str or None
        How the ranks are split; alone, the job is one of Megatron's.
    ranks : int or None
        World size, if known.

    Raises
    ------
    UsageError
        Neither a file nor a known name, something wrong in it, or an option
        beside it that is for one collective.
    """
    if not is_workload(workload, parallel):
        return None
    return named_workload(workload, parallel, ranks)


def named_workload(
    workload: str | None, parallel: str | None, ranks: int | None
) -> Workload:
    """Return the workload of a name, a file or a split: see `asked_workload`."""
    from cloudcoll.profile import is_profile
    from cloudcoll.schedule.readymade import READY_MADE, ready_made
    from cloudcoll.schedule.workload_file import read_workload

    asked = "megatron" if workload is None else workload
    if asked.partition(":")[0] in READY_MADE:
        return ready_made(asked, ranks, parallel)
    known = f"ready-made without a file: {', '.join(READY_MADE)}"
    text = read_text(asked, f"the workload {asked!r}", known)
    if is_profile(text):
        return _profiled(text, asked, ranks, parallel)
    return read_workload(text, asked, ranks, parallel)


def _profiled(
    text: str, source: str, ranks: int | None, parallel: str | None
) -> Workload:
    """Return what a profiled job sent."""
    from cloudcoll.profile import read_profile

    profile = read_profile(text, source)
    if ranks not in (None, profile.ranks):
        raise UsageError(f"{source} is of {profile.ranks} ranks, the job has {ranks}")
    if parallel is not None:
        raise UsageError(f"{source} has the groups of a job: leave out --parallel")
    return profile.workload(source)


def workload_words(workload: str | None) -> tuple[str | None, str]:
    """Return what identifies a workload: its name, and the text if it is a file."""
    try:
        return workload, bounded(workload or "", TEXT_BYTES).decode()
    except (OSError, ValueError):
        # Ready-made, or not readable: who needs it says so.
        return workload, ""


def asked_schedule(
    collective: str,
    algorithm: str,
    library: str,
    slots: Sequence[int],
    size: int,
    **parameters: int,
) -> tuple[Schedule, str]:
    """Return the schedule of one collective, and what to say of it.

    That is which algorithm a library takes by itself; nothing where one is named.

    Parameters
    ----------
    collective, algorithm, library, slots, size
        As of `choose`.
    **parameters : int
        As of `build_schedule`; they overrule the library's own.

    Raises
    ------
    UsageError
        Unknown names, or nothing to send.
    """
    from cloudcoll.schedule import build_schedule

    size = _payload(collective, size)
    chosen = choose(collective, algorithm, library, slots, size)
    both = {**chosen.parameters, **parameters}
    built = build_schedule(
        collective,
        chosen.algorithm,
        sum(slots),
        size,
        chosen.library,
        **both,
    )
    return built, f"{collective} by {chosen}" if algorithm == AUTO else ""


def _payload(collective: str, size: int) -> int:
    """Return the bytes of a collective; a barrier has none.

    Raises
    ------
    UsageError
        No bytes of anything else.
    """
    if collective == "barrier":
        return 0
    if size < 1:
        raise UsageError("a collective of 0 bytes sends nothing: --bytes 1 or more")
    return size
