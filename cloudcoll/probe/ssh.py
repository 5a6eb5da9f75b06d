"""Hosts reached with ssh, or with whatever takes its arguments."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence

from cloudcoll.errors import UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe.shell import Shell

# A probe asks no questions, and a host that is down says so soon.
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


class Ssh(Shell):
    """The system's ssh, with its own configuration, keys and known hosts.

    Parameters
    ----------
    program : str
        The program and any options of one's own, as in ``ssh -p 2222``.
    """

    name = "ssh"
    options = Shell.options | {"rsh"}

    def __init__(self, program: str = "") -> None:
        self._program = shlex.split(program) or ["ssh"]

    def command(self, host: Host, argv: Sequence[str]) -> list[str]:
        """Return the ssh command line that runs `argv` on `host`."""
        if host.address.startswith("-"):
            raise UsageError(f"host {host.name!r}: an address cannot begin with '-'")
        login = ["-l", host.user] if host.user else []
        # ssh joins its arguments with blanks for the remote shell.
        return [*self._program, *OPTIONS, *login, host.address, shlex.join(argv)]

    def available(self) -> str | None:
        """Return None, or that the program is not there."""
        if shutil.which(self._program[0]):
            return None
        return f"{self._program[0]} is not installed here (name another with --rsh)"
