"""Amounts of bytes as people type them."""

from __future__ import annotations

import re

from cloudcoll.errors import UsageError

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?", re.I | re.A)


def parse_size(text: str) -> int:
    """Return the bytes of ``4096``, ``512K``, ``16M``, ``1.5GiB``.

    K, M, G and T are powers of 1024, as nccl-tests has them.

    Raises
    ------
    UsageError
        Anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a size such as 4096, 512K, 16M")
    power = " KMGT".index(match[2].upper() or " ")
    return round(float(match[1]) * float(1024**power))
