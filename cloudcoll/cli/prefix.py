"""A command that starts a program, and ends as that does."""

from __future__ import annotations

from typing import Any

import click

from cloudcoll.errors import CloudcollError, LaunchError


class _Refusal(click.UsageError):
    exit_code = LaunchError.exit_code


class Prefix(click.Command):
    """Whatever goes wrong before the program starts ends in 125.

    As with GNU's ``env`` and ``timeout``: any other exit code is the program's. What
    follows the program's name is its own, too.
    """

    allow_interspersed_args = False

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the command line, as every command does."""
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            raise _Refusal(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the command is there for."""
        try:
            return super().invoke(ctx)
        except LaunchError:
            raise
        except CloudcollError as error:
            raise LaunchError(str(error)) from error
