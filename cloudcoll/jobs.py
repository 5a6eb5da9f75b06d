"""Runs a job of ours under the user's own launcher: a line in, lines out."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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

    Raises
    ------
    CloudcollError
        The job cannot be started, failed, or timed out; raised when the
        block ends, so that what it printed before has been taken.
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
    late = threading.Timer(timeout, job.send_signal, [signal.SIGTERM])
    late.daemon = True
    late.start()
    try:
        assert job.stdin is not None
        job.stdin.write(json.dumps(request).encode() + b"\n")
        job.stdin.close()
        yield _lines(job)
        if code := job.wait(timeout=GRACE):
            over = " (out of time)" if late.finished.is_set() else ""
            raise CloudcollError(
                f"{argv[0]} ended with exit code {code}{over}; see its own words above"
            )
    except BrokenPipeError:
        code = job.wait(timeout=GRACE)
        raise CloudcollError(f"{argv[0]} ended at once with code {code}") from None
    finally:
        late.cancel()
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


def _lines(job: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert job.stdout is not None
    while line := job.stdout.readline(MAX_LINE):
        if line.startswith(b"{"):
            yield line
