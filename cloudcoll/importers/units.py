"""The units that files of other programs count in."""

from __future__ import annotations

from collections.abc import Iterable

from cloudcoll.errors import UsageError

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Unit of a latency -> seconds."""

BYTES_PER_S = {
    "B/s": 1.0,
    "MB/s": 1e6,
    "MiB/s": 2.0**20,
    "GB/s": 1e9,
    "GiB/s": 2.0**30,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
}
"""Unit of a bandwidth -> bytes/s."""


def rate_unit(name: str) -> float:
    """Return the bytes/s that a unit of bandwidth stands for.

    Raises
    ------
    UsageError
        There is no such unit.
    """
    if name not in BYTES_PER_S:
        raise UsageError(
            f"unknown unit of bandwidth {name!r} (known: {', '.join(BYTES_PER_S)})"
        )
    return BYTES_PER_S[name]


def time_unit(name: str) -> float:
    """Return the seconds that a unit of latency stands for.

    Raises
    ------
    UsageError
        There is no such unit.
    """
    if name not in SECONDS:
        raise UsageError(
            f"unknown unit of latency {name!r} (known: {', '.join(SECONDS)})"
        )
    return SECONDS[name]


def kinds_of(units: Iterable[str]) -> tuple[str, str]:
    """Return the unit of latency and that of bandwidth out of those given.

    Microseconds are taken where no unit of latency is, nothing for bandwidth.

    Raises
    ------
    UsageError
        An unknown unit, or two of one kind.
    """
    chosen = {"latency": "us", "bandwidth": ""}
    said = set()
    for unit in units:
        if unit not in SECONDS and unit not in BYTES_PER_S:
            known = ", ".join((*SECONDS, *BYTES_PER_S))
            raise UsageError(f"unknown unit {unit!r} (known: {known})")
        kind = "latency" if unit in SECONDS else "bandwidth"
        if kind in said:
            raise UsageError(f"two units of {kind}: {chosen[kind]} and {unit}")
        said.add(kind)
        chosen[kind] = unit
    return chosen["latency"], chosen["bandwidth"]
