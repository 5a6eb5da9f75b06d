"""Types of command line values."""

from __future__ import annotations

import re

import click

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


class _Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes, with K, M, G, T as powers of 1024 as nccl-tests has them."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if not match:
            self.fail(f"{value!r} is not a size such as 4096, 512K, 16M", param, ctx)
        power = " KMGT".index(match[2].upper() or " ")
        return round(float(match[1]) * float(1024**power))


SIZE = _Size()
