"""Amounts of bytes as people type and read them."""

from __future__ import annotations

import re

from cloudcoll.errors import UsageError

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?", re.I | re.A)


def decimal_size(count: float) -> str:
    """Return an amount of bytes as networks count them, powers of 1000: ``2.06 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        # 999.6 MB are 1 GB to three digits.
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"


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
