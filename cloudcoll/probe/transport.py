"""What a transport is: a way to start a program on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cloudcoll.hosts import Host


class Transport(Protocol):
    """Starts a program on a host, with its stdin and stdout joined to ours.

    Attributes
    ----------
    name : str
        Key in `cloudcoll.probe.TRANSPORTS`.
    shares_cores : bool
        Whether all hosts live on this machine: few pairs can then be measured
        at the same time without measuring the machine's scheduler.
    """

    name: str
    shares_cores: bool

    def command(self, host: Host, argv: Sequence[str]) -> list[str]:
        """Return the local command line that runs `argv` on `host`."""
        ...

    def available(self) -> str | None:
        """Return None, or why this transport cannot work here."""
        ...
