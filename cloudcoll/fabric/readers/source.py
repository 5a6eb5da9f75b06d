"""Files of other programs: read within bounds, refused in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.files import parse_json

MAX_BYTES = 256 << 20
"""Larger files are refused; 5000 Kubernetes nodes in JSON are about 100 MB."""

# Those of host lists. Names end up on command lines, so nothing else passes.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file.

    Raises
    ------
    UsageError
        It cannot be read, or is larger than `MAX_BYTES`.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"{path}: more than {MAX_BYTES >> 20} MiB: import a part of it"
        )
    return data


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


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value in a JSON file.

    Raises
    ------
    UsageError
        As for `read_text`, or it is not JSON.
    """
    return parse_json(read_text(path), str(path))


def host_name(value: object, where: str) -> str:
    """Return `value` if it can be a host's name.

    Raises
    ------
    UsageError
        It cannot; the message starts with `where`.
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise UsageError(
            f"{where}: {shown(value)} is not a host name (letters, digits, '.', '-', "
            "'_')"
        )
    return value


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


def shown(value: object) -> str:
    """Return a value as an error message quotes it: ASCII, 40 characters at most."""
    return ascii(value)[:40]
