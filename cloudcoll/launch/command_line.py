"""A launcher's command line: its options, and where its programs start.

Launchers read it by rules of their own (`Syntax`), or with Python's argparse
(`CommandLine`). MPIs take several programs, with ``:`` between them (`Part`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from cloudcoll.errors import LaunchError
from cloudcoll.files import bounded
from cloudcoll.files.limits import TEXT_BYTES
from cloudcoll.hosts import Host

PYTHON = re.compile(r"python[\d.]*|pypy[\d.]*")


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text, one a word."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Syntax:
    """The options a launcher knows.

    Attributes
    ----------
    flags : frozenset of str
        Names, without dashes, of options without a value, or with one only
        after ``=``.
    valued : frozenset of str
        Names of options with one value.
    pairs : frozenset of str
        Names of options with two values.
    synonyms : mapping of str to str
        Name as typed -> name in the sets above.
    attached : str
        Letters whose value may follow at once, as in ``-n4``; where there are
        any, one dash stands for letters only.
    """

    flags: frozenset[str]
    valued: frozenset[str]
    pairs: frozenset[str] = frozenset()
    synonyms: Mapping[str, str] = field(default_factory=dict)
    attached: str = ""

    @classmethod
    def of(
        cls,
        flags: str,
        valued: str,
        synonyms: str = "",
        *,
        pairs: str = "",
        attached: bool = False,
    ) -> Syntax:
        """Return the syntax whose names are written as words.

        `synonyms` has in turn a name as typed and the one that it stands for. With
        `attached` a value may follow at once on the letter of an option that has one.
        """
        words, taking = synonyms.split(), names_in(valued)
        known = dict(zip(words[::2], words[1::2], strict=True))
        letters = (key for key, name in known.items() if len(key) == 1)
        return cls(
            names_in(flags),
            taking,
            names_in(pairs),
            known,
            "".join(key for key in letters if known[key] in taking and attached),
        )


@dataclass(frozen=True)
class Option:
    """One option as it stands on a command line, which is ``argv[start:end]``.

    Its name is the long one, without dashes; `values` are what belongs to it.
    """

    name: str
    values: tuple[str, ...]
    start: int
    end: int


def scan_options(
    argv: Sequence[str], syntax: Syntax, start: int = 1
) -> tuple[list[Option], int]:
    """Return the options from `start` on and the index at which they end.

    The program follows there, after a ``--`` if there is one. One dash goes
    for two before a long name, except where letters take values at once.

    Raises
    ------
    LaunchError
        An option that is not known here, or one that lacks its value.
    """
    options = list(_options(argv, syntax, start))
    return options, options[-1].end if options else start


def _options(argv: Sequence[str], syntax: Syntax, at: int) -> Iterator[Option]:
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in {"-", "--"}:
        word, equals, value = argv[at].lstrip("-").partition("=")
        if syntax.attached and argv[at][1] != "-":
            word, equals, value = _short(argv[at][1:], syntax)
        name = syntax.synonyms.get(word, word)
        count = 2 if name in syntax.pairs else int(name in syntax.valued)
        if not count and name not in syntax.flags:
            raise LaunchError(f"{argv[0]} option {argv[at]!r} is not known here")
        if equals and count == 2:
            raise LaunchError(f"{argv[0]} option {argv[at]!r} takes two words, no '='")
        end = at + 1 if equals else at + 1 + count
        if end > len(argv):
            raise LaunchError(f"{argv[0]} option {argv[at]!r} lacks its value")
        values = (value,) if equals else tuple(argv[at + 1 : end])
        yield Option(name, values, at, end)
        at = end


def _short(word: str, syntax: Syntax) -> tuple[str, str, str]:
    """Return name, ``=`` and value of what follows a single dash."""
    if word[0] in syntax.attached and len(word) > 1:
        return word[0], "=", word[1:]
    # Several flags, such as -lu, or a flag with a number, such as -K1.
    flags = all(syntax.synonyms.get(c) in syntax.flags or c.isdecimal() for c in word)
    return (word[0] if flags else word), "", ""


def last_values(options: Iterable[Option], *names: str) -> list[str]:
    """Return the value of each option that has one of the names."""
    return [option.values[-1] for option in options if option.name in names]


def rank_count(options: Iterable[Option], *names: str) -> int | None:
    """Return the ranks asked for, None where it is left open; LaunchError for none."""
    for text in last_values(options, *names):
        if not text.isdecimal() or int(text) < 1:
            raise LaunchError(f"-n {text!r} is not a number of ranks")
        return int(text)
    return None


def where(options: Iterable[Option], names: Set[str]) -> tuple[tuple[int, int], ...]:
    """Return which ranges of the command line hold options with these names."""
    return tuple((o.start, o.end) for o in options if o.name in names)


def without(
    argv: Sequence[str], ranges: Iterable[tuple[int, int]], end: int
) -> tuple[str, ...]:
    """Return the words before `end` that lie in none of the `ranges`."""
    dropped = {at for first, last in ranges for at in range(first, last)}
    return tuple(argv[at] for at in range(end) if at not in dropped)


def read_named(path: str) -> str:
    """Return the text of a file that a command line names, or raise LaunchError."""
    try:
        return bounded(path, TEXT_BYTES).decode(errors="replace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LaunchError(f"cannot read {path}: {reason}") from error


def program_start(argv: Sequence[str], start: int) -> int:
    """Return where the program itself stands, behind a ``--`` if there is one."""
    start += start < len(argv) and argv[start] == "--"
    if start >= len(argv):
        raise LaunchError("the command line names no program")
    return start


def fill(room: Sequence[int], total: int) -> tuple[int, ...]:
    """Return the counts when `total` ranks fill one host after the other."""
    counts: list[int] = []
    for slots in room:
        counts.append(min(slots, total - sum(counts)))
    return tuple(counts)


def deal(room: Sequence[int], total: int) -> tuple[int, ...]:
    """Return the counts when `total` ranks are dealt over the hosts in turn."""
    turns = sorted((deal, at) for at, slots in enumerate(room) for deal in range(slots))
    dealt = [at for _, at in turns[:total]]
    return tuple(dealt.count(at) for at in range(len(room)))


def even_counts(
    hosts: Sequence[Host], options: Sequence[Option], ranks: str, per_host: str
) -> tuple[int, ...]:
    """Return how many ranks each host gets: as many on one as on the other.

    `ranks` and `per_host` name the options with their number, in all and on a host.
    LaunchError where they can't be told, or differ.
    """
    total, each = rank_count(options, ranks), rank_count(options, per_host)
    if each is None:
        each, rest = divmod(total or 0, len(hosts))
        if rest or not each:
            raise LaunchError(
                f"{total or 'no'} ranks for {len(hosts)} hosts: say how many each takes"
            )
    if total not in {None, each * len(hosts)}:
        raise LaunchError(f"{total} ranks are not {each} on each of {len(hosts)} hosts")
    return (each,) * len(hosts)


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
    name = os.path.basename(argv[0])
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


class Part(NamedTuple):
    """One of the programs of a command line, with the `options` in front of it.

    These end at `options_end`, it stands at `program`, its own words end at `end`.
    """

    options: tuple[Option, ...]
    options_end: int
    program: int
    end: int


def read_parts(argv: Sequence[str], syntax: Syntax) -> tuple[Part, ...]:
    """Return the programs of a command line, at least one."""
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

    `count` names the option with a program's ranks, `placement` those that decide
    about hosts: a later program that has one is a LaunchError.
    """
    for part in parts[1:]:
        if any(option.name in placement for option in part.options):
            raise LaunchError("hosts are given after a ':': give them before it")
    counts = [rank_count(part.options, count) for part in parts]
    known = [number for number in counts if number is not None]
    if len(known) < len(counts) and len(counts) > 1:
        raise LaunchError("a part of the command line has no -n")
    return sum(known) if known else None
