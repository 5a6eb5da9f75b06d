"""Runs a job of ours under the user's own launcher: a line in, lines out."""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cloudcoll import units
from cloudcoll.errors import CloudcollError

MAX_LINE = 1 << 20
"""Bytes of one line of the job's output; a longer one is not ours."""

GRACE = 5.0
"""Seconds that a job gets to end before it is killed."""


@contextmanager
def run_job(
    argv: Sequence[str],
    request: Mapping[str, Any],
    env: Mapping[str, str],
    timeout: float,
    silence: float = math.inf,
) -> Iterator[Iterator[bytes]]:
    """Start a job and yield the lines of JSON that it prints; never leave it behind.

    The job's stderr is ours. Other lines (a launcher's remarks) are passed over.

    Parameters
    ----------
    argv : sequence of str
        The launcher's command line, program included.
    request : mapping
        What the job reads from stdin, as one line of JSON: mpirun does not
        always pass the end of its input on.
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
    with tempfile.TemporaryFile() as stdin:
        # A file: no launcher can stop us by not reading.
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.seek(0)
        try:
            job = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=stdin,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise CloudcollError(f"cannot run {argv[0]}: {error.strerror}") from error
    try:
        yield _lines(job, timeout, silence)
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
    if job.stdout:
        job.stdout.close()


def _lines(
    job: subprocess.Popen[bytes], timeout: float, silence: float
) -> Iterator[bytes]:
    """Yield the job's lines of JSON up to the end of its output."""
    assert job.stdout is not None
    end = time.monotonic() + timeout
    patience = timeout
    rest = b""
    while data := _read(job, min(patience, end - time.monotonic())):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            raise CloudcollError(f"the job printed a line of over {MAX_LINE} bytes")
        for line in lines:
            if line.startswith(b"{"):
                patience = silence
                yield line


def _read(job: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the next of the job's output, nothing at its end."""
    assert job.stdout is not None
    if not select.select([job.stdout], [], [], max(0.0, seconds))[0]:
        silent = f" (no word for {units.seconds(seconds)})" if seconds > 0 else ""
        raise CloudcollError(f"the job is out of time{silent}")
    return os.read(job.stdout.fileno(), 1 << 16)
