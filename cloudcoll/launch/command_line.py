"""Command lines that a launcher reads with Python's argparse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.launch.words import Option, Syntax, scan_options

PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")


@dataclass(frozen=True)
class CommandLine:
    """A launcher's words, of which ``argv[start:end]`` are its own options."""

    argv: tuple[str, ...]
    start: int
    options: tuple[Option, ...]
    end: int

    @classmethod
    def read(cls, argv: Sequence[str], start: int, syntax: Syntax) -> CommandLine:
        """Return the options from `start` on; underscores count as dashes.

        Abbreviations, which argparse allows, are not known here.

        Raises
        ------
        LaunchError
            An option is not known, or lacks its value.
        """
        dashed = [_dashed(word) for word in argv]
        options, end = scan_options(dashed, syntax, start)
        return cls(tuple(argv), start, tuple(options), end)

    @property
    def values(self) -> dict[str, str]:
        """Name -> value, empty for a flag; of a repeated option the last one."""
        return {option.name: (*option.values, "")[0] for option in self.options}

    def replaced(self, *options: str, drop: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the words with `options`, such as ``--node-rank=3``, first.

        What was given under their names, or those in `drop`, is left out.
        """
        names = {_dashed(option).lstrip("-").partition("=")[0] for option in options}
        gone = {
            at
            for option in self.options
            if option.name in names | set(drop)
            for at in range(option.start, option.end)
        }
        rest = range(self.start, len(self.argv))
        kept = [self.argv[at] for at in rest if at not in gone]
        return (*self.argv[: self.start], *options, *kept)


def options_start(argv: Sequence[str], program: str, module: str) -> int:
    """Return where the options begin of a program that is also a Python module.

    0 if the command line is of something else.
    """
    name = Path(argv[0]).name
    if name == program:
        return 1
    if not PYTHON.fullmatch(name) or module not in argv:
        return 0
    at = argv.index(module)
    own = all(word.startswith("-") for word in argv[1:at])
    return at + 1 if own and argv[at - 1] == "-m" else 0


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("-") else word
