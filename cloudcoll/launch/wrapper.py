"""What each rank says of itself before its program starts: number and host.

Few launchers can be asked where they put their ranks without printing it among
the job's output. So a line of shell goes in front of the program: it sends one
datagram to the machine of the launcher and becomes the program, in the same
process, with its streams and variables untouched. Nobody waits for an answer:
a host without bash, a firewall or a lost packet leave the job as it is, and
its order unread.

Command lines can be read by every user of a host, environments by their own user
alone. So the secret that reports are sealed with is in a variable, which is gone
before the program starts.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shlex
import socket
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cloudcoll.files import state_dir
from cloudcoll.hosts.names import is_host_name
from cloudcoll.launch.seal import Seal, new_secret

if TYPE_CHECKING:
    from cloudcoll.hosts import Host
    from cloudcoll.launch.plan import LaunchRequest

SIOCGIFADDR = 0x8915
MOST_ADDRESSES = 4
LONGEST = 1024
"""Bytes of a datagram; one has a seal, a rank and a host name."""

MOST_RANKS = 1 << 20
"""More than any job has."""

MOST_AT_ONCE = 10_000
"""Datagrams that are read in one go, so that those of strangers keep nobody busy."""

ROOM = 1 << 22
"""Bytes of datagrams that may wait; a thousand ranks start at once."""

HOST = "/proc/sys/kernel/hostname"
"""What ``uname -n`` prints, without a process for it."""

OPEN_MPI = "OMPI_"
"""How names of variables begin that Open MPI hands on, whatever it is told of others
(mpirun(1)); so does every launcher that hands on what it finds."""

KEY = "CLOUDCOLL_KEY"
"""How the name ends of the variable that reports are sealed by."""

REPORT = re.compile(r"at (\d{1,7}) (\S+)")
"""What a rank says: its number and its host."""

SAY = (
    "[ ${#k} = 48 ] || exit; LC_ALL=C; read -r h <"
    + HOST
    + r"""
