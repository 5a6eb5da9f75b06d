"""What both ends say before frames: that they mean the same program.

The driver sends `greeting`, of a fixed length, the listener answers a line:
`WELCOME`, or why not. A driver cannot have a host run a program of its own: it
names the one that it expects, and the host runs its copy.
"""

from __future__ import annotations

import hashlib
import socket
import time

from cloudcoll.errors import UnusableError

HEAD = b"cloudcoll-driver 1 "
WELCOME = "welcome"
ANSWER_LIMIT = 256
LENGTH = len(HEAD) + 64 + 1


def answer(words: str = WELCOME) -> bytes:
    """Return what a listener says: that it is ready, or why not."""
    return words[: ANSWER_LIMIT - 1].encode("ascii", "replace") + b"\n"


def greeting(program: bytes) -> bytes:
    """Return what the driver of a program says, `LENGTH` bytes."""
    return HEAD + hashlib.sha256(program).hexdigest().encode() + b"\n"


def check_greeting(said: bytes, program: bytes) -> None:
    """Return if a driver means `program`.

    Raises
    ------
    UnusableError
        It does not.
    """
    if not said.startswith(HEAD):
        raise UnusableError("that is not a driver's greeting")
    if said != greeting(program):
        raise UnusableError(
            "driver and agent are of different versions: install the same on all hosts"
        )


def read_greeting(conn: socket.socket, seconds: float) -> bytes:
    """Return what a driver says, at most `LENGTH` bytes.

    Raises
    ------
    TimeoutError
        It is not complete after `seconds`, however it trickles in.
    """
    said = b""
    deadline = time.monotonic() + seconds
    while len(said) < LENGTH:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        conn.settimeout(left)
        data = conn.recv(LENGTH - len(said))
        if not data:
            break
        said += data
    return said


def read_answer(conn: socket.socket) -> None:
    """Read the listener's line; the connection has a timeout of its own.

    Raises
    ------
    UnusableError
        It is no welcome; the message is what it says.
    """
    line = b""
    # Byte by byte: what follows the line is not ours to read.
    while not line.endswith(b"\n") and len(line) < ANSWER_LIMIT:
        data = conn.recv(1)
        if not data:
            break
        line += data
    said = "".join(c for c in line.decode("ascii", "replace") if c.isprintable())
    if said != WELCOME:
        raise UnusableError(said or "closed the connection: its log says why")
