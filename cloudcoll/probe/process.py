"""One agent as a local process: its pipes, its state, how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable

from cloudcoll.agentfile import parcel
from cloudcoll.probe.carrier import Carried
from cloudcoll.probe.frames import Decoder

STDERR_KEPT = 4096
PIPES = ("stdin", "stdout", "stderr")

Program = subprocess.Popen[bytes] | Carried
Start = Callable[[], Program]
"""Starts an agent's program on its host; OSError if that cannot be tried."""


class AgentProcess:
    """One agent, as the driver sees it.

    Parameters
    ----------
    name : str
        Its host.
    begin : callable
        Starts it.

    Attributes
    ----------
    failed : str
        Why it is of no more use; empty while it is.
    awaits : str
        Type of the frame it owes us by `deadline`; empty if none.
    deadline : float
        On the monotonic clock.
    pipes : dict of str to int
        Our ends of its stdin, stdout and stderr, none of them blocking;
        empty before it starts and after `release`.
    """

    def __init__(self, name: str, begin: Start) -> None:
        self.name = name
        self.failed = ""
        self.awaits = ""
        self.deadline = 0.0
        self.decoder = Decoder()
        self.pipes: dict[str, int] = {}
        self._begin = begin
        self._process: Program | None = None
        self._outgoing = bytearray()
        self._stderr = b""

    def start(self, source: bytes) -> None:
        """Start it and send it the agent's text; `failed` if it cannot."""
        try:
            self._process = self._begin()
        except OSError as error:
            self.failed = f"cannot run {error.filename}: {error.strerror}"
            return
        for name in PIPES:
            self.pipes[name] = getattr(self._process, name).fileno()
            os.set_blocking(self.pipes[name], False)
        self.write(parcel(source))

    def write(self, data: bytes = b"") -> bool:
        """Send `data` after what still waits; return whether some must wait."""
        self._outgoing += data
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self.pipes["stdin"], self._outgoing)]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._outgoing.clear()  # the end of its output will say why
        return False

    def read(self) -> bytes:
        """Return what it has written to stdout; empty at the end."""
        return os.read(self.pipes["stdout"], 1 << 16)

    def read_stderr(self) -> bool:
        """Keep the end of its stderr; return whether more may come."""
        data = os.read(self.pipes["stderr"], 1 << 16)
        self._stderr = (self._stderr + data)[-STDERR_KEPT:]
        return bool(data)

    def why_ended(self) -> str:
        """Return what is known of why its output has ended."""
        assert self._process is not None
        try:
            code = self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return "closed its output"
        with contextlib.suppress(BlockingIOError):
            self.read_stderr()
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        if code == 127:
            return f"python3 not found on {self.name}"
        if code < 0:
            return f"killed by signal {-code} ({signal.strsignal(-code)})"
        return lines[-1].strip()[:200] if lines else f"ended with exit code {code}"

    def release(self) -> None:
        """Close our ends of its pipes: the end of stdin is what ends an agent."""
        for name in self.pipes:
            getattr(self._process, name).close()
        self.pipes.clear()

    def ended(self, deadline: float) -> bool:
        """Wait for its end after `release`; return whether it came by `deadline`."""
        if self._process is None:
            return True
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill it: it is stopped, or does not pass on the end of its input."""
        if self._process and not self.ended(0.0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
