"""Results to stdout, words to stderr: shared by the commands."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cloudcoll.snapshot import NetworkSnapshot


def open_standard_files() -> None:
    """Open what is closed of stdin, stdout and stderr as the null device.

    Else the next file opened would stand in its place, in the job as well.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for at, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(at, "r" if at == 0 else "w"))  # noqa: SIM115


def discard_stdout() -> None:
    """Drop what is still to be written to stdout, which can't be."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_lines(lines: Iterable[str]) -> None:
    """Print result lines to stdout."""
    click.echo("\n".join(lines))


def print_json(value: Any) -> None:
    """Print a result as JSON to stdout; strict JSON, so no NaN."""
    import json

    click.echo(json.dumps(value, indent=1, allow_nan=False))


def print_snapshot(snapshot: NetworkSnapshot, *, as_json: bool) -> None:
    """Print what a snapshot says to stdout."""
    from cloudcoll.report.jsonform import snapshot_json
    from cloudcoll.report.text import snapshot_lines

    if as_json:
        print_json(snapshot_json(snapshot))
    else:
        print_lines(snapshot_lines(snapshot, line_width()))


def line_width() -> int:
    """Return the columns of the terminal, or as COLUMNS says; 80 for neither."""
    import shutil

    return shutil.get_terminal_size().columns


def say(message: str) -> None:
    """Print one line about what happens to stderr."""
    # If it can't be written (a full disk), there is nobody to tell, and words are
    # no reason to keep a job from running.
    with contextlib.suppress(OSError):
        click.echo(f"cloudcoll: {message}", err=True)


def progress_wanted() -> bool:
    """Return whether someone watches stderr."""
    return sys.stderr.isatty()
