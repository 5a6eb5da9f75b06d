"""One local process that holds the connections to all hosts of a probe."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from cloudcoll.errors import UnusableError
from cloudcoll.resident.greeting import control_pair, hand_over

STOP_SECONDS = 1.0
"""How long it may take for a host, and to go when its stdin has ended."""


class Carrier:
    """Starts the process and hands it hosts; as a context manager, ends it.

    Parameters
    ----------
    command : sequence of str
        Its stdin is the socket of `cloudcoll.resident.greeting`.

    Raises
    ------
    UnusableError
        When entered: the process cannot be started.
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

        Raises
        ------
        OSError
            The process is gone or stuck, or there are no descriptors left.
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
