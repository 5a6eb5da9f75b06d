"""All commands by name, and what their errors end in.

A command's module is imported when it is called, so that ``--help`` and
start-up stay fast.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from cloudcoll import __version__
from cloudcoll.cli import Interrupted
from cloudcoll.cli.output import (
    discard_stdout,
    open_standard_files,
    print_usage_error,
    say,
)
from cloudcoll.errors import CloudcollError, UsageError, known_names

COMMANDS = {
    "agent": "measure from this host for drivers elsewhere, by mutual TLS",
    "bench": "measure a collective in several orders of hosts, in turns",
    "completion": "let a shell complete commands, options and files",
    "daemon": "keep the snapshot and the order of a set of hosts fresh",
    "doctor": "print which launchers and libraries are here, and what is missing",
    "exec": "start a program with the ranks that a map gives this host",
    "export": "write a rank map in a launcher's own format",
    "import": "make a snapshot of what others measured or know",
    "lab": "run an emulated data centre on this machine",
    "merge": "make one snapshot of several of the same hosts",
    "probe": "measure the network between hosts",
    "report": "write what a bench found as one page of HTML, Markdown or text",
    "run": "start a job in the order that its network favours",
    "schedule": "print who sends how much to whom in a collective",
    "show": "print what a snapshot, a map or a profile says",
    "solve": "find the order of hosts in which a collective runs fastest",
    "tune": "choose algorithms together with the order",
}
"""Name -> one line for ``cloudcoll --help``, kept here so that listing the
commands imports none of them."""

SECTIONS = {
    "Measure, run, see the gain": ("probe", "run", "bench"),
    "Look at what was found": ("show", "report", "schedule"),
    "Choose an order ahead of a run": ("solve", "tune", "export", "exec"),
    "Begin with what others measured": ("import", "merge"),
    "Keep a cluster measured": ("daemon", "agent"),
    "Try it, set it up": ("lab", "doctor", "completion"),
}
"""What a person is about to do -> the commands for it, as ``--help`` lists them."""

COMPLETE = "_CLOUDCOLL_COMPLETE"
"""The variable by which a shell asks for completions, as click names it."""

HOMES = {
    "exec": ("maps", "exec_"),
    "export": ("maps", "export"),
    "import": ("snapshots", "import_"),
    "merge": ("snapshots", "merge"),
}
"""Module, and name in it, of those commands that are no `command` in their own."""

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing can end in."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise UsageError(f"no command {args[0]!r} {known_names(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        home, name = HOMES.get(cmd_name, (cmd_name, "command"))
        module = importlib.import_module(f"cloudcoll.cli.{home}")
        command: click.Command = getattr(module, name)
        for one in (command, *getattr(command, "commands", {}).values()):
            _keep_lines(one)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        spacing = max(map(len, COMMANDS)) + 2
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                rows = [(f"{name:<{spacing - 2}}", COMMANDS[name]) for name in names]
                formatter.write_dl(rows)


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Each command has its own --help, with examples.",
)
@click.version_option(__version__, prog_name="cloudcoll")
def cloudcoll() -> None:
    r"""Measure a cloud network, reorder ranks to follow it, prove the gain.

    \b
    cloudcoll probe --hostfile hosts              measure the network between VMs
    cloudcoll run mpirun --hostfile hosts ./app   run in the best order
    cloudcoll bench mpirun --hostfile hosts       see what it gains you
    """


def _keep_lines(command: click.Command) -> None:
    """Give click its mark for lines to keep, which raw docstrings spell out."""
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")


_keep_lines(cloudcoll)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(number)


def run(argv: Sequence[str] | None) -> int:
    """Run the command line and return its exit code.

    The one place that turns an error into a line on stderr.

    Parameters
    ----------
    argv : sequence of str, optional
        If not given, this process's, which then also stops on SIGTERM and SIGHUP.

    Raises
    ------
    KeyboardInterrupt
        Someone asked us to stop; `Interrupted` where it was not by Ctrl-C.
    """
    if argv is None:
        open_standard_files()
        if asked := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete

            return shell_complete(cloudcoll, {}, "cloudcoll", COMPLETE, asked)
        for number in (signal.SIGTERM, signal.SIGHUP):
            # nohup's protection stays.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        # Not click's own main(): it hides a broken pipe and which signal came.
        with cloudcoll.make_context("cloudcoll", arguments) as context:
            code = cloudcoll.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        print_usage_error(error)
        return error.exit_code
    except CloudcollError as error:
        return _say(str(error), error.exit_code)
    except MemoryError:
        return _say("this takes more memory than there is: take a part of it", 3)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error of ours.
        discard_stdout()
        return 141
    except OSError as error:
        # What fails at a file of ours has its words already: this is stdout.
        if error.errno not in DISK_ERRORS:
            raise
        discard_stdout()
        return _say(f"cannot write the result: {error.strerror}", 3)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    say(message)
    return code
