"""What each rank says of itself before its program starts: number and host.

Few launchers can be asked where they put their ranks without printing it among
the job's output. So a line of shell goes in front of the program: it sends one
datagram to the machine of the launcher and becomes the program, in the same
process, with its streams and variables untouched. Nobody waits for an answer:
a host without bash, a firewall or a lost packet leave the job as it is, and
its order unread.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SIOCGIFADDR = 0x8915
MOST_ADDRESSES = 4
LONGEST = 1024
"""Bytes of a datagram; one has a token, a rank and a host name."""

HOST = "/proc/sys/kernel/hostname"
"""What ``uname -n`` prints, without a process for it."""

SAY = (
    f"read -r h <{HOST}; "
    'for a in {to}; do echo {token} ${{{rank}}} "$h" >/dev/udp/$a/{port}; done'
)
"""For bash, which alone of the shells has ``/dev/udp``."""

# -p: no start-up file that BASH_ENV names. The last but one command finds a
# program in the working directory, where srun and Hydra look for it, too.
BECOME = (
    'bash -pc "$0" </dev/null >/dev/null 2>&1; '
    'command -v "$1" >/dev/null || set -- "./$@"; exec "$@"'
)


@dataclass(frozen=True)
class Inbox:
    """Where ranks are to report.

    Attributes
    ----------
    addresses : tuple of str
        IPv4 addresses of this machine.
    port : int
        UDP port.
    token : str
        What tells this job's reports from others.
    shell : tuple of str
        What runs a line of shell and hands all variables on: see `own_shell`.
    """

    addresses: tuple[str, ...]
    port: int
    token: str
    shell: tuple[str, ...] = ("sh", "-c")

    def wrap(
        self, program: Sequence[str], rank: str, hidden: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return a command that reports and becomes `program`.

        Parameters
        ----------
        program : sequence of str
        rank : str
            The variable that the launcher gives each rank its number in.
        hidden : sequence of str
            Variables that were for the launcher and not for the program.
        """
        to = " ".join(self.addresses)
        say = SAY.format(to=to, token=self.token, rank=rank, port=self.port)
        hide = f"unset {' '.join(hidden)}; " if hidden else ""
        return (*self.shell, hide + BECOME, say, *program)


class Mailbox:
    """What the ranks of one job have reported so far.

    Parameters
    ----------
    inbox : Inbox
        Its port is taken until `close`.

    Raises
    ------
    OSError
        The port is taken already.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._token = inbox.token
        self._seen: dict[int, str] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(("", inbox.port))
        except OSError:
            self._socket.close()
            raise

    def seen(self) -> dict[int, str]:
        """Return rank -> host of all that have reported."""
        while True:
            try:
                data = self._socket.recv(LONGEST)
            except BlockingIOError:
                return self._seen
            words = data.decode("ascii", "replace").split()
            if len(words) == 3 and words[0] == self._token and words[1].isdecimal():
                self._seen[int(words[1])] = words[2]

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()


def choose_inbox() -> Inbox:
    """Return an inbox at a port that is free now, on all our networks."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    # Not by `secrets`, whose import takes longer than the rest of this.
    return Inbox(own_addresses(), port, os.urandom(8).hex(), own_shell(os.environ))


def own_shell(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a shell that hands on what is in `env`.

    dash, which is Debian's sh, drops every variable whose name it could not
    assign to: the functions of ``module``, which bash exports. bash keeps them,
    but writes to stderr where a host lacks the locale: only for these.
    """
    assignable = all(name.isidentifier() and name.isascii() for name in env)
    return ("sh", "-c") if assignable else ("bash", "-pc")


def own_addresses() -> tuple[str, ...]:
    """Return the IPv4 address of each interface, the loopback if there is none."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            request = struct.pack("40s", name.encode())
            try:
                answer = fcntl.ioctl(any_socket, SIOCGIFADDR, request)
            except OSError:
                continue  # it has none
            found.append(socket.inet_ntoa(answer[20:24]))
    others = [address for address in found if not address.startswith("127.")]
    return tuple(others[:MOST_ADDRESSES]) or ("127.0.0.1",)
