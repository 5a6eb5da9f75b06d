"""``cloudcoll completion``, and pages for ``man``: what is made of all commands' help.

Click answers a shell that completes, which runs ``cloudcoll`` with a variable set; here
is only how the shell is told to ask. ``setup.py`` puts the pages in a wheel: they are
made while building, so that no copy of the help is kept.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from cloudcoll import __version__
from cloudcoll.cli.commands import COMMANDS, COMPLETE, SECTIONS, cloudcoll
from cloudcoll.cli.output import print_text, say
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import write_atomic

SHELLS = ("bash", "fish", "zsh")

KEPT = "\b"
"""Click's mark of a paragraph whose lines are kept."""


@click.command("completion", short_help="let a shell complete commands and options")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Put it where new shells find it.")
def command(shell: str | None, install: bool) -> None:
    r"""Let a shell complete commands, options and files.

    SHELL is bash, fish or zsh; that of $SHELL if not given. Without --install its
    script is printed. With it, bash and fish find the script in a file of its own
    (bash by the package bash-completion), and zsh by a line at the end of .zshrc.

    \b
    cloudcoll completion --install
    eval "$(cloudcoll completion bash)"
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise UsageError(f"no shell {shell!r}: name one of {', '.join(SHELLS)}")
    if not install:
        print_text(_script(shell))
        return
    path = _place(shell)
    if shell == "zsh":
        _append(path, 'eval "$(cloudcoll completion zsh)"')
    else:
        write_atomic(path, _script(shell))
    say(f"{path}: in force in the next {shell} that is started")


def _script(shell: str) -> str:
    """Return click's own script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of SHELLS"
    return kind(cloudcoll, {}, "cloudcoll", COMPLETE).source()


def _append(path: Path, line: str) -> None:
    """Add a line to a file of the user's, once."""
    try:
        with path.open("a+") as file:
            file.seek(0)
            text = file.read()
            if line not in text.splitlines():
                file.write("\n" * (text[-1:] not in ("", "\n")) + line + "\n")
    except (OSError, ValueError) as error:
        raise UnusableError(f"cannot add to {path}: {error}") from error


def _place(shell: str) -> Path:
    """Return the file in which a shell looks for what it is to complete."""

    def under(variable: str, default: str) -> Path:
        return Path(os.environ.get(variable) or Path.home() / default)

    if shell == "bash":
        data = under("XDG_DATA_HOME", ".local/share")
        return data / "bash-completion" / "completions" / "cloudcoll"
    if shell == "fish":
        config = under("XDG_CONFIG_HOME", ".config")
        return config / "fish" / "completions" / "cloudcoll.fish"
    return under("ZDOTDIR", "") / ".zshrc"


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
