"""What an emulated data centre looks like: a tree of groups with hosts as leaves.

Rates are bytes/s (``math.inf``: not limited), times are seconds.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cloudcoll.errors import UsageError

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
        for number, size in enumerate((number_of(n, "hosts") for n in racks), start=1)
    )
    return LabSpec(GroupSpec("root", groups, rtt=rtt), seed)


def number_of(value: object, key: str) -> int:
    """Return a number of hosts, or of ranks on one, that a lab can have.

    Raises
    ------
    UsageError
        It is none; the message calls it `key`.
    """
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
