"""Open MPI's file of rules: ``coll_tuned_dynamic_rules_filename``.

The form of 4.1 and 5.0 (``coll_tuned_dynamic_file.c``): numbers, of which all but
``rule-file-version-N`` before the first is skipped and # begins a comment.

    number of collectives
      number of the collective, number of world sizes
        world size, number of message sizes
          bytes, algorithm, fan-out, segment, [most requests: version 2, same line]
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

from cloudcoll.errors import UsageError
from cloudcoll.files import read_text
from cloudcoll.files.limits import CONFIG_BYTES

COLLECTIVES = {
    "allgather": 0,
    "allreduce": 2,
    "alltoall": 3,
    "barrier": 6,
    "bcast": 7,
    "reduce": 11,
    "reduce_scatter": 12,
}
"""Open MPI's numbers (``coll_base_functions.h``, ``COLLTYPE``)."""


class FileRule(NamedTuple):
    """What a file of rules says of one call.

    Attributes
    ----------
    algorithm : int
        Its number; 0 for what tuned takes without the file.
    fanout : int
    segment : int
        Bytes, 0 for none.
    """

    algorithm: int
    fanout: int
    segment: int


Sized = list[tuple[int, FileRule]]
"""Bytes from which a rule holds."""

Table = dict[int, list[tuple[int, Sized]]]
"""Number of a collective -> ranks from which its rules hold."""


def file_rule(
    path: str | Path, collective: str, ranks: int, size: int
) -> FileRule | None:
    """Return the rule for a call, None where the file has none.

    Parameters
    ----------
    path : str or Path
    collective : str
        A key of `COLLECTIVES`.
    ranks : int
        World size.
    size : int
        Bytes of the full vector, of allgather and alltoall too.

    Raises
    ------
    UsageError
        The file is not to be read, or not of this form.
    """
    text = read_text(path, f"the rules {str(path)!r}", most=CONFIG_BYTES)
    worlds = _table(text, str(path)).get(COLLECTIVES[collective], [])
    # As the library does, the first stands in for what is below it.
    fitting = [sized for least, sized in worlds if least <= ranks] or [
        sized for _, sized in worlds[:1]
    ]
    rules = fitting[-1] if fitting else []
    return next((rule for least, rule in reversed(rules) if least <= size), None)


def _table(text: str, path: str) -> Table:
    """Return all rules of a file.

    Raises
    ------
    UsageError
        JSON, which later versions have, numbers missing, or no rule from 0 bytes.
    """
    if text.lstrip().startswith("{"):
        raise UsageError(f"{path}: rules in JSON are not read")
    reader = _Reader(text)
    try:
        return {
            reader.next(): [
                (reader.next(), _sized(reader)) for _ in range(reader.next())
            ]
            for _ in range(reader.next())
        }
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


class _Reader:
    """The numbers of a file, one by one."""

    def __init__(self, text: str) -> None:
        head = re.match(r"\s*rule-file-version-(\d+)", text)
        self._optional = head is not None and int(head[1]) > 1
        lines = text[head.end() if head else 0 :].splitlines()
        self._left = deque(
            (at, int(word))
            for at, line in enumerate(lines)
            for word in re.findall(r"-?\d+", line.partition("#")[0])
        )
        self._line = 0

    def next(self) -> int:
        """Return the next number.

        Raises
        ------
        ValueError
            There is none, or it is negative.
        """
        if not self._left:
            raise ValueError("the rules end too early")
        self._line, number = self._left.popleft()
        if number < 0:
            raise ValueError(f"{number} in the rules is negative")
        return number

    def skip_requests(self) -> None:
        """Leave out a fifth number of a rule, where it has one."""
        if self._optional and self._left and self._left[0][0] == self._line:
            self.next()


def _sized(reader: _Reader) -> Sized:
    """Return the rules of one world size.

    Raises
    ------
    ValueError
        The first is not from 0 bytes.
    """
    rules: Sized = []
    for _ in range(reader.next()):
        least = reader.next()
        rule = FileRule(reader.next(), reader.next(), reader.next())
        reader.skip_requests()
        if not rules and least:
            raise ValueError("the first rule of a world size has to be from 0 bytes")
        rules.append((least, rule))
    return rules
