"""``--config FILE``: the options of a command in a TOML file, by the same names."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import click

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import CONFIG_BYTES

FORBIDDEN = stat.S_IWGRP | stat.S_IWOTH
"""Of the file's mode: it says which programs are started and which keys are used."""


def take_config(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make what the file at `path` says the defaults of a command's options.

    A callback of an eager option, so that it comes before the others.

    Parameters
    ----------
    context : click.Context
    path : Path or None
        Its keys are the options' names without dashes in front; values are
        written as on the command line, flags are true or false.

    Raises
    ------
    UsageError
        The file can't be read, others could have written it, it is not TOML,
        or a key or value is not one of the command's.
    """
    if path is None:
        return
    options = {
        max(option.opts, key=len).removeprefix("--"): option
        for option in context.command.params
        if isinstance(option, click.Option) and option.callback is not take_config
    }
    said = _read(path)
    if unknown := sorted(said.keys() - options):
        raise UsageError(
            f"{path}: no option is called {', '.join(unknown)} "
            f"(known: {', '.join(sorted(options))})"
        )
    context.default_map = {
        str(option.name): _value(context, option, said[key], f"{path}: {key}")
        for key, option in options.items()
        if key in said
    }


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            # Of the file that is open: nobody can put another in its place.
            _check_owner(path, os.fstat(file.fileno()))
            data = file.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise ValueError(f"more than {CONFIG_BYTES >> 10} KiB")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise UsageError(f"{path} is not TOML: {error}") from error


def _check_owner(path: Path, info: os.stat_result) -> None:
    if info.st_mode & FORBIDDEN or info.st_uid not in (0, os.getuid()):
        raise UsageError(
            f"{path} has mode {stat.S_IMODE(info.st_mode):04o} and owner "
            f"{info.st_uid}: others could have written it: own it and chmod 644"
        )


def _value(
    context: click.Context, option: click.Option, value: object, where: str
) -> object:
    """Return a value as it would be typed, if the option takes it."""
    if isinstance(value, bool) != option.is_flag or not isinstance(
        value, (bool, str, int, float)
    ):
        wanted = "true or false" if option.is_flag else "text or a number"
        raise UsageError(f"{where} is {value!r}: {wanted} expected")
    typed = value if option.is_flag else str(value)
    try:
        option.type_cast_value(context, typed)
    except click.BadParameter as error:
        raise UsageError(f"{where}: {error.message}") from error
    return typed
