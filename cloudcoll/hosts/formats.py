"""The line grammars of host lists: what one line of each format says.

`FORMATS` is the table. Sources: PRRTE ``hostfile_lex.l`` and ``rmaps_rank_file.c``,
Hydra ``HYDU_parse_hostfile``, Slurm ``slurm_read_hostfile``, LightGBM
``Linkers::ParseMachineList``, DeepSpeed and Horovod ``runner``. Bracket ranges are
Slurm's and ClusterShell's: several brackets multiply, brackets nest, zero padding is
kept, ``/N`` is a step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import HOSTS, SLOTS
from cloudcoll.hosts.names import ipv6, is_host_name, is_user


class Line(NamedTuple):
    """One line without its comment: where it stands, and what it says."""

    where: str
    text: str

    def refuse(self, problem: str, example: str) -> UsageError:
        """Return the error for this line, ready to be raised."""
        return UsageError(f"{self.where}: {problem}; example: {example}")


class Entry(NamedTuple):
    """One mention of a host; `slots` is None where the line has no count."""

    line: Line
    name: str
    user: str = ""
    slots: int | None = None


@dataclass(frozen=True)
class Format:
    """How to read one kind of host list.

    Attributes
    ----------
    parse : callable
        Lines -> mentions of hosts, in the order the format gives them.
    single : int or None
        Slots of a host mentioned once without a count.
    """

    parse: Callable[[Iterable[Line]], Iterable[Entry]]
    single: int | None


_HOSTFILE = "node01 slots=8"
_COUNTED = "node[01-16]:8"
_RANKFILE = "rank 0=node01 slot=0"
_LIGHTGBM = "10.0.0.1 12400"

_COUNT = re.compile(r"(.*?)[:*]([0-9]{1,6})")
_RANK = re.compile(r"rank\s+([0-9]{1,9})\s*=\s*(\S+)(?:\s+slots?\s*=\s*\S+)?")
_SLOT_KEYS = ("slots", "count", "cpu")
_USER_KEYS = ("username", "user-name", "user_name")
_IGNORED_KEYS = re.compile(r"max[_-](slots|cpu|count)|(slots|cpu|count)[_-]max")


def detect(lines: list[Line]) -> str:
    """Return the name of the format of `lines`: the first rule that holds.

    1. A line starts with ``rank N=``: ``rankfile``.
    2. A line is a word and a number: ``lightgbm``.
    3. A line has a comma outside brackets or ends in ``*N``: ``slurm``.
    4. The first word of a line ends in ``:N``: ``mpich``.
    5. Every line is one word, and one is repeated: ``seq``.
    6. Else ``hostfile``.
    """
    rules = (
        ("rankfile", r"rank\s+[0-9]+\s*="),
        ("lightgbm", r"\S+\s+[0-9]+$"),
        ("slurm", r"([^\[\s]|\[[^\]]*\])*,|\S*\*[0-9]+$"),
        ("mpich", r"(\S*@)?(\[[^\]\s]*:[^\]\s]*\]|[^:\s]+):[0-9]+(\s|$)"),
    )
    for name, rule in rules:
        matches = re.compile(rule).match
        if any(matches(line.text) for line in lines):
            return name
    texts = [line.text for line in lines]
    plain = not any(len(text.split()) > 1 for text in texts)
    return "seq" if plain and len(set(texts)) < len(texts) else "hostfile"


def parse_counted(line: Line) -> list[Entry]:
    """Read a comma list of ``[user@]host[:N]``, ranges expanded.

    Slurm writes the count as ``host*N``.
    """
    try:
        items = [item.strip() for item in split_list(line.text)]
    except UsageError as error:
        raise UsageError(f"{line.where}: {error}") from None
    entries = []
    for item in items:
        match = None if _is_ipv6(item) else _COUNT.fullmatch(item)
        word, count = match.groups() if match else (item, None)
        slots = None if count is None else _slots(line, count, _COUNTED)
        entries += _mentions(line, word, _COUNTED, slots=slots)
    return entries


def _hostfile_line(line: Line) -> list[Entry]:
    # Open MPI allows blanks around the equals sign.
    word, *options = re.sub(r"\s*=\s*", "=", line.text).split()
    user, slots = "", None
    for option in options:
        key, _, value = option.partition("=")
        if key in _SLOT_KEYS:
            slots = _slots(line, value, _HOSTFILE)
        elif key in _USER_KEYS and is_user(value):
            user = value
        elif not (_IGNORED_KEYS.fullmatch(key) and value.isdigit()):
            raise line.refuse(
                f"{option[:40]!r} not understood (known: slots=N, max_slots=N, "
                "username=NAME)",
                _HOSTFILE,
            )
    entries = _mentions(line, word, _HOSTFILE, slots=slots)
    return [entry._replace(user=user) for entry in entries] if user else entries


def _plain_line(line: Line) -> list[Entry]:
    word, *more = line.text.split()
    if more:
        raise line.refuse(
            f"{more[0][:40]!r} after the host: this format has one host per line, "
            "repeated once per rank",
            "node01",
        )
    return _mentions(line, word, "node01")


def _mpich_line(line: Line) -> list[Entry]:
    word, *options = line.text.split()
    user = ""
    for option in options:
        key, _, value = option.partition("=")
        if key == "user" and is_user(value):
            user = value
        elif key != "binding":
            raise line.refuse(
                f"{option[:40]!r} not understood (known: user=NAME, binding=WHAT)",
                "node01:8",
            )
    entries = parse_counted(line._replace(text=word))
    return [entry._replace(user=user or entry.user, line=line) for entry in entries]


def _rank_lines(lines: Iterable[Line]) -> list[Entry]:
    seen: dict[int, Entry] = {}
    for line in lines:
        match = _RANK.fullmatch(line.text)
        if not match:
            raise line.refuse(f"{line.text[:40]!r} is not a rank line", _RANKFILE)
        rank, word = int(match[1]), match[2]
        mentions = _mentions(line, word, _RANKFILE)
        if len(mentions) != 1:
            raise line.refuse(f"{word[:40]!r} is more than one host", _RANKFILE)
        if rank in seen:
            raise line.refuse(
                f"rank {rank} was placed before, at {seen[rank].line.where}", _RANKFILE
            )
        seen[rank] = mentions[0]
    return [seen[rank] for rank in sorted(seen)]


def _port_lines(lines: Iterable[Line]) -> list[Entry]:
    seen: dict[tuple[str, str], Line] = {}
    entries = []
    for line in lines:
        words = line.text.split()
        if len(words) == 1:
            words = line.text.rsplit(":", 1)
        if len(words) != 2 or not re.fullmatch(r"[0-9]{1,5}", words[1]):
            raise line.refuse(f"{line.text[:40]!r} is not 'address port'", _LIGHTGBM)
        for entry in _mentions(line, words[0], _LIGHTGBM):
            first = seen.setdefault((entry.name, words[1]), line)
            if first is not line:
                raise line.refuse(
                    f"{entry.name} port {words[1]} was listed before, at "
                    f"{first.where}: one port serves one process",
                    _LIGHTGBM,
                )
            entries.append(entry)
    return entries


def _each(parse: Callable[[Line], list[Entry]], single: int | None) -> Format:
    def entries(lines: Iterable[Line]) -> Iterator[Entry]:
        for line in lines:
            yield from parse(line)

    return Format(entries, single)


def _mentions(
    line: Line, word: str, example: str, slots: int | None = None
) -> list[Entry]:
    """Read ``[user@]host``; brackets hold an IPv6 address or a range."""
    user, at, pattern = word.rpartition("@")
    if at and not is_user(user):
        raise _not_a_host(line, word, example)
    if _is_ipv6(pattern):
        return [Entry(line, _ipv6(line, pattern, example), user, slots)]
    try:
        names = expand(pattern)
    except UsageError as error:
        raise UsageError(f"{line.where}: {error}") from None
    for name in names:
        if not is_host_name(name):
            raise _not_a_host(line, word, example)
    return [Entry(line, name, user, slots) for name in names]


def _is_ipv6(word: str) -> bool:
    """Tell whether `word` is an address such as ``[::1]`` or ``fe80::1``."""
    bracketed = re.fullmatch(r"\[[^\]]*:[^\]]*\]", word)
    return bool(bracketed) or ("[" not in word and word.count(":") > 1)


def _ipv6(line: Line, word: str, example: str) -> str:
    if (found := ipv6(word.strip("[]"))) is None:
        raise line.refuse(f"{word[:60]!r} is not an IPv6 address", example)
    return found


def _slots(line: Line, text: str, example: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= SLOTS:
        raise line.refuse(
            f"{text[:40]!r} slots: a host takes 1 to {SLOTS} (remove the line "
            "to leave the host out)",
            example,
        )
    return int(text)


def _not_a_host(line: Line, word: str, example: str) -> UsageError:
    if word.startswith("@"):
        return line.refuse(
            f"{word[:40]!r} is a ClusterShell group: expand it first with "
            f"'nodeset -e -S , {word[:40]}' and pass the result to -w",
            "-w node[01-16]",
        )
    if re.match(r"[+^]", word):
        return line.refuse(
            f"{word[:40]!r} only means something inside an allocation: name the "
            "hosts themselves",
            example,
        )
    return line.refuse(
        f"{word[:60]!r} is not a host ([user@]name, an IPv4 address or an IPv6 "
        "address in brackets)",
        example,
    )


_hostfile = _each(_hostfile_line, single=None)

FORMATS: dict[str, Format] = {
    "hostfile": _hostfile,
    "seq": _each(_plain_line, single=1),
    "rankfile": Format(_rank_lines, single=1),
    "mpich": _each(_mpich_line, single=1),
    "pbs": _each(_plain_line, single=1),
    "slurm": _each(parse_counted, single=None),
    "lightgbm": Format(_port_lines, single=1),
    "deepspeed": _hostfile,
    "horovod": _hostfile,
    "kubernetes": _hostfile,
}
"""Every format that `cloudcoll.hosts.read_hosts` reads, by name."""


_MAX_DEPTH = 4
# At most 18 digits: longer ones are no host numbers and cost time to convert.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?")


def split_list(text: str) -> list[str]:
    """Split `text` at the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        if depth < 0:
            break
    if depth != 0:
        raise _refusal(text, "brackets do not match")
    return [*parts, text[start:]]


