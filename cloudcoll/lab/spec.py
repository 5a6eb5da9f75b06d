"""What an emulated data centre looks like: a tree of groups with hosts as leaves.

`PRESETS` are named characters of labs: queues, timeouts and neighbours that belong
together.

Rates are bytes/s (``math.inf``: not limited), times are seconds.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cloudcoll.errors import UsageError, known_names

MAX_HOSTS = 1000
"""A Linux bridge takes 1023 ports; the tree gives every host one."""


QueueKind = Literal["time", "packets", "codel", "policer"]


@dataclass(frozen=True)
class Queue:
    """What happens to packets that come faster than a link carries them.

    Attributes
    ----------
    kind : str
        ``time``: they wait, in order, as long as that takes at most `size`
        seconds. ``packets``: at most `size` of them wait. ``codel``: at most
        `size` wait, and they are dropped as RFC 8289 says, to keep the wait near
        5 ms. ``policer``: none waits; a token bucket of `size` bytes passes them
        on at once or drops them.
    size : float
        In the unit that `kind` has.
    """

    kind: QueueKind = "time"
    size: float = 0.05

    def bytes(self, rate: float) -> float:
        """Return about how much it holds, at a rate in bytes/s.

        Of CoDel, what it lets stand.
        """
        if self.kind == "time":
            return self.size * rate
        if self.kind == "packets":
            return self.size * PACKET
        return CODEL_TARGET * rate if self.kind == "codel" else self.size


PACKET = 1514
"""Bytes of a full Ethernet frame."""
CODEL_TARGET = 0.005
"""Seconds that CoDel lets packets wait for long: TARGET of RFC 8289, section 4.4."""
CODEL_LIMIT = 1000
"""Packets that Linux's CoDel holds at most, if not told else (tc-codel(8))."""


@dataclass(frozen=True)
class Shape:
    """How a link holds packets back.

    Attributes
    ----------
    queue : Queue
        In front of each of its two directions.
    jitter : float
        Seconds: each packet is up to so much later than the last, at random,
        in each direction, and none overtakes another.
    backpressure : bool
        Of a card: whether the sender's own kernel holds what waits, and so TCP
        hands it no more than about a millisecond of each connection (its small
        queues), as in front of a real card. Otherwise packets wait where the
        sender does not see them, as in a hypervisor.
    """

    queue: Queue = Queue()
    jitter: float = 0.0
    backpressure: bool = False


USUAL = Shape()


