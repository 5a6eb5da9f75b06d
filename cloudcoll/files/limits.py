"""How much a file, a frame or an answer may make this process take: one table.

What others write is never believed. A reader takes at most `GROWTH` times its
file plus `FREE` bytes, whatever the file promises, and refuses the rest in one
line before the memory is taken. SECURITY.md has this table in words.
"""

from __future__ import annotations

from typing import Any

from cloudcoll.errors import UnusableError

FREE = 64 << 20
"""Bytes that any reader may take, however small its file."""
GROWTH = 20
"""Bytes of memory that a byte of a file may take besides."""

HOSTS = 100_000
"""Hosts of a list: more than this is a typing error, not a cluster."""
STORED_HOSTS = 1 << 16
"""Hosts of a snapshot or a map, and of what is imported into one."""
TABLE_HOSTS = 2048
"""Hosts of a matrix to import: a row and a column each."""
SLOTS = 100_000
"""Processes of one host."""
RANKS = 1 << 20
"""Processes of a job."""
MESSAGES = 1 << 26
"""Messages of a schedule: an all-to-all of 8192 ranks has as many."""
ALTERNATIVES = 16
"""Other trees that a fabric may come with."""
GROUPS = 1 << 14
"""Switches of a fabric."""
TUNED_RANGES = 4096
"""Ranges of sizes that a tuning tells apart, of all collectives."""
TUNED_BYTES = (1 << 31) - 1
"""Bytes that a tuning can name: libraries read them as numbers of 32 bits."""
LEVELS = 32
"""Levels of a fabric."""
MERGED = 4096
"""Snapshots that are merged into one."""
FACTS = 4096
"""Entries of what a snapshot says of itself, and of the labels of one host."""
ROUNDS = 1 << 32
"""Rounds of a probe, by their numbers: those of frames are as large."""
REQUESTS = 1 << 31
"""Requests that a pair of hosts was sent."""
WINDOW_BYTES = 1 << 50
"""Bytes that may have arrived in one window of a transfer."""
LOGGED_BYTES = 1 << 20
"""Of a log of NCCL's choices."""
TEXT_BYTES = 256 << 20
"""A file of text; 5000 Kubernetes nodes in JSON are about 100 MB."""
LIST_BYTES = 16 << 20
"""A host list."""
CONFIG_BYTES = 256 << 10
"""A file of options, or of rules."""
DEPTH = 100
"""Lists and objects in each other, in JSON."""
MEMBERS = 32
"""Arrays in a snapshot's archive, which has twelve."""

_CHECKED = 400_000
"""Shorter JSON can't take `FREE` bytes, whatever is in it."""
_VALUES = (("{", 120), ("[", 64), (":", 64), (",", 72))
"""What begins or ends a value in JSON, and bytes that CPython takes for one: an
empty object, an empty list, a key, a value with its place."""


def room(size: int) -> int:
    """Return how much memory the content of a file of `size` bytes may take.

    A quarter of what is promised is left for the file itself, its text and what
    is made of its parts.
    """
    return 3 * (GROWTH * size + FREE) // 4


def check_room(text: str, size: int) -> None:
    """Refuse JSON that takes more memory than its file is good for, by a ValueError.

    The file has `size` bytes, compressed if it is.
    """
    if len(text) < _CHECKED:
        return
    needed = len(text) + sum(each * text.count(mark) for mark, each in _VALUES)
    if needed > room(size):
        raise ValueError(
            f"{len(text)} characters with {text.count(',') + 1} values would take "
            f"{needed >> 20} MiB: at most {room(size) >> 20} for a file of {size} bytes"
        )


def check_depth(value: Any) -> None:
    """Refuse lists and objects nested more than `DEPTH` deep, by a ValueError."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEPTH):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one)
            if isinstance(item, (dict, list))
        ]
    if not level:
        return
    raise ValueError(f"more than {DEPTH} lists and objects in each other")


def check_matrix(hosts: int, repeats: int, measured: int) -> None:
    """Refuse a matrix of all pairs that is far larger than what was measured.

    That is a number for each two hosts and repeat, of `measured` bytes. UnusableError
    if it would take more than `FREE` bytes and four times these.
    """
    needed = 8 * hosts * hosts * repeats
    if needed > FREE + 4 * measured:
        raise UnusableError(
            f"a matrix of the pairs of {hosts} hosts takes {needed >> 20} MiB, and of "
            f"them only {measured >> 10} KiB were measured: take fewer hosts, or "
            "measure more of them"
        )
