"""What commands share: types of values, options, and what starts a program."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from cloudcoll.errors import CloudcollError, LaunchError, UsageError
from cloudcoll.units import parse_size
from cloudcoll.work.sent import AUTO

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FILE = click.Path(path_type=Path)
"""Type of options that are files or folders."""


def _size(text: int | str) -> int:
    if isinstance(text, int):
        return text
    try:
        return parse_size(text)
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


def _duration(text: float | str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(text))
    if not match:
        raise click.BadParameter(f"{text!r} is not a time such as 90s, 30m, 1h, 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _share(text: float | str) -> float:
    found = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) *%?", str(text))
    if not found or float(found[1]) >= 100:
        raise click.BadParameter(f"{text!r} is not per cent such as 3%, below 100")
    return float(found[1]) / 100


class _Words(click.types.FuncParamType):  # type: ignore[type-arg]
    """What a function makes of words, by the name that ``--help`` shows."""

    def __init__(self, parse: Callable[[Any], object]) -> None:
        super().__init__(parse)
        self.name = parse.__name__.removeprefix("_")


SIZE = _Words(_size)
"""Type of options that are bytes, with K, M, G, T as powers of 1024."""

size_option = click.option(
    "--bytes",
    "size",
    type=SIZE,
    default="16MiB",
    show_default=True,
    help="Size of one call.",
)

DURATION = _Words(_duration)
"""Type of options that are times: seconds, or what ends in s, m, h or d."""

SHARE = _Words(_share)
"""Type of options that are per cent, as a share of one."""


class Finite(click.FloatRange):
    """A number in a range: not NaN, which is in none and yet in all of click's."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number to count with", param, ctx)
        return number


def _collectives(_: click.Context) -> Iterable[str]:
    from cloudcoll.collectives import SCHEDULES

    return SCHEDULES


def _algorithms(context: click.Context) -> Iterable[str]:
    from cloudcoll.collectives import SCHEDULES

    named = context.params.get("collective") or "allreduce"
    return [AUTO, *SCHEDULES.get(named, ())]


def _libraries(_: click.Context) -> Iterable[str]:
    from cloudcoll.libraries import LIBRARIES

    return LIBRARIES


def _workloads(_: click.Context) -> Iterable[str]:
    from cloudcoll.collectives.readymade import READY_MADE

    return READY_MADE


def _presets(_: click.Context) -> Iterable[str]:
    from cloudcoll.lab import PRESETS

    return PRESETS


def _labs(_: click.Context) -> Iterable[str]:
    from cloudcoll.lab.state import kept

    return kept()


def _solvers(_: click.Context) -> Iterable[str]:
    from cloudcoll.solve import SOLVERS

    return SOLVERS


def completed(
    known: Callable[[click.Context], Iterable[str]], files: bool = False
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what completes names for a shell, which are looked up only then.

    `known` returns them; gets what was typed before. With `files` it may be a file,
    too.
    """

    def complete(
        context: click.Context, _: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        fit = [
            CompletionItem(name) for name in known(context) if name.startswith(begun)
        ]
        return fit or [CompletionItem(begun, type="file")] if files else fit

    return complete


COLLECTIVES = completed(_collectives)
LIBRARIES = completed(_libraries)
PRESETS = completed(_presets)
LABS = completed(_labs)
SOLVERS = completed(_solvers)

LIBRARY_HELP = "openmpi, mpich, nccl, gloo, ..., with @VERSION if you know it."

collective_option = click.option(
    "--collective",
    shell_complete=COLLECTIVES,
    default="allreduce",
    show_default=True,
)
algorithm_option = click.option(
    "--algorithm",
    shell_complete=completed(_algorithms),
    default=AUTO,
    show_default=True,
    help="By name, or auto: what the library chooses itself.",
)

Command = TypeVar("Command", bound=Callable[..., Any])

SINGLE = ("collective", "algorithm", "library", "size", "settings")
"""Options of one collective, which a workload has no use for."""


def workload_options(
    command: Callable[..., Any], alone: tuple[str, ...] = SINGLE
) -> Callable[..., Any]:
    """Add ``--workload`` and ``--parallel`` to a command, refused beside `alone`."""

    @functools.wraps(command)
    def checked(*words: Any, **options: Any) -> Any:
        if options["workload"] is not None or options["parallel"] is not None:
            _refuse(alone)
        return command(*words, **options)

    click.option(
        "--parallel",
        metavar="SPLIT",
        help="How a model is split: tp=8,pp=4,dp=16[,order=...]",
    )(checked)
    click.option(
        "--workload",
        metavar="W",
        shell_complete=completed(_workloads, files=True),
        help="All collectives of a job: a file, a profile, or ddp, fsdp, ....",
    )(checked)
    return checked


def _refuse(alone: tuple[str, ...]) -> None:
    """Raise UsageError if one of these options was typed."""
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in alone and source is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"{option.opts[0]} is for one collective: a workload has its own"
            )


def constraint_options(command: Command) -> Command:
    """Add ``--pin``, ``--same-rack``, ``--keep-below`` and ``--free-rank0``."""
    for option in (
        click.option("--free-rank0", is_flag=True, help="Let the host of rank 0 move."),
        click.option(
            "--keep-below",
            metavar="PERCENT",
            type=SHARE,
            help="Keep the order given if less is to be gained.  [default: 0%; for run "
            "what predictions are off by, at least 1%]",
        ),
        click.option(
            "--same-rack",
            metavar="GROUPS",
            multiple=True,
            help="Keep each group (tp or another name, or ranks 0-7) in one rack.",
        ),
        click.option(
            "--pin",
            "pins",
            metavar="RANK=HOST",
            multiple=True,
            callback=_pins,
            help="Keep a rank on a host; may be repeated.",
        ),
    ):
        command = option(command)
    return command


def _pins(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, str], ...]:
    pins = []
    for value in values:
        found = re.fullmatch(r"(\d{1,5})=(\S+)", value)
        if not found:
            raise click.BadParameter(f"{value!r} is not RANK=HOST such as 0=vm-3")
        pins.append((int(found[1]), found[2]))
    return tuple(pins)


class _Refusal(click.UsageError):
    exit_code = LaunchError.exit_code


class Prefix(click.Command):
    """A command that starts a program: its own failures before that end in 125.

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
