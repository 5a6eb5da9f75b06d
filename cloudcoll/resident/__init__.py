"""Agents that wait on their hosts for a driver, where there is no ssh.

`listen` runs on each host, `dial` is the driver's end of all connections. Both begin
with what is here and go on by `relay`, which carries what an agent says over ssh.

The driver sends `greeting`, of a fixed length, the listener answers a line:
`WELCOME`, or why not. A driver cannot have a host run a program of its own: it
names the one that it expects, and the host runs its copy. On the driver's machine
one message of a Unix socket for each host hands over its three pipes: words in JSON,
and the far ends of what would be a program's stdin, stdout and stderr.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from cloudcoll.errors import UnusableError

HEAD = b"cloudcoll-driver 1 "
WELCOME = "welcome"
ANSWER_LIMIT = 256
LENGTH = len(HEAD) + 64 + 1


def answer(words: str = WELCOME) -> bytes:
    """Return a listener's answer: that it is ready, or why not."""
    return words[: ANSWER_LIMIT - 1].encode("ascii", "replace") + b"\n"


def greeting(program: bytes) -> bytes:
    """Return a driver's greeting for a program, `LENGTH` bytes."""
    return HEAD + hashlib.sha256(program).hexdigest().encode() + b"\n"


def check_greeting(said: bytes, program: bytes) -> None:
    """Return if a driver means `program`; UnusableError if it does not."""
    if not said.startswith(HEAD):
        raise UnusableError("that is not a driver's greeting")
    if said != greeting(program):
        raise UnusableError(
            "driver and agent are of different versions: install the same on all hosts"
        )


def read_greeting(conn: socket.socket, seconds: float) -> bytes:
    """Return a driver's greeting, at most `LENGTH` bytes.

    TimeoutError if it is not complete after `seconds`, however it trickles in.
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

    UnusableError, with what it says, if it is no welcome.
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


LIMIT = 4096
"""Bytes of the words of a message."""
PIPES = 3


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a socket that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def hand_over(control: socket.socket, words: Sequence[str], pipes: list[int]) -> None:
    """Send a host's words and the ends of its pipes, which the caller is to close."""
    socket.send_fds(control, [json.dumps(words).encode()], pipes)


def taken_over(control: socket.socket) -> tuple[list[str], list[int]] | None:
    """Return the next host's words and its stdin, stdout and stderr.

    None at the end of `control`: the driver is gone. A host for whose pipes we have
    no descriptors left is passed over: the driver sees that they are closed.
    """
    while said := (got := socket.recv_fds(control, LIMIT, PIPES))[0]:
        if len(got[1]) == PIPES:
            return json.loads(said), got[1]
        for pipe in got[1]:
            os.close(pipe)
    return None


STOP_SECONDS = 1.0
"""How long it may take for a host, and to go when its stdin has ended."""


class Carrier:
    """Starts the process and hands it hosts; as a context manager, ends it.

    The stdin of `command` is the socket of `cloudcoll.resident`. UnusableError, when
    entered, if it cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)

    def __enter__(self) -> Carrier:
        self._control, theirs = control_pair()
        self._control.settimeout(STOP_SECONDS)
        with theirs:
            try:
                # Its own session: Ctrl-C is for us, who then end it in order.
                self.process = subprocess.Popen(
                    self._command, stdin=theirs.fileno(), start_new_session=True
                )
            except OSError as error:
                self._control.close()
                raise UnusableError(
                    f"cannot run {self._command[0]}: {error.strerror}"
                ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def start(self, *words: str) -> Carried:
        """Hand a host over; the process knows what `words` mean.

        OSError if it is gone or stuck, or there are no descriptors left.
        """
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            streams, pipes = [], []
            for mode in ("wb", "rb", "rb"):
                read, write = os.pipe()
                near, far = (write, read) if mode == "wb" else (read, write)
                streams.append(ours.enter_context(open(near, mode, buffering=0)))
                pipes.append(far)
                theirs.callback(os.close, far)
            try:
                hand_over(self._control, words, pipes)
            except OSError as error:
                error.filename = self._command[0]
                raise
            ours.pop_all()
        return Carried(self.process, *streams)


@dataclass(frozen=True)
class Carried:
    """A host that a `Carrier` serves, as `AgentProcess` sees a program.

    Attributes
    ----------
    process : Popen
        The carrier's.
    stdin, stdout, stderr : file
        Our ends of the host's pipes.
    """

    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    @property
    def pid(self) -> int:
        """Of the carrier."""
        return self.process.pid

    def wait(self, timeout: float | None = None) -> int:
        """Return how the carrier ended, 0 while it runs: a host is its own to end."""
        del timeout
        return self.process.poll() or 0
