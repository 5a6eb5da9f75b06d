"""Named characters of labs: queues, timeouts and neighbours that belong together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cloudcoll.errors import UsageError, known_names
from cloudcoll.lab.spec import (
    CODEL_LIMIT,
    GroupSpec,
    HostSpec,
    LabSpec,
    Queue,
    Shape,
    Surroundings,
    number_of,
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
    rto, congestion, hogs
        See `Surroundings`.
    rtt : float
        Seconds that a round trip between racks takes longer than within one.
    """

    why: str
    nic: Shape
    uplink: Shape
    rto: float | None = None
    congestion: str = "cubic"
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
        congestion="",
        rtt=500e-6,
    ),
}
"""What a lab may be like, by name. A queue of 10 ms holds so few packets at these
rates that ends of messages get lost, for which Linux waits 200 ms: hence the RTO of
``tuned``. With it, and with acknowledgements that do not wait long behind data the
other way, times of one job differ by a few per cent."""
DEFAULT = "cloud"


def find_preset(name: str) -> Preset:
    """Return the preset called `name`.

    Raises
    ------
    UsageError
        There is none.
    """
    if name not in PRESETS:
        raise UsageError(f"no preset {name!r} {known_names(name, PRESETS)}")
    return PRESETS[name]


def surroundings(name: str) -> Surroundings:
    """Return what the preset called `name` says about all hosts."""
    preset = find_preset(name)
    return Surroundings(name, preset.rto, preset.congestion, preset.hogs)


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