def expand(pattern: str) -> tuple[str, ...]:
    """Return the names that `pattern` stands for, in its order.

    A pattern may be a comma list; one without brackets stands for itself. UsageError
    also for a range that runs backwards, or more than `HOSTS` names.
    """
    return tuple(_expand(pattern, pattern, depth=0))


def _expand(text: str, whole: str, depth: int) -> list[str]:
    if depth > _MAX_DEPTH:
        raise _refusal(whole, f"brackets nest more than {_MAX_DEPTH} deep")
    names: list[str] = []
    for item in split_list(text):
        names += _expand_item(item, whole, depth)
        if len(names) > HOSTS:
            raise _too_many(whole)
    return names


def _expand_item(item: str, whole: str, depth: int) -> list[str]:
    if depth > 0 and "[" not in item:
        return _expand_range(item, whole)
    names = [""]
    for text, inner in _pieces(item):
        ends = _expand(inner, whole, depth + 1) if inner is not None else [""]
        if len(names) * len(ends) > HOSTS:
            raise _too_many(whole)
        names = [name + text + end for name in names for end in ends]
    return names


def _pieces(item: str) -> list[tuple[str, str | None]]:
    """Cut ``a[1]b[2]c`` into ``(a, 1), (b, 2), (c, None)``."""
    pieces: list[tuple[str, str | None]] = []
    depth = start = opened = 0
    for position, char in enumerate(item):
        if char == "[":
            depth += 1
            if depth == 1:
                opened = position
        elif char == "]":
            depth -= 1
            if depth == 0:
                pieces.append((item[start:opened], item[opened + 1 : position]))
                start = position + 1
    return [*pieces, (item[start:], None)]


def _expand_range(text: str, whole: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if not match:
        raise _refusal(whole, f"{text[:40]!r} is not a number or a range of numbers")
    first, last, step = match.groups()
    low, high, stride = int(first), int(last or first), int(step or 1)
    if high < low or stride == 0:
        raise _refusal(whole, f"the range {text} holds no number")
    if (high - low) // stride >= HOSTS:
        raise _too_many(whole)
    # A number narrower than the first one's padding is widened to it, as
    # Slurm does: 08-10 is 08, 09, 10.
    return [str(number).zfill(len(first)) for number in range(low, high + 1, stride)]


def _refusal(pattern: str, problem: str) -> UsageError:
    return UsageError(
        f"cannot expand {pattern[:60]!r}: {problem}; example: node[01-16,20]"
    )


def _too_many(pattern: str) -> UsageError:
    return UsageError(
        f"{pattern[:60]!r} stands for more than {HOSTS} hosts: check the range"
    )
