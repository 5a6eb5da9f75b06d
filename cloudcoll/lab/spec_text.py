"""A lab in words: rates, times, and the TOML file of a whole one.

Text such as ``400mbit`` or ``200us`` is read here, at the edge, and nowhere else.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloudcoll.errors import UsageError
from cloudcoll.lab.spec import GroupSpec, HostSpec, LabSpec, number_of

RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
DURATIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_rate(text: str) -> float:
    """Read a rate such as ``400mbit`` and return bytes/s.

    Raises
    ------
    UsageError
        It is not a positive number with a unit, nor ``unlimited``.
    """
    if text == "unlimited":
        return math.inf
    return _quantity(text, RATES, "rate", "400mbit, 2gbit or unlimited")


def parse_duration(text: str) -> float:
    """Read a time such as ``200us`` and return seconds.

    Raises
    ------
    UsageError
        It is not a positive number with a unit, nor ``0``.
    """
    if text == "0":
        return 0.0
    return _quantity(text, DURATIONS, "duration", "200us or 1.5ms")


def _quantity(text: str, units: Mapping[str, float], kind: str, example: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*)\s*([a-z]+)", str(text).strip().lower())
    if match is None or match[2] not in units or float(match[1]) == 0:
        raise UsageError(
            f"{text!r} is not a {kind} (units: {', '.join(units)}); "
            f"write for example {example}"
        )
    return float(match[1]) * units[match[2]]


def read_spec(path: Path) -> LabSpec:
    """Read a lab from a TOML file.

    The top level is the root switch and takes ``seed``; every ``[[group]]``
    takes ``name`` and either ``hosts`` (a number) or further groups. ``rtt``
    belongs to the group it is written in. ``nic``, ``uplink`` (or, for one
    direction, ``nic_up``, ``nic_down``, ``uplink_up``, ``uplink_down``) and
    ``slots`` hold for everything below, until written again further down.

    Raises
    ------
    UsageError
        The file is missing, not TOML, or says something that makes no
        sense; the message names the file, the key and the known keys.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the lab file {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    try:
        seed = table.pop("seed", 0)
        if not isinstance(seed, int):
            raise UsageError(f"seed = {seed!r} is not a whole number")
        return LabSpec(_group(table, "root", _Defaults()), seed)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


@dataclass(frozen=True)
class _Defaults:
    nic_up: float = math.inf
    nic_down: float = math.inf
    uplink_up: float = math.inf
    uplink_down: float = math.inf
    slots: int = 1

    def updated(self, table: dict[str, Any]) -> _Defaults:
        """Take out of `table` what holds for everything below it."""
        changes: dict[str, Any] = {}
        for link in ("nic", "uplink"):
            if link in table:
                both = parse_rate(table.pop(link))
                changes |= {f"{link}_up": both, f"{link}_down": both}
            for key in (f"{link}_up", f"{link}_down"):
                if key in table:
                    changes[key] = parse_rate(table.pop(key))
        if "slots" in table:
            changes["slots"] = number_of(table.pop("slots"), "slots")
        return replace(self, **changes)


KEYS = (
    *("name", "hosts", "rtt", "nic", "nic_up", "nic_down"),
    *("uplink", "uplink_up", "uplink_down", "slots", "group"),
)


def _group(table: dict[str, Any], default_name: str, above: _Defaults) -> GroupSpec:
    name = str(table.pop("name", default_name))
    if unknown := sorted(set(table) - set(KEYS)):
        raise UsageError(
            f"unknown key {unknown[0]!r} in group {name!r} (known: "
            f"{', '.join(KEYS)}; at the top also seed)"
        )
    here = above.updated(table)
    groups = table.get("group", [])
    if not isinstance(groups, list) or not all(isinstance(g, dict) for g in groups):
        raise UsageError(f"group {name!r}: write [[group]], in two brackets each")
    if ("hosts" in table) == bool(groups):
        raise UsageError(
            f"group {name!r} must have either hosts = N or [[group]] tables below it"
        )
    children: tuple[GroupSpec | HostSpec, ...] = tuple(
        _group(dict(group), f"{name}.{number}", here)
        for number, group in enumerate(groups, start=1)
    )
    if not groups:
        host = HostSpec(here.nic_up, here.nic_down, here.slots)
        children = (host,) * number_of(table["hosts"], "hosts")
    rtt = parse_duration(str(table.get("rtt", "0")))
    return GroupSpec(name, children, here.uplink_up, here.uplink_down, rtt)
