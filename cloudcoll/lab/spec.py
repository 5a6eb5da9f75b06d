"""What an emulated data centre looks like: a tree of groups with hosts as leaves.

Rates are bytes/s (``math.inf``: not limited), times are seconds. Text such as
``400mbit`` or ``200us`` is read here, at the edge, and nowhere else.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloudcoll.errors import UsageError

RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}
DURATIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
MAX_HOSTS = 1000
"""A Linux bridge takes 1023 ports; the tree gives every host one."""


@dataclass(frozen=True)
class HostSpec:
    """One host and its network card.

    Attributes
    ----------
    up, down : float
        Rate of the card in bytes/s, away from and towards the host.
    slots : int
        Ranks it takes.
    """

    up: float = math.inf
    down: float = math.inf
    slots: int = 1


@dataclass(frozen=True)
class GroupSpec:
    """A switch and what hangs below it: a rack, a pod, or the whole lab.

    Attributes
    ----------
    name : str
        Unique in the lab.
    children : tuple of GroupSpec or HostSpec
        What is attached, in order.
    up, down : float
        Rate in bytes/s of the link to the switch above.
    rtt : float
        Round trip in seconds between hosts under different children.
    """

    name: str
    children: tuple[GroupSpec | HostSpec, ...]
    up: float = math.inf
    down: float = math.inf
    rtt: float = 0.0

    def hosts(self) -> Iterator[HostSpec]:
        """Yield the hosts below, in tree order."""
        for child in self.children:
            if isinstance(child, HostSpec):
                yield child
            else:
                yield from child.hosts()

    def groups(self) -> Iterator[GroupSpec]:
        """Yield this group and every group below, in tree order."""
        yield self
        for child in self.children:
            if isinstance(child, GroupSpec):
                yield from child.groups()


@dataclass(frozen=True)
class LabSpec:
    """A whole lab.

    Attributes
    ----------
    root : GroupSpec
        The tree.
    seed : int
        Decides which host name stands where, and which packets a lossy
        link drops.
    """

    root: GroupSpec
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self.root)

    def placed_names(self) -> tuple[str, ...]:
        """Return the host names in tree order.

        Numbers are dealt over the places by `seed`: the order of names says
        nothing about racks, as in a provider's list.
        """
        count = sum(1 for _ in self.root.hosts())
        width = max(2, len(str(count)))
        names = [f"vm-{number:0{width}}" for number in range(1, count + 1)]
        random.Random(self.seed).shuffle(names)
        return tuple(names)


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


def quick(
    racks: tuple[int, ...],
    nic: float = math.inf,
    uplink: float = math.inf,
    rtt: float = 0.0,
    rack_rtt: float = 0.0,
    slots: int = 1,
    seed: int = 0,
) -> LabSpec:
    """Return a lab of racks under one switch.

    Parameters
    ----------
    racks : tuple of int
        Hosts in each rack.
    nic, uplink : float
        Rate of every network card and of every rack's link up, bytes/s.
    rtt, rack_rtt : float
        Round trip between racks and within one, seconds.
    slots, seed : int
        Ranks per host, and see `LabSpec`.

    Raises
    ------
    UsageError
        A rack without hosts, or more hosts than a lab has.
    """
    host = HostSpec(nic, nic, slots)
    groups = tuple(
        GroupSpec(f"rack-{number}", (host,) * size, uplink, uplink, rack_rtt)
        for number, size in enumerate((_count(n, "hosts") for n in racks), start=1)
    )
    return LabSpec(GroupSpec("root", groups, rtt=rtt), seed)


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
            changes["slots"] = _count(table.pop("slots"), "slots")
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
        children = (host,) * _count(table["hosts"], "hosts")
    rtt = parse_duration(str(table.get("rtt", "0")))
    return GroupSpec(name, children, here.uplink_up, here.uplink_down, rtt)


def _count(value: object, key: str) -> int:
    if type(value) is not int or not 1 <= value <= MAX_HOSTS:
        raise UsageError(f"{key} = {value!r} is not a whole number, 1 to {MAX_HOSTS}")
    return value


def _check(root: GroupSpec) -> None:
    names = [group.name for group in root.groups()]
    for name in names:
        # It names a file and must not be mistaken for a host.
        if not re.fullmatch(r"(?!vm-|head$)[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(
                f"{name!r} is not a group's name; use letters, digits, '.', '_' and "
                "'-', and leave vm-... and head to the hosts"
            )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"two groups are named {twice[0]!r}; give each its own name")
    count = sum(1 for _ in root.hosts())
    if not 1 <= count <= MAX_HOSTS:
        raise UsageError(f"{count} hosts asked for; a lab has 1 to {MAX_HOSTS}")
    for group in root.groups():
        for child in group.children:
            if isinstance(child, GroupSpec) and child.rtt > group.rtt:
                raise UsageError(
                    f"group {child.name!r} has a longer rtt than {group.name!r} "
                    "above it; an rtt grows, or stays, towards the root"
                )
