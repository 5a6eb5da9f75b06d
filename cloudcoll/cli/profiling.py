"""``cloudcoll run --profile``: have a job's calls counted, however it is started."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from cloudcoll.cli.output import say
from cloudcoll.errors import CloudcollError
from cloudcoll.launch import LaunchPlan, choose_inbox


def as_typed(argv: tuple[str, ...], profile: Path | None) -> LaunchPlan:
    """Return the plan of a command as typed, its calls counted if that is asked."""
    if profile is None:
        return LaunchPlan(argv)
    from cloudcoll.launch.shim import ROLL_KEY, plan_profile

    try:
        return plan_profile(argv, os.environ, profile, choose_inbox(key=ROLL_KEY))
    except CloudcollError as error:
        say(f"no profile: {error}")
        return LaunchPlan(argv)


def beside(plan: LaunchPlan, typed: LaunchPlan) -> LaunchPlan:
    """Return a plan made of the command line of `typed`, with the rest of that."""
    env = {**typed.env, **plan.env}
    return replace(plan, env=env, roll=plan.roll or typed.roll)


def tell_of_profile(profile: Path | None, before: int) -> None:
    """Say so if no profile came of a job.

    Parameters
    ----------
    profile : Path or None
        Where one was asked for.
    before : int
        `written_at` when the job started.
    """
    if profile and written_at(profile) == before:
        say(
            f"no profile at {profile}: rank 0 writes it on its own host, in "
            "MPI_Finalize, if all ranks have the preloaded library"
        )


def written_at(path: Path | None) -> int:
    """Return when a file was written, in ns; 0 for no file."""
    try:
        return path.stat().st_mtime_ns if path else 0
    except OSError:
        return 0
