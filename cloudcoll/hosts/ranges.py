"""Bracket ranges in host names: ``node[01-16,20]`` stands for 17 names.

The grammar is Slurm's and ClusterShell's: several brackets multiply, brackets
nest, zero padding is kept, ``/N`` is a step.
"""

from __future__ import annotations

import re

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import HOSTS

_MAX_DEPTH = 4
# At most 18 digits: longer ones are no host numbers and cost time to convert.
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?")


def split_list(text: str) -> list[str]:
    """Split `text` at the commas outside brackets.

    Raises
    ------
    UsageError
        A bracket is not closed or not opened.
    """
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

    A pattern may be a comma list; one without brackets stands for itself.

    Raises
    ------
    UsageError
        Brackets that do not match, something else than numbers inside, a
        range that runs backwards, or more than `HOSTS` names.
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
