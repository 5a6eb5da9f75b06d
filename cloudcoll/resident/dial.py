"""The driver's end of all connections to resident agents, in place of ssh.

One process for all hosts, and of the standard library alone. On stdin, a Unix
socket, it is handed each host's name, address and pipes, on which it takes what
``python3 -c BOOTSTRAP`` would on the host, then frames.
"""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import selectors
import socket
import ssl
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.plain import say
from cloudcoll.resident import greeting, read_answer, taken_over
from cloudcoll.resident.relay import Relay, Relays
from cloudcoll.tls import AGENT, Credentials, reason, require_role, watch

CONNECT_SECONDS = 5.0
"""For each step of getting through: connecting, the handshake, the greeting."""
ENDED = UnusableError("its agent has ended: its log says why")


def connect(
    context: ssl.SSLContext, name: str, address: tuple[str, int]
) -> ssl.SSLSocket:
    """Return a connection to the agent of the host `name`.

    OSError if nobody is there, or it is not the host of that name; UnusableError if its
    certificate is not an agent's.
    """
    # A connection that is cut must not look like one that has ended.
    conn = context.wrap_socket(
        socket.create_connection(address, CONNECT_SECONDS),
        server_hostname=name,
        do_handshake_on_connect=False,
        suppress_ragged_eofs=False,
    )
    try:
        conn.do_handshake()
        require_role(conn, {AGENT})
        watch(conn)
    except BaseException:
        conn.close()
        raise
    return conn


def read_program(stdin: int) -> bytes:
    """Return the program that a driver sends before all frames, if it has not gone."""
    # Unbuffered: what follows it is not ours to read.
    with open(stdin, "rb", buffering=0, closefd=False) as stream:
        left, pieces = int(stream.readline() or b"1"), []
        while left and (piece := stream.read(left)):
            pieces.append(piece)
            left -= len(piece)
    if left:
        raise UnusableError("its driver has gone")
    return b"".join(pieces)


@dataclass(frozen=True)
class HostCall:
    """A host as the driver handed it over, with our ends of its pipes."""

    name: str
    address: str
    stdin: int
    stdout: int
    stderr: int

    def hang_up(self, why: str) -> None:
        """Close the pipes after the driver has been told why."""
        with contextlib.suppress(BrokenPipeError):  # the driver has gone
            os.write(self.stderr, f"{why}\n".encode())
        for pipe in (self.stdin, self.stdout, self.stderr):
            os.close(pipe)


class Exchange:
    """Gets through to hosts, in a thread for each, and serves all in one."""

    def __init__(self, context: ssl.SSLContext, port: int) -> None:
        self._context, self._port = context, port
        self._through: queue.SimpleQueue[tuple[HostCall, ssl.SSLSocket]]
        self._through = queue.SimpleQueue()
        self._bell = os.eventfd(0)

    def run(self, control: socket.socket) -> None:
        """Serve the hosts that come over `control` until it and they have ended."""
        driven = True
        with Relays() as relays, selectors.DefaultSelector() as selector:
            for one in (control, self._bell, relays):
                selector.register(one, selectors.EVENT_READ)
            while driven or relays:
                for key, _ in selector.select():
                    if key.fileobj is relays:
                        relays.turn()
                    elif key.fileobj is not control:
                        self._join(relays)
                    elif not self._take(control):
                        selector.unregister(control)
                        driven = False

    def _take(self, control: socket.socket) -> bool:
        """Begin with the next host; return whether there was one."""
        taken = taken_over(control)
        if taken is None:
            return False
        (name, address), pipes = taken
        call = HostCall(name, address, *pipes)
        try:
            threading.Thread(target=self._reach, args=(call,), daemon=True).start()
        except RuntimeError as error:  # the system has no more threads for us
            call.hang_up(self._told(call, error))
        return True

    def _reach(self, call: HostCall) -> None:
        """Get through to a host; the driver lets few do so at a time."""
        try:
            said = greeting(read_program(call.stdin))
            address = call.address, self._port
            conn = connect(self._context, call.name, address)
            try:
                conn.sendall(said)
                read_answer(conn)
            except BaseException:
                conn.close()
                raise
        except (OSError, CloudcollError) as error:
            call.hang_up(self._told(call, error))
        else:
            self._through.put((call, conn))
            os.eventfd_write(self._bell, 1)

    def _join(self, relays: Relays) -> None:
        """Serve those that have got through since."""
        for _ in range(os.eventfd_read(self._bell)):
            call, conn = self._through.get()

            def end(
                error: OSError | None, call: HostCall = call, conn: ssl.SSLSocket = conn
            ) -> None:
                conn.close()
                call.hang_up(self._told(call, error or ENDED))

            relays.add(Relay(conn, call.stdin, call.stdout), end)

    def _told(self, call: HostCall, error: Exception) -> str:
        return f"{call.address}:{self._port}: {reason(error)}"


def main() -> int:
    """Take CERT KEY CA PORT; serve what comes over stdin."""
    cert, key, ca, port = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        context = Credentials(Path(cert), Path(key), Path(ca)).client()
    except CloudcollError as error:
        say(str(error))
        return 1
    with socket.socket(fileno=sys.stdin.fileno()) as control:
        Exchange(context, int(port)).run(control)
    # Threads that still try to get through have nobody to do it for.
    os._exit(0)
