"""Hosts with an agent each: by ssh, in the lab, on loopback addresses, or by TLS."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shlex
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudcoll.errors import UsageError
from cloudcoll.files import lab_origin
from cloudcoll.hosts import Host
from cloudcoll.infer import groups_found
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.probe.agents import Start
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.runner import run_probe
from cloudcoll.probe.transport import Conduct, Transport
from cloudcoll.programs import AGENT_ARGV, own_command
from cloudcoll.resident import Carrier

if TYPE_CHECKING:
    from cloudcoll.tls import Credentials


class Agented(Transport):
    """A transport that starts an agent on each host: what `run_probe` needs."""

    options = frozenset({"force", "resume"})

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Transport:
        """Return the transport that the values of `options` name."""
        del given
        return cls()

    @abstractmethod
    def starts(
        self, hosts: tuple[Host, ...]
    ) -> AbstractContextManager[list[tuple[str, Start]]]:
        """Return how agents are started: see `RemoteShell`."""

    def plan(
        self, hosts: tuple[Host, ...], mode: str, seed: int, cores: int | None
    ) -> ProbePlan:
        """Return the plan, with no more pairs at once than `cores`."""
        return plan_probes(hosts, mode=mode, seed=seed, concurrency=cores)

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Measure as `run_probe` does, uplinks of the groups found included."""
        infer = conduct.infer or groups_found
        return run_probe(hosts, plan, self, conduct, infer=infer)


class Shell(Agented):
    """A transport that runs any program on a host, by a local command."""

    @abstractmethod
    def command(self, host: Host, argv: Sequence[str]) -> list[str]:
        """Return the local command line that runs `argv` on `host`."""

    @contextlib.contextmanager
    def starts(self, hosts: tuple[Host, ...]) -> Iterator[list[tuple[str, Start]]]:
        """Yield one local process for each host."""
        yield [
            (host.name, partial(_joined, self.command(host, AGENT_ARGV)))
            for host in hosts
        ]

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return how the first host's agent would be started."""
        words = self.command(hosts[0], ["python3", "..."])
        return [f"started by: {shlex.join(words)}"]


def _joined(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command, with pipes to it."""
    # Its own session: Ctrl-C is for us, who then end it in order.
    return subprocess.Popen(
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


# A probe asks no questions, and a host that is down says so soon.
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5")


class Ssh(Shell):
    """The system's ssh, with its own configuration, keys and known hosts.

    The program may have options of one's own, as in ``ssh -p 2222``.
    """

    name = "ssh"
    options = Shell.options | {"rsh"}

    def __init__(self, program: str = "ssh") -> None:
        self._program = shlex.split(program)

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Transport:
        """Return the one of ``--rsh``, or of ``CLOUDCOLL_RSH``."""
        return cls(given.get("rsh") or os.environ.get("CLOUDCOLL_RSH") or "ssh")

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


class LabShell(Ssh):
    """The ``bin/ssh`` of a running lab, which enters a host's namespaces.

    What is measured goes to the lab's folder; that in which we are by default.
    """

    name = "lab"
    options = Ssh.options | {"lab"}
    shares_cores = True

    def __init__(self, program: str, lab: Path | None = None) -> None:
        super().__init__(program)
        self.lab = lab

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Transport:
        """Return the one of ``--rsh`` and the folder of a lab."""
        return cls(given["rsh"], given["lab"])

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Measure, and say of which lab it was."""
        found = super().measure(hosts, plan, conduct)
        return replace(found, metadata={**found.metadata, **lab_origin(self.lab)})


class Local(Shell):
    """One process a host, each at the host's loopback address."""

    name = "local"
    shares_cores = True

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


class Tls(Agented):
    """Agents started by ``cloudcoll agent --listen``, the same on all hosts.

    A host has to show a certificate for its name in the host list. Nothing can be
    measured without credentials of ours; agents listen at `cloudcoll.tls.PORT`, if not
    at `port`.
    """

    name = "tls"
    options = Agented.options | {"cert", "key", "ca", "port"}

    def __init__(
        self, credentials: Credentials | None = None, port: int | None = None
    ) -> None:
        self._credentials, self._port = credentials, port

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Transport:
        """Return the one of ``--cert``, ``--key``, ``--ca`` and ``--port``."""
        from cloudcoll.tls import Credentials

        files = [given.get(name) for name in ("cert", "key", "ca")]
        ours = Credentials(*map(Path, map(str, files))) if all(files) else None
        return cls(ours, given.get("port"))

    def dialler(self) -> list[str]:
        """Return the command line of the process that holds all connections."""
        from cloudcoll.tls import PORT

        ours = self._credentials
        files = [ours.cert, ours.key, ours.ca] if ours else ["", "", ""]
        python = own_command("cloudcoll.resident.dial", "-I", "-S")
        return [*python, *map(str, files), str(self._port or PORT)]

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
        if not self._credentials:
            return "resident agents want to see a certificate: --cert, --key and --ca"
        try:
            self._credentials.client()
        except UsageError as error:
            return str(error)
        return None

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return where the first host's agent is expected."""
        port = self.dialler()[-1]
        return [f"resident agents, such as that of {hosts[0].name}, at port {port}"]
