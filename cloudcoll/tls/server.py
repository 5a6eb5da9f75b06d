"""A listener that strangers cannot exhaust, and members talk to by mutual TLS.

The main thread lets connections in, one thread each then shakes hands and
serves. Whatever a stranger does costs one thread for `Limits.life_s` at most; `Door`
counts them by address.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Set
from dataclasses import dataclass

from cloudcoll.errors import CloudcollError, UnusableError, UsageError
from cloudcoll.tls import Credentials, is_cut, reason, require_role, watch

REFUSED_PACE_S = 0.001
"""Between connections that are closed at once: a flood is not to cost a core,
nor to keep others waiting in the kernel behind it."""
PART_SECONDS = 1.0
"""How long who is refused may take to read why."""
END_SECONDS = 3.0
"""How long those who serve may take to end."""

Serve = Callable[[ssl.SSLSocket, str], None]


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
    """Counts who knocks, by address; the clock is an argument."""

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


class Server:
    """Serves members; as a context manager, none outlives it.

    Parameters
    ----------
    address : (str, int)
        Where to listen; port 0 takes a free one.
    roles : set of str
        A member's certificate has one of them.
    serve : callable
        Called in a thread with each member's connection, whose timeout is
        `Limits.life_s`, and its name. It may raise OSError and
        `CloudcollError`; the connection is closed for it.
    say : callable
        Called with one line about each connection that failed.
    farewell : callable
        Makes what a client is told that has shown a certificate but is refused:
        bytes from a line.

    Raises
    ------
    UsageError
        The address is taken or none of ours, or the credentials are no good.
    """

    def __init__(
        self,
        address: tuple[str, int],
        credentials: Credentials,
        roles: Set[str],
        serve: Serve,
        say: Callable[[str], None],
        farewell: Callable[[str], bytes],
        limits: Limits = USUAL,
    ) -> None:
        self._context = credentials.server()
        self._roles = roles
        self._serve = serve
        self._say = say
        self._farewell = farewell
        self._limits = limits
        self._door = Door(limits)
        self._lock = threading.Lock()
        self._strangers: dict[ssl.SSLSocket, str] = {}  # oldest first
        self._members: set[ssl.SSLSocket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._listener = _bind(*address)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """Close every connection and wait for those who serve them."""
        self._closed = True
        self._listener.close()
        with self._lock:
            for conn in (*self._strangers, *self._members):
                cut(conn)
            threads = tuple(self._threads)
        deadline = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Let connections in until an exception, such as a signal's, or `stop`."""
        while not self._closed:
            try:
                conn, (source, *_) = self._listener.accept()
                with self._lock:
                    admitted = self._door.admits(source, time.monotonic())
                if not admitted:
                    conn.close()
                    time.sleep(REFUSED_PACE_S)
                    continue
                self._begin(conn, source)
            except (OSError, RuntimeError) as error:
                # It went away before we came to it, or the system has no more
                # descriptors or threads for us.
                if not self._closed:
                    self._say(f"a connection was lost: {reason(error)}")
            time.sleep(self._limits.pace_s)

    def _begin(self, raw: socket.socket, source: str) -> None:
        """Start a thread for a stranger; if there are too many, the oldest goes."""
        raw.settimeout(self._limits.life_s)
        try:
            conn = self._context.wrap_socket(
                raw,
                server_side=True,
                do_handshake_on_connect=False,
                suppress_ragged_eofs=False,
            )
        except OSError:
            with self._lock:
                self._door.forget(source)
            raise
        with self._lock:
            if len(self._strangers) >= self._limits.strangers:
                oldest = next(iter(self._strangers))
                self._forget(oldest)
                cut(oldest)
            self._strangers[conn] = source
        threading.Thread(target=self._meet, args=(conn, source), daemon=True).start()

    def _meet(self, conn: ssl.SSLSocket, source: str) -> None:
        """Shake hands and serve, in a thread of its own."""
        with self._lock:
            self._threads.add(threading.current_thread())
        with conn:
            try:
                conn.do_handshake()  # the timeout is that of all of it
                name = require_role(conn, self._roles)
                watch(conn)
                self._welcome(conn)
                self._serve(conn, name)
            except (OSError, CloudcollError) as error:
                # Checks of a port come and go without a word: no line for each.
                mute = conn in self._strangers and is_cut(error)
                if not self._closed and not mute:
                    self._say(f"{source}: {reason(error)}")
                self._part(conn, error)
            finally:
                with self._lock:
                    self._forget(conn)
                    self._members.discard(conn)
                    self._threads.discard(threading.current_thread())

    def _part(self, conn: ssl.SSLSocket, error: Exception) -> None:
        """Tell why, and let it be read: a close with data unread would undo that."""
        deadline = time.monotonic() + PART_SECONDS
        with contextlib.suppress(OSError):  # it may be gone
            conn.settimeout(PART_SECONDS)
            if isinstance(error, CloudcollError):
                conn.sendall(self._farewell(str(error)))
            socket.socket.shutdown(conn, socket.SHUT_WR)
            while socket.socket.recv(conn, 1 << 16) and time.monotonic() < deadline:
                pass

    def _welcome(self, conn: ssl.SSLSocket) -> None:
        """Make a stranger a member."""
        with self._lock:
            if len(self._members) >= self._limits.members:
                raise UnusableError(f"{len(self._members)} others are here already")
            self._forget(conn)
            self._members.add(conn)

    def _forget(self, conn: ssl.SSLSocket) -> None:
        """Let the next stranger have the place of `conn`, if it still has one."""
        if source := self._strangers.pop(conn, ""):
            self._door.forget(source)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error} "
            "(another --listen HOST:PORT, with an address of this host and a free port)"
        ) from None


def cut(conn: socket.socket) -> None:
    """Wake whoever reads or writes: they find that it has ended."""
    with contextlib.suppress(OSError):  # it had ended by itself
        # Not SSLSocket's own: it would take TLS off under its thread's feet.
        socket.socket.shutdown(conn, socket.SHUT_RDWR)
