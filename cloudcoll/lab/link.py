"""One link of the lab: the names of its ends and what shapes it.

Every host and every group below the root has one link to the switch above. Its
lower end is ``eth0`` in the host or a port of the group's bridge, its upper end
a port of the bridge above; each end shapes what leaves through it:

    eth0 ======== p3 [bridge]                 a link without latency
    eth0 == x3 ~ wire ~ y3 == p3 [bridge]     and with, where netem is missing

The program ``wire`` carries packets between ``x3`` and ``y3`` and holds each
for the time asked. All ends but ``eth0`` are in the namespace of the switches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SWITCH = ""
"""Name of the namespace that holds every bridge: no host is called so."""
BURST = 128 * 1024
"""Bytes a token bucket lets through at once: at least one 64 KiB TCP segment
with its headers, or tbf would cut every segment into packets."""
QUEUE = 0.005
"""Seconds a packet may wait at a full link before it is dropped. Deep enough for
one TCP stream to fill the link; with 30 ms, acknowledgements wait so long behind
data the other way that one of two opposite flows gets a third of its rate."""

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
    """

    name: str
    number: int
    namespace: str
    bridge: str
    below: str
    up: float
    down: float
    delay: float

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

    def wired(self, backend: Backend) -> bool:
        """Return whether a wire stands in it from the start."""
        return backend == "wire" and self.delay > 0


def wire_argv(link: Link, control: Path, seed: int) -> list[str]:
    """Return the command that carries packets between the wire ends of `link`."""
    delay = str(round(link.delay * 1e9))
    # Every wire draws its own losses.
    return [
        *(str(WIRE), *link.wire_ends, str(control)),
        *(str(seed * 10_000 + link.number), delay, delay),
    ]


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


def qdisc_lines(
    device: str, rate: float, backend: Backend, delay: float = 0.0, loss: float = 0.0
) -> tuple[str, ...]:
    """Return ``tc`` lines for what leaves through `device`.

    Parameters
    ----------
    device : str
        Interface.
    rate : float
        Bytes/s.
    backend : str
        With ``wire``, `delay` and `loss` are the wire's job, not that of
        ``tc``.
    delay : float
        Seconds.
    loss : float
        Share of packets dropped, 0 to 1.
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
            f"{rate * 8:.0f}bit burst {BURST} latency {QUEUE * 1e3:.0f}ms"
        )
    return tuple(lines)
