"""Our own parser, for the command lines that documents and files show."""

from __future__ import annotations

import re

import click

from cloudcoll.cli.commands import cloudcoll


def joined(code: str) -> str:
    """Return a text with continued lines joined."""
    return re.sub(r"\\\n\s*", "", code)


def parse(words: list[str]) -> click.Context:
    """Return what the parser makes of a command line; nothing runs.

    Raises
    ------
    click.UsageError, UsageError
    """
    context = click.Context(cloudcoll, **cloudcoll.context_settings)
    name, command, words = cloudcoll.resolve_command(context, words)
    assert command is not None
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        name, command, words = words[0], command.commands[words[0]], words[1:]
    return command.make_context(name, words, parent=context)
