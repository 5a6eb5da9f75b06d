"""Open MPI's rules of ``coll/tuned``: its table of thresholds, and its file of rules.

The table is that of ``coll_tuned_decision_fixed.c``, the same text in all of 4.1 and
5.0; for operations that commute.

The file is what ``coll_tuned_dynamic_rules_filename`` names, in the form of 4.1 and 5.0
(``coll_tuned_dynamic_file.c``): numbers, of which all but ``rule-file-version-N``
before the first is skipped and # begins a comment.

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
from cloudcoll.libraries.question import only

ALGORITHMS = {
    "allgather": "linear bruck recursive_doubling ring neighbor two_proc sparbit",
    "allreduce": "basic_linear nonoverlapping recursive_doubling ring segmented_ring "
    "rabenseifner",
    "alltoall": "linear pairwise modified_bruck linear_sync two_proc",
    "barrier": "linear double_ring recursive_doubling bruck two_proc tree",
    "bcast": "linear chain pipeline split_binary_tree binary_tree binomial knomial "
    "scatter_allgather scatter_allgather_ring",
    "reduce": "linear chain pipeline binary binomial in_order_binary rabenseifner",
    "reduce_scatter": "nonoverlapping recursive_halving ring butterfly",
}
"""Collective -> its algorithms 1, 2, ... by the names of `SCHEDULES`."""

RULES = {
    "allreduce": """
        4: 4<8 3<4K 4<8K 3<16K 4<64K 5<256K 6
        8: 4<16 3<8K 6
        16: 3<8K 6
        32: 5<64 3<4K 6
        64: 5<128 6
        128: 3<256K 6
        256: 2<128K 3<256K 6
        512: 2<4K 6
        2048: 2<2K 3<16K 6
        4096: 2<2K 5<4K 3<16K 6
        else: 2<2K 5<16K 3<32K 6
    """,
    "alltoall": """
        3: 2<2 5<4 2<16 5<64 2<256 5<4K 2<32K 4<256K 5<1M 2
        8: 4<8K 1<16K 4<64K 1<512K 2<1M 1
        16: 4<256K 1
        32: 4<4 3<512 4<8K 1<32K 4<256K 1<512K 4
        64: 3<512 1<512K 4
        128: 3<1K 1<2K 4<4K 1<256K 2
        256: 3<1K 4<2K 1<256K 2
        512: 3<1K 4<8K 1<32K 2
        1024: 3<512 4<8K 1<16K 4<128K 1<256K 2
        2048: 3<512 4<1K 1<2K 4<16K 1<256K 4
        4096: 3<1K 4<4K 1<8K 4<128K 1
        else: 3<2K 4<8K 1<16K 4<32K 1<64K 4
    """,
    "barrier": """
        4: 3
        8: 1
        64: 3
        256: 4
        512: 6
        1024: 4
        4096: 6
        else: 4
    """,
    "bcast": """
        4: 3<32 5<256 3<512 7<1K 1<32K 5<128K 2<256K 1<512K 6<1M 5
        8: 5<64 6<128 5<2K 6<8K 1<1M 2
        16: 7<8 5<64 7<4K 5<16K 6<32K 1
        32: 7<4K 6<1M 8
        64: 6<2K 7
        128: 7
        256: 6<2 5<16K 1<32K 5<64K 7
        1024: 7<16K 4<32K 7
        2048: 7<512K 8
        4096: 7<256K 8
        else: 7<8K 5<16K 7<256K 8
    """,
    "reduce": """
        4: 7<8 4<16 3<32 1<256K 3<512K 2<1M 3
        8: 4<4K 2<64K 5<256K 1<512K 5<1M 1
        16: 4<8K 5
        32: 4<4K 5
        256: 5
        512: 5<8K 6<16K 5
        2048: 5
        4096: 5<512 6<1K 5<8K 6<16K 5
        else: 5<16 6<32 5<1K 6<2K 5<8K 6<16K 5
    """,
    "reduce_scatter": """
        4: 3<64K 4<128K 3
        8: 1<8 2<256K 3
        32: 2<256K 3
        64: 1<64 2<2K 4<512K 3
        128: 1<256 2<512 4<2K 2<4K 4
        256: 1<256 2<512 4
        512: 1<256 2<1K 4
        1024: 1<512 2<2K 4<8K 2<16K 4
        2048: 1<512 2<4K 4<16K 2<32K 4
        4096: 1<512 2<4K 4
        else: 1<1K 2<8K 4
    """,
    "allgather": """
        3: 6
        32: 3
        64: 3<1K 5<64K 4
        128: 3<512 5<64K 4
        256: 3<512 5<128K 4<512K 5<1M 4
        512: 3<32 2<128 3<1K 5<128K 4<512K 5<1M 4
        1024: 3<64 2<256 3<2K 5
        2048: 3<4 2<8 3<16 2<32 3<256 2<512 3<4K 5
        4096: 2<32 3<128 2<512 3<4K 5
        else: 3<2 2<8 3<16 2<512 3<4K 5
    """,
}
"""Ranks below which a line holds, then ``algorithm<bytes`` up to the last one.

Bytes are those of the vector; of allgather and alltoall those of one block.
"""

_UNITS = {"K": 1 << 10, "M": 1 << 20}


def fixed_rule(collective: str, ranks: int, size: int) -> tuple[int, str]:
    """Return the number of the algorithm taken, and the words for the rule.

    Of a key of `RULES`; `size` is the vector's, of allgather and alltoall a block's.
    """
    least, below, choices = 2, "", ""
    for line in only("Open MPI", RULES, collective).strip().splitlines():
        below, choices = line.strip().split(": ")
        if below == "else" or ranks < int(below):
            break
        least = int(below)
    most = "ranks or more" if below == "else" else f"to {int(below) - 1} ranks"
    where = f"{least} {most}"
    return _by_bytes(choices.split(), size, where)


def _by_bytes(choices: list[str], size: int, where: str) -> tuple[int, str]:
    """Return the first choice whose limit is above `size`; the last has none."""
    words = [where]
    for choice in choices:
        algorithm, _, limit = choice.partition("<")
        if not limit:
            return int(algorithm), ", ".join(words)
        if size < _bytes(limit):
            return int(algorithm), ", ".join([*words, f"below {_words(limit)}"])
        words = [where, f"from {_words(limit)}"]
    raise AssertionError(f"no choice without a limit: {choices}")


def _bytes(text: str) -> int:
    return int(text.rstrip("KM")) * _UNITS.get(text[-1], 1)


def _words(text: str) -> str:
    return f"{text.rstrip('KM')} {text[-1]}iB" if text[-1] in _UNITS else f"{text} B"


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

    Of a key of `COLLECTIVES`; `size` is the full vector's, of allgather and alltoall
    too. UsageError if the file is not to be read, or not of this form.
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
    """Return all rules of a file; UsageError for what is no file of rules, or JSON."""
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
        """Return the next number; ValueError if there is none, or it is negative."""
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
    """Return the rules of one world size, the first of which is from 0 bytes."""
    rules: Sized = []
    for _ in range(reader.next()):
        least = reader.next()
        rule = FileRule(reader.next(), reader.next(), reader.next())
        reader.skip_requests()
        if not rules and least:
            raise ValueError("the first rule of a world size has to be from 0 bytes")
        rules.append((least, rule))
    return rules
