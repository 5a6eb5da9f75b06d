"""Hosts on which a resident agent listens, by mutual TLS: no ssh between them."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cloudcoll.agentfile import own_command
from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe.carrier import Carrier
from cloudcoll.probe.process import Start
from cloudcoll.probe.shell import Agented
from cloudcoll.probe.transport import Conduct


class Tls(Agented):
    """Agents started by ``cloudcoll agent --listen``, the same on all hosts.

    A host has to show a certificate for its name in the host list.

    Parameters
    ----------
    program : str
        ``--cert``, ``--key`` and ``--ca``, each with a file, and ``--port``.
    """

    name = "tls"
    options = Agented.options | {"cert", "key", "ca", "port"}

    def __init__(self, program: str = "") -> None:
        # What is meant for ssh, as in CLOUDCOLL_RSH, is passed over.
        words = shlex.split(program)
        given = dict(zip(words[::2], words[1::2], strict=False))
        self._files = [given.get(f"--{name}", "") for name in ("cert", "key", "ca")]
        self._port = given.get("--port", "")

    def dialler(self) -> list[str]:
        """Return the local command line of what holds the connections to all hosts."""
        from cloudcoll.tls import PORT

        python = own_command("cloudcoll.resident.dial", "-I", "-S")
        return [*python, *self._files, self._port or str(PORT)]

    @contextlib.contextmanager
    def starts(self, hosts: tuple[Host, ...]) -> Iterator[list[tuple[str, Start]]]:
        """Yield calls to the hosts, each of which runs its own copy of the agent."""
        with Carrier(self.dialler()) as carrier:
            yield [
                (host.name, partial(carrier.start, host.name, host.address))
                for host in hosts
            ]

    def available(self) -> str | None:
        """Return None, or what is wrong with our certificate."""
        from cloudcoll.tls import Credentials

        if not all(self._files):
            return "resident agents want to see a certificate: --cert, --key and --ca"
        try:
            Credentials(*map(Path, self._files)).client()
        except UsageError as error:
            return str(error)
        return None

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return where the first host's agent is expected."""
        port = self.dialler()[-1]
        return [f"resident agents, such as that of {hosts[0].name}, at port {port}"]
