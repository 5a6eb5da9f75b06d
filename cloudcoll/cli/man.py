"""Pages for ``man``, made of what ``--help`` says: ``setup.py`` puts them in a wheel.

Made while building, so that no copy of the help is kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from cloudcoll import __version__
from cloudcoll.cli.commands import COMMANDS, SECTIONS, cloudcoll

KEPT = "\b"
"""Click's mark of a paragraph whose lines are kept."""


def man_pages() -> dict[str, str]:
    """Return the pages by file name, such as ``cloudcoll-probe.1``."""
    settings = cloudcoll.context_settings
    return dict(_pages(click.Context(cloudcoll, info_name="cloudcoll", **settings), ""))


def _pages(context: click.Context, brief: str) -> Iterator[tuple[str, str]]:
    """Yield the page of a command, and those of the commands below it."""
    command = context.command
    below: dict[str, click.Context] = {}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if found := command.get_command(context, name):
                below[name] = click.Context(found, info_name=name, parent=context)
    briefs = {name: _brief(one) for name, one in below.items()}
    page = context.command_path.replace(" ", "-")
    lines = [
        f'.TH {page.upper()} 1 "" "cloudcoll {__version__}" "CloudColl"',
        ".SH NAME",
        rf"{_roff(page)} \- {_roff(brief or _brief(context))}",
        ".SH SYNOPSIS",
        f".B {_roff(context.command_path)}",
        _roff(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_description(command.help or ""),
        ".SH OPTIONS",
        *_options(context),
    ]
    sections = SECTIONS if command is cloudcoll else {"": tuple(briefs)}
    for number, (heading, names) in enumerate(sections.items() if briefs else ()):
        lines += [".SH COMMANDS"] * (not number) + [f".SS {heading}"] * bool(heading)
        for name in names:
            entry = rf"\fB{_roff(f'{page}-{name}')}\fR(1)"
            lines += [".TP", entry, _roff(briefs[name])]
    if context.parent:
        above = _roff(context.parent.command_path.replace(" ", "-"))
        lines += [".SH SEE ALSO", rf"\fB{above}\fR(1)"]
    yield f"{page}.1", "\n".join(lines) + "\n"
    for name, one in below.items():
        yield from _pages(one, briefs[name])


def _brief(context: click.Context) -> str:
    """Return the line by which a command is listed."""
    name = context.info_name or ""
    if context.parent and not context.parent.parent:
        return COMMANDS[name]
    words = context.command.get_short_help_str(limit=200)
    return words[:1].lower() + words[1:].rstrip(".")


def _description(text: str) -> Iterator[str]:
    """Yield paragraphs, with the lines of examples kept."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        yield ".PP"
        lines = paragraph.splitlines()
        if lines[:1] == [KEPT]:
            yield from (".RS 4", ".nf", *map(_roff, lines[1:]), ".fi", ".RE")
        else:
            yield from map(_roff, lines)


def _options(context: click.Context) -> Iterator[str]:
    """Yield what each option is called, and what it does."""
    for option in context.command.get_params(context):
        # Newer versions of click know of arguments as well, which have no words.
        named = isinstance(option, click.Option)
        if named and (record := option.get_help_record(context)):
            names, words = record
            yield from (".TP", rf"\fB{_roff(names)}\fR", _roff(words))


def _roff(text: str) -> str:
    """Return a text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text
