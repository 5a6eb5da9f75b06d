"""Programs of ours that run elsewhere: how they are started, and jobs of them.

A Python is started with the agent's text or one of our modules. A job runs under the
user's own launcher: a line in, lines out.
"""

from __future__ import annotations

import importlib.resources
import json
import math
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cloudcoll
from cloudcoll import units
from cloudcoll.errors import CloudcollError

BOOTSTRAP = (
    "import sys;b=sys.stdin.buffer;"
    "exec(compile(b.read(int(b.readline())),'agent.py','exec'))"
)
AGENT_ARGV = ("python3", "-I", "-S", "-u", "-c", BOOTSTRAP)
"""What runs on a host. With -I and -S nothing in its home folder or in
site-packages gets between the agent and its standard library."""
OWN = (
    # Not the current folder, which is there as "" if Python was not told otherwise.
    "import importlib, sys; sys.path[: sys.path[:1] == ['']] = [sys.argv.pop(1)]; "
    "sys.exit(importlib.import_module(sys.argv.pop(1)).main())"
)
ROOT = str(Path(__file__).parents[1])


def own_command(module: str, *flags: str) -> list[str]:
    """Return the command line that runs `main` of a module of this very package.

    From any working directory, without a PYTHONPATH that the user's program would
    inherit. Words that are added are `main`'s ``sys.argv[1:]``; `flags` are Python's.
    """
    return [sys.executable, *flags, "-c", OWN, ROOT, module]


def program_folder() -> Path:
    """Return the folder of the programs that run on hosts, installed or not."""
    try:
        return Path(str(importlib.resources.files("cloudcoll._probes")))
    except ModuleNotFoundError:
        # A checkout that is not installed has it beside the package.
        return Path(cloudcoll.__file__).parent.parent / "probes"


def rank_program(name: str) -> tuple[str, ...]:
    """Return the arguments of a rank's Python that start a program of ``probes/``.

    It finds the program in any working directory, at the same path on every host.
    """
    return (str(program_folder() / "start.py"), name)


def agent_source() -> bytes:
    """Return the text of ``probes/agent.py``."""
    return (program_folder() / "agent.py").read_bytes()


def parcel(source: bytes) -> bytes:
    """Return an agent's text as `BOOTSTRAP` reads it: its length, then itself."""
    return b"%d\n" % len(source) + source


MAX_LINE = 1 << 20
"""Bytes of one line of the job's output; a longer one is not ours."""

GRACE = 5.0
"""Seconds that a job gets to end before it is killed."""

ENDING = 60.0
"""Seconds that the ranks of a job that is done get: MPI_Finalize of a thousand takes
some, and that of MPICH 4.0 may hang (pull request 6596 of pmodels/mpich)."""

DONE = b'{"done": true}'
"""The last line of what measures in turns: see ``probes/timing.py``."""

PIECE = 4000
"""Bytes of a request that are written at once: with what goes around them they fit
into a chunk of 4096 bytes, of which PRRTE loses some where several wait (see
``probes/start.py``), and into a pipe that nobody reads."""


@contextmanager
def run_job(
    argv: Sequence[str],
    request: Mapping[str, Any],
    env: Mapping[str, str],
    timeout: float,
    silence: float = math.inf,
) -> Iterator[Iterator[bytes]]:
    """Start a job and yield the lines of JSON that it prints; never leave it behind.

    The job's stderr is ours. Other lines (a launcher's remarks) are passed over, and
    those by which the job asks for more of its request.

    Parameters
    ----------
    argv : sequence of str
        The launcher's command line, program included.
    request : mapping
        What the job reads from stdin, as JSON; see ``probes/start.py``.
    env : mapping
        Environment of the launcher.
    timeout : float
        Seconds after which the job is stopped.
    silence : float
        Seconds that may pass between one line and the next.

    Raises
    ------
    CloudcollError
        The job cannot be started, failed, or timed out; a failure is raised
        when the block ends, so that all that it printed has been taken.
    """
    try:
        job = subprocess.Popen(
            argv,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CloudcollError(f"cannot run {argv[0]}: {error.strerror}") from error
    try:
        yield _Conversation(job, request).lines(timeout, silence)
        if code := job.wait(timeout=GRACE):
            raise CloudcollError(
                f"{argv[0]} ended with exit code {code}; see its own words above"
            )
    except subprocess.TimeoutExpired:
        raise CloudcollError(f"{argv[0]} is done but has not ended") from None
    finally:
        _stop(job)


def _stop(job: subprocess.Popen[bytes]) -> None:
    if job.poll() is None:
        job.terminate()
        try:
            job.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()
    for stream in (job.stdin, job.stdout):
        if stream:
            stream.close()


class _Conversation:
    """What is written to a job, a piece whenever it asks, and what is read from it."""

    def __init__(
        self, job: subprocess.Popen[bytes], request: Mapping[str, Any]
    ) -> None:
        assert job.stdin is not None
        assert job.stdout is not None
        self._stdin = job.stdin
        self._stdout = job.stdout.fileno()
        text = json.dumps(request).encode()
        self._pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
        self._said = 0
        self._is_done = False
        self._say()

    def lines(self, timeout: float, silence: float) -> Iterator[bytes]:
        """Yield the job's lines of JSON up to the end of its output."""
        end = time.monotonic() + timeout
        patience = timeout
        rest = b""
        while data := self._read(min(patience, end - time.monotonic())):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > MAX_LINE:
                raise CloudcollError(f"the job printed a line of over {MAX_LINE} bytes")
            for line in lines:
                if line == b'{"more": %d}' % self._said:
                    self._say()
                elif line.startswith(b"{") and not line.startswith(b'{"more"'):
                    patience = silence
                    if line == DONE:
                        self._is_done = True
                        end = min(end, time.monotonic() + ENDING)
                    yield line

    def _say(self) -> None:
        """Write the next piece: no launcher can stop us by not reading so little."""
        if self._said == len(self._pieces):
            return
        piece = self._pieces[self._said]
        self._said += 1
        if len(self._pieces) > 1:
            piece = (b"." if self._said == len(self._pieces) else b"+") + piece
        # A job that has ended says why by its exit code.
        with suppress(BrokenPipeError):
            os.write(self._stdin.fileno(), piece + b"\n")
        if self._said == len(self._pieces):
            self._stdin.close()

    def _read(self, seconds: float) -> bytes:
        """Return the next of the job's output, nothing at its end."""
        if not select.select([self._stdout], [], [], max(0.0, seconds))[0]:
            if self._is_done:
                raise CloudcollError("the job is done but has not ended")
            silent = f" (no word for {units.seconds(seconds)})" if seconds > 0 else ""
            raise CloudcollError(f"the job is out of time{silent}")
        return os.read(self._stdout, 1 << 16)
