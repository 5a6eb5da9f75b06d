"""Hosts that are loopback addresses of this machine: to try things out."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe.shell import Shell


class Local(Shell):
    """One process a host, each at the host's loopback address.

    Parameters
    ----------
    program : str
        Not used; all transports are made in the same way.
    """

    name = "local"
    shares_cores = True

    def __init__(self, program: str = "") -> None:
        del program

    def command(self, host: Host, argv: Sequence[str]) -> list[str]:
        """Return `argv`; UsageError if `host` is not at a loopback address."""
        try:
            loopback = ipaddress.ip_address(host.address).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise UsageError(
                f"host {host.name!r} at {host.address} is not on this machine: "
                "--via local takes 127.0.0.1, 127.0.0.2, ..."
            )
        return list(argv)

    def available(self) -> str | None:
        """Return None: there is nothing that could be missing."""
        return None