s="at $n $h" l=${#s} w=0 x=0 m=0xffffffff
((a = 16#${k:16:8} << 32 | 16#${k:24:8}, b = 16#${k:32:8} << 32 | 16#${k:40:8},
  c = a ^ 0x6c7967656e657261, d = b ^ 0x7465646279746573,
  a ^= 0x736f6d6570736575, b ^= 0x646f72616e646f6d))
r() { ((
  a += b, b = b << 13 | b >> 51 & 0x1fff, b ^= a, a = a << 32 | a >> 32 & m,
  c += d, d = d << 16 | d >> 48 & 0xffff, d ^= c,
  a += d, d = d << 21 | d >> 43 & 0x1fffff, d ^= a,
  c += b, b = b << 17 | b >> 47 & 0x1ffff, b ^= c, c = c << 32 | c >> 32 & m)); }
for ((i = 0; i <= (l | 7); i++)); do
  x=0; ((i < l)) && printf -v x %d "'${s:i:1}"
  ((w |= (i == (l | 7) ? l & 255 : x) << i % 8 * 8, i % 8 == 7)) || continue
  ((d ^= w)); r; r; ((a ^= w, w = 0))
done
((c ^= 255)); r; r; r; r
printf -v s '%s %016x %s' "${k:0:16}" $((a ^ b ^ c ^ d)) "$s"
for i in $to; do printf %s "$s" >"/dev/udp/$i/$p"; done"""
)
"""For bash, which alone of the shells has ``/dev/udp``: SipHash-2-4, see seal.py."""

NAME = "cloudcoll"
"""What the shell calls itself where a program can't be run."""

# -p: no start-up file that BASH_ENV names.
TELL = 'bash -pc "$1" </dev/null >/dev/null 2>&1; shift; '

# The last but one command finds a program in the working directory, where srun and
# Hydra look for it, too.
BECOME = 'command -v "$1" >/dev/null || set -- "./$@"; exec "$@"'


@dataclass(frozen=True)
class Inbox:
    """Where ranks are to report.

    Attributes
    ----------
    addresses : tuple of str
        IPv4 addresses of this machine.
    port : int
        UDP port.
    secret : str
        What this job's datagrams are sealed by: see `cloudcoll.launch.seal`.
    shell : tuple of str
        What runs a line of shell and hands all variables on: see `own_shell`.
    variable : str
        The variable that brings the secret to the ranks; empty if a file does.
    file : str
        Path of that file, which is there while the command runs. Without either no
        rank reports.
    """

    addresses: tuple[str, ...]
    port: int
    secret: str = field(repr=False)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    variable: str = OPEN_MPI + KEY
    file: str = ""

    def wrap(
        self, program: Sequence[str], rank: str, hidden: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Return a command that reports and becomes `program`.

        The launcher gives each rank its number in the variable `rank`; those in
        `hidden` were for the launcher and not for the program.
        """
        names = [*hidden, *([self.variable] if self.variable else [])]
        hide = f"unset {' '.join(names)}; " if names else ""
        # The shell's words begin with the name: they are all that a user sees of it.
        return (*self.shell, TELL + hide + BECOME, NAME, self.line(rank), *program)

    def line(self, rank: str) -> str:
        """Return the line of bash that reports; `rank` is as of `wrap`."""
        to = " ".join(self.addresses)
        key = f"k=${self.variable}"
        if not self.variable:
            key = f"read -r k <{shlex.quote(self.file)}"
        return f'{key}; n=${{{rank}}} p={self.port} to="{to}"; {SAY}'


class Mailbox:
    """What the ranks of one job have reported so far.

    Parameters
    ----------
    inbox : Inbox
        Its port is taken until `close`.
    ranks : int
        How many there are: others' numbers do not count.
    addresses : collection of str
        Hosts that the plan names by their addresses: what a report comes from is one
        of them, whatever that machine calls itself.

    Raises
    ------
    OSError
        The port is taken already.
    """

    def __init__(
        self,
        inbox: Inbox,
        ranks: int = MOST_RANKS,
        addresses: Collection[str] = (),
    ) -> None:
        self._seal = Seal(inbox.secret)
        self._ranks = ranks
        self._addresses = frozenset(addresses)
        self._seen: dict[int, str] = {}
        self._sockets = listening(inbox)

    def seen(self) -> dict[int, str]:
        """Return rank -> host of all that have reported.

        The first report of a rank counts: a copy of an older one changes nothing.
        """
        for own in self._sockets:
            for _ in range(MOST_AT_ONCE):
                try:
                    data, (address, _) = own.recvfrom(LONGEST)
                except BlockingIOError:
                    break
                found = REPORT.fullmatch(self._seal.open(data) or "")
                if not found or not is_host_name(found[2]):
                    continue
                if int(found[1]) < self._ranks:
                    host = address if address in self._addresses else found[2]
                    self._seen.setdefault(int(found[1]), host)
        return self._seen

    def close(self) -> None:
        """Give the port back."""
        for own in self._sockets:
            own.close()


def listening(inbox: Inbox) -> list[socket.socket]:
    """Return a socket for each address of an inbox, where others' drop at once.

    OSError where the port is taken already.
    """
    seal = Seal(inbox.secret)
    with contextlib.ExitStack() as opened:
        found = list[socket.socket]()
        for address in inbox.addresses:
            own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.enter_context(own)
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
            seal.guard(own)
            try:
                own.bind((address, inbox.port))
            except OSError as error:
                # An interface may have gone since it was told of.
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
            found.append(own)
        opened.pop_all()
    return found


def choose_inbox(request: LaunchRequest | None = None, key: str = KEY) -> Inbox:
    """Return an inbox at a port that is free now.

    The ranks of `request`, if that is known, are to reach it; the name of the variable
    with the secret ends in `key`.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    shell = own_shell(os.environ)
    if request is None:
        variable = OPEN_MPI + key
        return Inbox(own_addresses(), port, new_secret(), shell, variable)
    addresses = addresses_towards(request.hosts)
    if request.shows_variables:
        return Inbox(addresses, port, new_secret(), shell, "", _key_file())
    return Inbox(addresses, port, new_secret(), shell, request.prefix + key)


def _key_file() -> str:
    """Return a path in this user's own folder, which hosts often share, or none."""
    folder = state_dir()
    path = folder / f"run-{os.urandom(8).hex()}" / "key"
    return str(path) if os.access(folder, os.W_OK) else ""


def own_shell(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a shell that hands on what is in `env`.

    dash, which is Debian's sh, drops every variable whose name it could not
    assign to: the functions of ``module``, which bash exports. bash keeps them,
    but writes to stderr where a host lacks the locale: only for these. The path is
    for ranks that are handed no PATH to find a shell by.
    """
    assignable = all(name.isidentifier() and name.isascii() for name in env)
    return ("/bin/sh", "-c") if assignable else ("bash", "-pc")


def addresses_towards(hosts: Iterable[Host]) -> tuple[str, ...]:
    """Return our IPv4 addresses that these hosts reach us at.

    The loopback if all are this machine; where the list gives names, which only a
    name server can tell, those of all interfaces.
    """
    name = socket.gethostname()
    here = {name, name.partition(".")[0], "localhost"}
    found = dict[str, None]()
    for host in hosts:
        if host.name in here:
            continue
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
                # Nothing is sent: the kernel looks up its route, no name is.
                socket.inet_pton(socket.AF_INET, host.address)
                trial.connect((host.address, 9))
                own = str(trial.getsockname()[0])
        except OSError:
            return own_addresses()
        # To an address of its own a machine speaks from that address.
        if own != host.address:
            found[own] = None
    return tuple(found)[:MOST_ADDRESSES] or ("127.0.0.1",)


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
