"""Files of other programs: read within bounds, refused in one line."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files import bounded, parse_json
from cloudcoll.files.limits import TEXT_BYTES
from cloudcoll.hosts.names import shown

MAX_BYTES = TEXT_BYTES


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    Raises
    ------
    UsageError
        It cannot be read, or is larger than `MAX_BYTES`.
    """
    try:
        return bounded(path, MAX_BYTES)
    except ValueError as error:
        raise UsageError(f"{path}: {error}: import a part of it") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def read_text(path: str | os.PathLike[str]) -> str:
    """Return a file's text, UTF-8 with or without a byte order mark.

    Raises
    ------
    UsageError
        As for `read_bytes`, or it is not text.
    """
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not text") from None


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a text one by one: all at once are many small objects."""
    for line in io.StringIO(text, "\n"):
        yield line.removesuffix("\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file.

    Raises
    ------
    UsageError
        As for `read_text`, or it is not JSON.
    """
    return parse_json(read_text(path), str(path))


def group_name(value: object, where: str) -> str:
    """Return `value` if it can name a group: printable text without a blank end.

    Raises
    ------
    UsageError
        It cannot; the message starts with `where`.
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise UsageError(f"{where}: {shown(value)} is not a group's name")
    return value.strip()


def text_items(value: object) -> dict[str, str]:
    """Return the printable text entries of a JSON object, nothing of anything else."""
    if not isinstance(value, Mapping):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(item, str) and f"{key}{item}".isprintable()
    }
