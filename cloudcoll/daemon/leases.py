"""Which hosts run a job that ``cloudcoll run`` started: nobody is to probe them.

Each job has a file with its hosts, on which it holds a lock; the kernel drops
the lock with the last process that has the file open, so that a job that is
killed needs no clean-up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path

from cloudcoll.errors import UnusableError
from cloudcoll.files import NOT_JSON, results_dir, strict_json

LARGEST = 16 << 20
"""Bytes of a lease."""


def leases_dir() -> Path:
    """Return the folder of the leases (not created here)."""
    return results_dir() / "jobs"


def take_lease(hosts: Iterable[str]) -> int:
    """Say that a job runs on `hosts`, until the returned descriptor is closed.

    A program that takes this process over inherits it.

    Raises
    ------
    UnusableError
        The lease can't be written.
    """
    path = leases_dir() / f"{os.getpid()}-{os.urandom(4).hex()}.json"
    unnamed = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lease = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Locked before anybody can find it.
            fcntl.flock(lease, fcntl.LOCK_EX)
            with open(lease, "wb", closefd=False) as file:
                file.write(json.dumps(sorted(hosts)).encode())
            os.set_inheritable(lease, True)
            os.rename(unnamed, path)
        except OSError:
            os.close(lease)
            unnamed.unlink()
            raise
    except OSError as error:
        raise UnusableError(f"cannot write {path}: {error.strerror}") from error
    return lease


def leased_hosts() -> frozenset[str]:
    """Return the hosts of all running jobs; leases of jobs that ended are removed."""
    found: set[str] = set()
    for path in leases_dir().glob("*.json"):
        # Gone, or another user's: not a lease of ours.
        with contextlib.suppress(OSError), open(path, "rb", opener=_at_once) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found.update(_hosts(file.read(LARGEST)))
            else:
                path.unlink()
    return frozenset(found)


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe in its place would wait for whoever writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def _hosts(text: bytes) -> list[str]:
    try:
        hosts = strict_json(text)
    except NOT_JSON:
        # Still being written: the next look finds it.
        return []
    return [str(host) for host in hosts] if isinstance(hosts, list) else []