@dataclass(frozen=True)
class HostSpec:
    """One host and its network card.

    Attributes
    ----------
    up, down : float
        Rate of the card in bytes/s, away from and towards the host.
    slots : int
        Ranks it takes.
    shape : Shape
        Of the card.
    """

    up: float = math.inf
    down: float = math.inf
    slots: int = 1
    shape: Shape = USUAL


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
    shape : Shape
        Of the link to the switch above.
    """

    name: str
    children: tuple[GroupSpec | HostSpec, ...]
    up: float = math.inf
    down: float = math.inf
    rtt: float = 0.0
    shape: Shape = USUAL

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
class CrossTraffic:
    """What somebody else sends through the lab for as long as it is up.

    Between two hosts that are not in the hostfile, with cards of no limit, so
    that it loads the switches' links and no card.

    Attributes
    ----------
    source, destination : str
        Groups in which the two stand.
    rate : float
        Bytes/s that one TCP connection aims at.
    """

    source: str
    destination: str
    rate: float


@dataclass(frozen=True)
class Surroundings:
    """Settings that all hosts of a lab share.

    Attributes
    ----------
    preset : str
        Name of the preset it was made from, empty for none.
    rto : float or None
        Seconds that TCP waits for a lost end of a message, at least; None for
        what the kernel takes (200 ms).
    congestion : str
        TCP's congestion control; empty for what this machine's kernel takes.
    hogs : int
        Hosts on which a process computes all the time.
    traffic : tuple of CrossTraffic
        Cross traffic.
    """

    preset: str = ""
    rto: float | None = None
    congestion: str = ""
    hogs: int = 0
    traffic: tuple[CrossTraffic, ...] = ()


@dataclass(frozen=True)
class LabSpec:
    """A whole lab.

    Attributes
    ----------
    root : GroupSpec
        The tree.
    seed : int
        Decides which host name stands where, on which hosts hogs are, and which
        packets a lossy link drops.
    """

    root: GroupSpec
    seed: int = 0
    surroundings: Surroundings = Surroundings()

    def __post_init__(self) -> None:
        _check(self.root)
        _check_surroundings(self)

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

    def hogged(self) -> tuple[str, ...]:
        """Return the names of the hosts with a hog."""
        names = sorted(self.placed_names())
        return tuple(random.Random(self.seed).sample(names, self.surroundings.hogs))


def number_of(value: object, key: str) -> int:
    """Return a number of hosts, or of ranks on one, that a lab can have."""
    if type(value) is not int or not 1 <= value <= MAX_HOSTS:
        raise UsageError(f"{key} = {value!r} is not a whole number, 1 to {MAX_HOSTS}")
    return value


def _check(root: GroupSpec) -> None:
    names = [group.name for group in root.groups()]
    for name in names:
        # It names a file and must not be mistaken for a host.
        if not re.fullmatch(r"(?!vm-|tenant-|head$)[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(
                f"{name!r} is not a group's name; use letters, digits, '.', '_' and "
                "'-', and leave vm-..., tenant-... and head to the hosts"
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


def _check_surroundings(spec: LabSpec) -> None:
    around = spec.surroundings
    count = sum(1 for _ in spec.root.hosts())
    if not 0 <= around.hogs <= count:
        raise UsageError(f"{around.hogs} hogs asked for; this lab has {count} hosts")
    names = [group.name for group in spec.root.groups()]
    for traffic in around.traffic:
        for name in (traffic.source, traffic.destination):
            if name not in names:
                raise UsageError(
                    f"no group {name!r} for cross traffic (groups: {', '.join(names)})"
                )


@dataclass(frozen=True)
class Preset:
    """A character.

    Attributes
    ----------
    why : str
        Where networks are like that.
    nic, uplink : Shape
        Of every card, and of every group's link to the switch above.
    rto, hogs
        See `Surroundings`.
    rtt : float
        Seconds that a round trip between racks takes longer than within one.
    """

    why: str
    nic: Shape
    uplink: Shape
    rto: float | None = None
    hogs: int = 0
    rtt: float = 0.0


def _alike(why: str, queue: Queue, hogs: int = 0) -> Preset:
    return Preset(why, Shape(queue), Shape(queue), hogs=hogs)


PRESETS = {
    "cloud": _alike("hypervisors' shapers often hold 50 ms", Queue("time", 0.05)),
    "deep": _alike("shapers of small instances hold up to 200 ms", Queue("time", 0.2)),
    "shallow": _alike("shapers with byte limits hold 5 ms", Queue("time", 0.005)),
    "packets": _alike(
        "a virtual card's ring, or a switch's port", Queue("packets", 64)
    ),
    "codel": _alike(
        "hypervisors that manage queues (RFC 8289)", Queue("codel", CODEL_LIMIT)
    ),
    "policed": _alike(
        "allowances that drop and never delay", Queue("policer", 256 * 1024)
    ),
    "crowded": _alike(
        "hosts that share cores with others", Queue("time", 0.05), hogs=2
    ),
    "switched": Preset(
        "own machines: full cards hold senders back, switches hold 2 ms",
        Shape(Queue("time", 0.002), backpressure=True),
        Shape(Queue("time", 0.002)),
    ),
    "tuned": Preset(
        "none: what probes found easiest, for tests of everything else",
        Shape(Queue("time", 0.01), backpressure=True),
        Shape(Queue("time", 0.01)),
        rto=0.005,
        rtt=500e-6,
    ),
}
"""What a lab may be like, by name. A queue of 10 ms holds so few packets at these
rates that ends of messages get lost, for which Linux waits 200 ms: hence the RTO of
``tuned``. With it, and with acknowledgements that do not wait long behind data the
other way, times of one job differ by a few per cent."""
CONGESTION = "cubic"
"""TCP's congestion control in all of them: Linux's own, whatever this machine was told.
Under BBR each flow all but stops for 200 ms every 10 s (PROBE_RTT), and of a job with
many of them the times double and halve."""
DEFAULT = "cloud"


def find_preset(name: str) -> Preset:
    """Return the preset called `name`; UsageError if there is none."""
    if name not in PRESETS:
        raise UsageError(f"no preset {name!r} {known_names(name, PRESETS)}")
    return PRESETS[name]


def surroundings(name: str) -> Surroundings:
    """Return what the preset called `name` says about all hosts."""
    preset = find_preset(name)
    return Surroundings(name, preset.rto, CONGESTION, preset.hogs)


def quick(
    racks: Sequence[int] | Sequence[Sequence[int]],
    nic: float = math.inf,
    uplink: float = math.inf,
    rtt: float = 0.0,
    rack_rtt: float = 0.0,
    slots: int = 1,
    seed: int = 0,
    *,
    preset: str = DEFAULT,
    pod_uplink: float = math.inf,
    pod_rtt: float | None = None,
) -> LabSpec:
    """Return a lab of racks under one switch, or under the switches of pods.

    Parameters
    ----------
    racks : sequence of int, or of sequences of int
        Hosts in each rack; or for each pod, those in each of its racks.
    nic, uplink : float
        Rate of every network card and of every rack's link up, bytes/s.
    rtt, rack_rtt : float
        Round trip between racks (with pods: between pods) and within one,
        seconds.
    slots, seed : int
        Ranks per host, and see `LabSpec`.
    preset : str
        Key of `PRESETS`, of which `rtt` is not taken.
    pod_uplink : float
        Rate of every pod's link up, bytes/s.
    pod_rtt : float, optional
        Round trip between the racks of a pod, seconds; `rack_rtt` if not given.

    Raises
    ------
    UsageError
        A rack without hosts, more hosts than a lab has, or no such preset.
    """
    shapes = find_preset(preset)
    host = HostSpec(nic, nic, slots, shapes.nic)
    numbers = iter(range(1, sum(1 for _ in _flat(racks)) + 1))

    def rack(size: object) -> GroupSpec:
        below = (host,) * number_of(size, "hosts")
        name = f"rack-{next(numbers)}"
        return GroupSpec(name, below, uplink, uplink, rack_rtt, shapes.uplink)

    def pod(number: int, sizes: Sequence[object]) -> GroupSpec:
        below = tuple(rack(size) for size in sizes)
        between = rack_rtt if pod_rtt is None else pod_rtt
        ends = (pod_uplink, pod_uplink)
        return GroupSpec(f"pod-{number}", below, *ends, between, shapes.uplink)

    groups = tuple(
        pod(number, part) if isinstance(part, Sequence) else rack(part)
        for number, part in enumerate(racks, start=1)
    )
    root = GroupSpec("root", groups, rtt=rtt, shape=shapes.uplink)
    return LabSpec(root, seed, surroundings(preset))


def _flat(racks: Sequence[object]) -> list[object]:
    parts = (part if isinstance(part, Sequence) else (part,) for part in racks)
    return [size for part in parts for size in part]


def reshaped(
    spec: LabSpec, nic: Shape | None = None, uplink: Shape | None = None
) -> LabSpec:
    """Return `spec` with other shapes of all cards, or of all groups' links."""

    def below(group: GroupSpec) -> GroupSpec:
        children = tuple(
            below(child)
            if isinstance(child, GroupSpec)
            else replace(child, shape=nic or child.shape)
            for child in group.children
        )
        return replace(group, children=children, shape=uplink or group.shape)

    return replace(spec, root=below(spec.root))
