"""The driver's end of a connection to a resident agent, in place of ssh.

A program of the standard library alone, so that hundreds of them start fast:
on stdin it takes what ``python3 -c BOOTSTRAP`` would on the host, then frames.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from pathlib import Path

from cloudcoll.errors import CloudcollError
from cloudcoll.resident.greeting import greeting, read_answer
from cloudcoll.resident.relay import relay
from cloudcoll.tls import AGENT, Credentials, require_role, watch
from cloudcoll.tls.words import reason

CONNECT_SECONDS = 5.0
"""For each step of getting through: connecting, the handshake, the greeting."""


def connect(
    credentials: Credentials, name: str, address: tuple[str, int]
) -> ssl.SSLSocket:
    """Return a connection to the agent of the host `name`.

    Raises
    ------
    OSError
        Nobody is there, or it is not the host of that name.
    UsageError
        The credentials are no good.
    UnusableError
        Its certificate is not an agent's.
    """
    context = credentials.client()
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
    """Return the program that a driver sends before all frames."""
    # Unbuffered: what follows it is not ours to read.
    with open(stdin, "rb", buffering=0, closefd=False) as stream:
        left, pieces = int(stream.readline()), []
        while left and (piece := stream.read(left)):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def main() -> int:
    """Take CERT KEY CA PORT NAME ADDRESS; join stdin and stdout to the agent."""
    cert, key, ca, port, name, address = sys.argv[1:]
    try:
        program = read_program(sys.stdin.fileno())
        credentials = Credentials(Path(cert), Path(key), Path(ca))
        with connect(credentials, name, (address, int(port))) as conn:
            conn.sendall(greeting(program))
            read_answer(conn)
            relay(conn, sys.stdin.fileno(), sys.stdout.fileno())
    except (OSError, CloudcollError) as error:
        print(f"{address}:{port}: {reason(error)}", file=sys.stderr)
        # The driver's end of our output may be gone: there is nothing to flush.
        os._exit(1)
    return 0
