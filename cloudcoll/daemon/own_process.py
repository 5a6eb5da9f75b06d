"""Judge a case in a process of its own, whose memory goes when it ends.

Fabric and orders of a thousand hosts take matrices, SciPy and some seconds. The
daemon needs them a few times a day: what they take goes with the process.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

from cloudcoll.agentfile import own_command
from cloudcoll.daemon.verdict import Case, Verdict, judged
from cloudcoll.errors import CloudcollError, UnusableError

LIMIT_S = 300.0
"""Seconds after which it is given up."""
FAILED = 3
"""Exit status of one that says why."""


def judged_apart(case: Case) -> Verdict:
    """Return what `judged` does, by another process.

    Raises
    ------
    UnusableError
        No order is possible, or the process was killed, as where memory is short.
    """
    give_back()  # what the probe took: the other process needs as much
    try:
        done = subprocess.run(
            own_command("cloudcoll.daemon.own_process"),
            input=case.to_bytes(),
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnusableError(f"no order was worked out within {LIMIT_S:g} s") from error
    except OSError as error:
        raise UnusableError(f"cannot start {sys.executable}: {error}") from error
    if done.returncode == FAILED:
        raise UnusableError(done.stdout.decode(errors="replace"))
    if done.returncode:
        raise UnusableError(
            f"the process that works out orders ended with status {done.returncode}: "
            "it needs some 200 MB for 1000 hosts"
        )
    return Verdict.from_bytes(done.stdout)


def main() -> int:
    """Judge the case on stdin; write what comes of it to stdout."""
    try:
        answer, status = judged(Case.from_bytes(sys.stdin.buffer.read())).to_bytes(), 0
    except CloudcollError as error:
        answer, status = str(error).encode(), FAILED
    sys.stdout.buffer.write(answer)
    return status


LARGE = 1 << 17
"""Bytes from which a block goes back by itself when it is freed."""
M_MMAP_THRESHOLD = -3
"""Of glibc's ``malloc.h``."""


def map_large() -> None:
    """Have blocks of `LARGE` bytes and more mapped apart from the heap.

    That is glibc's rule at the start. It learns from each such block that is freed
    to put those like it on the heap, where they leave holes (mallopt(3), glibc 2.36).
    """
    if setting := getattr(ctypes.CDLL(None), "mallopt", None):
        setting(M_MMAP_THRESHOLD, LARGE)


def give_back() -> None:
    """Give the free memory of the heap back to the system."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
