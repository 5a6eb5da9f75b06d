"""The programs of one command line, with ``:`` between them, as MPIs have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import (
    Option,
    Syntax,
    program_start,
    rank_count,
    scan_options,
)


class Part(NamedTuple):
    """One of the programs.

    Attributes
    ----------
    options : tuple of Option
        In front of it.
    options_end, program, end : int
        Where in the command line they end, it stands itself, its own words end.
    """

    options: tuple[Option, ...]
    options_end: int
    program: int
    end: int


def read_parts(argv: Sequence[str], syntax: Syntax) -> tuple[Part, ...]:
    """Return the programs of a command line, at least one.

    Raises
    ------
    LaunchError
        An option is not known, or a program is missing.
    """
    return tuple(_parts(argv, syntax))


def _parts(argv: Sequence[str], syntax: Syntax) -> Iterator[Part]:
    at = 1
    while True:
        options, options_end = scan_options(argv, syntax, at)
        program = program_start(argv, options_end)
        end = next((i for i in range(program, len(argv)) if argv[i] == ":"), len(argv))
        yield Part(tuple(options), options_end, program, end)
        if end == len(argv):
            return
        at = end + 1


def total_ranks(
    parts: Sequence[Part], count: str, placement: frozenset[str]
) -> int | None:
    """Return the number of ranks of all programs, None if the hosts decide.

    Parameters
    ----------
    parts : sequence of Part
    count : str
        Name of the option with a program's ranks.
    placement : frozenset of str
        Names of options that decide about hosts.

    Raises
    ------
    LaunchError
        It can't be told, or a later program has hosts of its own.
    """
    for part in parts[1:]:
        if any(option.name in placement for option in part.options):
            raise LaunchError("hosts are given after a ':': give them before it")
    counts = [rank_count(part.options, count) for part in parts]
    known = [number for number in counts if number is not None]
    if len(known) < len(counts) and len(counts) > 1:
        raise LaunchError("a part of the command line has no -n")
    return sum(known) if known else None
