"""Who may begin a TLS handshake: limits for each address, without any socket."""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What strangers and members may take of a listener.

    Attributes
    ----------
    strangers : int
        Connections that have not shown a certificate yet; a further one takes
        the oldest one's place, for a member shows its own at once.
    per_source : int
        Of these, from one address.
    burst : int
        Connections from one address in a moment.
    per_second : float
        And in the long run.
    pace_s : float
        Seconds between two handshakes begun: what floods of any number of
        addresses cost. Those that come faster wait in the kernel.
    life_s : float
        Seconds for a handshake and a greeting.
    members : int
        Connections that have shown their certificate.
    """

    strangers: int = 64
    per_source: int = 8
    burst: int = 16
    per_second: float = 1.0
    pace_s: float = 0.02
    life_s: float = 5.0
    members: int = 4


USUAL = Limits()
SOURCES = 4096
"""Addresses remembered."""


class Door:
    """Counts who knocks, by address; the clock is an argument.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inside: Counter[str] = Counter()
        # Address -> (connections left, when that was so), oldest use first.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admits(self, address: str, now: float) -> bool:
        """Return whether a connection from `address` may begin a handshake.

        If so it is a stranger until `forget`. `now` is in seconds, and grows.
        """
        source = source_of(address)
        left, since = self._left.pop(source, (float(self._limits.burst), now))
        left = min(self._limits.burst, left + (now - since) * self._limits.per_second)
        admitted = left >= 1 and self._inside[source] < self._limits.per_source
        self._left[source] = (left - admitted, now)
        if len(self._left) > SOURCES:
            self._left.popitem(last=False)
        self._inside[source] += admitted
        self._inside += Counter()  # drops what is zero
        return admitted

    def forget(self, address: str) -> None:
        """Note that a connection is no stranger any more."""
        self._inside.subtract((source_of(address),))
        self._inside += Counter()


def source_of(address: str) -> str:
    """Return what counts as one source: an IPv4 address, an IPv6 subnet."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.version == 6:
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)
