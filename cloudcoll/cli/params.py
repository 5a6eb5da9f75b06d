"""Types of command line values."""

from __future__ import annotations

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
