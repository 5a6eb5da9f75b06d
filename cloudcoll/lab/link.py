"""One link of the lab: the names of its ends and what shapes it.

Every host and every group below the root has one link to the switch above. Its
lower end is ``eth0`` in the host or a port of the group's bridge, its upper end
a port of the bridge above; each end shapes what leaves through it:

    eth0 ======== p3 [bridge]                 a link without latency
    eth0 == x3 ~ wire ~ y3 == p3 [bridge]     and with, where netem is missing
    eth0 == g3 [v3] u3 ======== p3 [bridge]   a card without backpressure

The program ``wire`` carries packets between ``x3`` and ``y3`` and holds each
for the time asked. Queues that are measured in time are ``tbf``'s, at both ends;
all others are the wire's, so that they are the same with every kernel. What waits
at ``eth0`` is seen by the host's TCP, which then hands on little more; the bridge
``v3`` stands for a hypervisor, behind which it is not seen. All ends but ``eth0``
are in the namespace of the switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cloudcoll.lab.spec import PACKET, Shape

SWITCH = ""
"""Name of the namespace that holds every bridge: no host is called so."""
BURST = 128 * 1024
"""Bytes a token bucket lets through at once: at least one 64 KiB TCP segment
with its headers, or tbf would cut every segment into packets."""
FLOOR = 30e-6
"""Seconds that a wire needs to hand a packet on in time, also on a busy machine."""
SEGMENT = 64 * 1024
"""Bytes that TCP hands over as one packet, at most, unless a queue asks for less."""

WIRE = Path(__file__).with_name("wire")
"""Built from ``wire.c`` when the package is installed."""

SCRATCH = "/dev/shm"
"""Where each host has a file system of its own, in memory, gone with the lab."""

Backend = Literal["netem", "wire"]


@dataclass(frozen=True)
class Link:
    """The link of one host or group to the bridge above.

    Attributes
    ----------
    name : str
        The host or group below.
    number : int
        Unique; names the interfaces.
    namespace : str
        Where the lower end is: the host's, or `SWITCH`.
    bridge : str
        The bridge above.
    below : str
        The bridge below, empty for a host.
    up, down : float
        Rates in bytes/s, away from and towards what is below.
    delay : float
        Seconds added in each direction.
    shape : Shape
        How it holds packets back.
    host : bool
        Whether it is a host's card.
    floor : float
        Seconds added in each direction besides, so that a wire of `FLOOR`
        hands packets on in time.
    steps : str
        Of a card: by how many `FLOOR` what goes up to each host is held back, a
        digit each, in name order.
    """

    name: str
    number: int
    namespace: str
    bridge: str
    below: str
    up: float
    down: float
    delay: float
    shape: Shape
    host: bool
    floor: float = 0.0
    steps: str = ""

    @property
    def lower(self) -> str:
        """Interface at the lower end."""
        return f"u{self.number}" if self.below else "eth0"

    @property
    def port(self) -> str:
        """Interface at the upper end."""
        return f"p{self.number}"

    @property
    def wire_ends(self) -> tuple[str, str]:
        """Interfaces between which a wire stands, lower first."""
        return f"x{self.number}", f"y{self.number}"

    @property
    def card(self) -> str:
        """Interface of the hypervisor that leads to ``eth0``."""
        return f"g{self.number}"

    @property
    def shaped_by_wire(self) -> bool:
        """Return whether its queues are a wire's."""
        limited = math.isfinite(min(self.up, self.down))
        return limited and self.shape.queue.kind != "time"

    def wired(self, backend: Backend) -> bool:
        """Return whether a wire stands in it from the start."""
        delayed = self.floor > 0 or (backend == "wire" and self.delay > 0)
        return delayed or self.needs_wire

    @property
    def needs_wire(self) -> bool:
        """Return whether it does what no kernel does for us."""
        return self.shaped_by_wire or self.shape.jitter > 0


def wire_argv(link: Link, control: Path, seed: int) -> list[str]:
    """Return the command that carries packets between the wire ends of `link`."""
    # Every wire draws its own losses.
    return [
        *(str(WIRE), *link.wire_ends, str(control)),
        *(str(seed * 10_000 + link.number), *wire_settings(link)),
        *([f"{FLOOR * 1e9:.0f}:{link.steps}"] if link.steps else []),
    ]


