"""Results to stdout, words to stderr: shared by the commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import click


def print_lines(lines: Iterable[str]) -> None:
    """Print result lines to stdout."""
    click.echo("\n".join(lines))


def print_json(value: Any) -> None:
    """Print a result as JSON to stdout; strict JSON, so no NaN."""
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def say(message: str) -> None:
    """Print one line about what happens to stderr."""
    click.echo(f"cloudcoll: {message}", err=True)


def progress_wanted() -> bool:
    """Return whether someone watches stderr."""
    return sys.stderr.isatty()
