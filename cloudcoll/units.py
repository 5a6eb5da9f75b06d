"""Numbers as people write and read them, and as JSON has them.

The only place that leaves SI base units.
"""

from __future__ import annotations

import math
import re
from typing import Any

from cloudcoll.errors import UsageError


def count(number: int, thing: str) -> str:
    """Return a number of things: ``1 host``, ``16 hosts``."""
    return f"{number} {thing}{'s' * (number != 1)}"


def seconds(value: float) -> str:
    """Return a duration: ``87 us``, ``1.20 ms``, ``3.4 s``, ``2.5 h``."""
    if math.isnan(value):
        return "?"
    for limit, unit, scale in (
        (1e-3, "us", 1e6),
        (1.0, "ms", 1e3),
        (120.0, "s", 1.0),
        (7200.0, "min", 1 / 60),
        (172800.0, "h", 1 / 3600),
    ):
        if abs(_shown(value)) < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value / 86400:.3g} d"


def bit_rate(bytes_per_s: float) -> str:
    """Return a link's rate in bits, powers of ten: ``385 Mbit/s``."""
    if math.isnan(bytes_per_s) or math.isinf(bytes_per_s):
        return "?"
    bits = bytes_per_s * 8
    for limit, unit in ((1e6, "kbit/s"), (1e9, "Mbit/s"), (1e12, "Gbit/s")):
        if _shown(bits) < limit:
            return f"{bits / (limit / 1e3):.3g} {unit}"
    return f"{bits / 1e12:.3g} Tbit/s"


def size(count: float) -> str:
    """Return an amount of bytes, powers of 1024: ``16 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def _shown(value: float) -> float:
    """Return a number as its three digits say it: 999.6 kbit/s are 1 Mbit/s."""
    return float(f"{value:.3g}")


def decimal_size(count: float) -> str:
    """Return an amount of bytes as networks count them, powers of 1000: ``2.06 GB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if _shown(count) < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} PB"


_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?", re.I | re.A)


def parse_size(text: str) -> int:
    """Return the bytes of ``4096``, ``512K``, ``16M``, ``1.5GiB``.

    K, M, G and T are powers of 1024, as nccl-tests has them.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a size such as 4096, 512K, 16M")
    power = " KMGT".index(match[2].upper() or " ")
    return round(float(match[1]) * float(1024**power))


def json_ready(value: Any) -> Any:
    """Return a value as strict JSON has it: NaN, which is "not measured", as None."""
    if isinstance(value, dict):
        return {name: json_ready(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