def wire_settings(
    link: Link,
    up_loss: float = 0.0,
    down_loss: float = 0.0,
    rate: float = math.inf,
    late: float = 0.0,
) -> tuple[str, str]:
    """Return what a wire in `link` is given for its two directions, up first.

    Losses are shares of packets; neither direction exceeds `rate`, in bytes/s, if the
    wire shapes, and each is `late` by so many seconds.
    """
    delay = link.delay + link.floor + late
    times = round(delay * 1e9), round(link.shape.jitter * 1e9)
    queue = link.shape.queue

    def setting(name: str, own: float, loss: float) -> str:
        line = f"{name} {times[0]} {loss} {times[1]}"
        if not link.shaped_by_wire:
            return f"{line} 0 - 0"
        least = min(own, rate)
        limit = f"{least:.0f}" if math.isfinite(least) else "0"
        return f"{line} {limit} {queue.kind} {queue.size:.0f}"

    return setting("up", link.up, up_loss), setting("down", link.down, down_loss)


def largest_segment(links: Iterable[Link]) -> int:
    """Return how many bytes hosts may hand over as one packet.

    A quarter of the smallest queue: were it more than the queue holds, the lab
    would drop what real cards let through as many packets.
    """
    queues = [
        link.shape.queue.bytes(rate)
        for link in links
        for rate in (link.up, link.down)
        if math.isfinite(rate)
    ]
    return round(max(2 * PACKET, min([SEGMENT, *(q / 4 for q in queues)])))


def attach_lines(link: Link) -> tuple[str, ...]:
    """Return ``ip`` lines that attach the upper end of `link` to its bridge."""
    return (f"link set {link.port} master {link.bridge} up",)


def splice_lines(link: Link) -> tuple[str, ...]:
    """Return ``ip`` lines for the second half of a link with a wire in it."""
    lower, upper = link.wire_ends
    return (
        f"link add {link.port} type veth peer name {upper}",
        f"link set {lower} up",
        f"link set {upper} up",
        *attach_lines(link),
    )


def shaping_lines(
    link: Link,
    backend: Backend,
    segment: int,
    up_loss: float = 0.0,
    down_loss: float = 0.0,
    rate: float = math.inf,
    late: float = 0.0,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return ``tc`` lines for the lower end of `link` and for its upper end.

    `backend` delays and loses packets, shares of them, where no wire stands in it.
    Every queue takes `segment` bytes twice, at least: see `largest_segment`. Neither
    direction exceeds `rate`, in bytes/s, and each is `late` by so many seconds.
    """
    if link.shaped_by_wire:
        return (), ()
    by: Backend = "wire" if link.wired(backend) else backend

    def lines(device: str, own: float, loss: float) -> tuple[str, ...]:
        least = min(own, rate)
        limit = max(link.shape.queue.bytes(least), 2 * segment)
        return qdisc_lines(device, least, by, link.delay + late, loss, limit=limit)

    return lines(link.lower, link.up, up_loss), lines(link.port, link.down, down_loss)


def qdisc_lines(
    device: str,
    rate: float,
    backend: Backend,
    delay: float = 0.0,
    loss: float = 0.0,
    *,
    limit: float,
) -> tuple[str, ...]:
    """Return ``tc`` lines for what leaves through the interface `device`.

    With the backend ``wire``, `delay` (seconds) and `loss` (a share) are the wire's.
    At most `limit` bytes wait for the rate, in bytes/s. (tbf's own ``latency`` counts
    the bucket on top of it.)
    """
    lines = []
    parent = "root"
    if backend == "netem" and (delay or loss):
        # The outer qdisc delays and the inner shapes, so that the bytes that
        # may queue stay bounded by tbf and not by netem's count of packets.
        lines.append(
            f"qdisc add dev {device} root handle 1: netem limit 100000 "
            f"delay {delay * 1e6:.1f}us loss {loss * 100:.4f}%"
        )
        parent = "parent 1:1"
    if math.isfinite(rate):
        lines.append(
            f"qdisc add dev {device} {parent} handle 10: tbf rate "
            f"{rate * 8:.0f}bit burst {BURST} limit {limit:.0f}"
        )
    return tuple(lines)
