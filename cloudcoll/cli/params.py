"""Types of command line values."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from cloudcoll.errors import UsageError
from cloudcoll.sizes import parse_size


class _Size(click.ParamType):  # type: ignore[type-arg]
    """Bytes, with K, M, G, T as powers of 1024 as nccl-tests has them."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


SIZE = _Size()


class _Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, or what ends in s, m, h or d."""

    name = "duration"
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
        if not match:
            self.fail(f"{value!r} is not a time such as 90s, 30m, 1h, 2d", param, ctx)
        return float(match[1]) * self.units[match[2] or "s"]


DURATION = _Duration()
"""Type of options that are times."""


class _Share(click.ParamType):  # type: ignore[type-arg]
    """Per cent, as a share of one."""

    name = "share"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = re.fullmatch(r"(\d{1,3}(?:\.\d+)?) *%?", str(value))
        if not found or float(found[1]) >= 100:
            self.fail(f"{value!r} is not per cent such as 3%, below 100", param, ctx)
        return float(found[1]) / 100


SHARE = _Share()
"""Type of options that are per cent."""


class Finite(click.FloatRange):
    """A number in a range: not NaN, which is in none and yet in all of click's."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number, or fail."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number to count with", param, ctx)
        return number
