"""What other processes of this host say to a daemon: questions on its socket, leases.

A lease is a file that says which hosts a job has, so that no daemon probes them.
Nothing heavy is loaded: `run` does this at every start.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cloudcoll.errors import UnusableError
from cloudcoll.files import NOT_JSON, results_dir, strict_json
from cloudcoll.files.limits import TEXT_BYTES
from cloudcoll.files.locks import lock

ASK_SECONDS = 0.15
"""A daemon that takes longer is not there: a job starts 0.2 s later at most."""
LARGEST = TEXT_BYTES
"""Bytes of an answer."""
LONGEST_HEAD = 64 << 10
"""Bytes of its head."""
SYSTEM_SOCKET = Path("/run/cloudcoll/daemon.sock")
"""Where a daemon listens that serves all users of a machine."""


def socket_path(lab: Path | None = None) -> Path:
    """Return where this user's daemon listens (``CLOUDCOLL_DAEMON`` if set).

    It may be that of a lab: see `results_dir`.
    """
    if chosen := os.environ.get("CLOUDCOLL_DAEMON"):
        return Path(chosen)
    return results_dir(lab) / "daemon.sock"


def daemon_socket() -> Path | None:
    """Return the socket to ask: this user's, else the system's, else None.

    In a lab, and where one is named, no other is asked.
    """
    own = socket_path()
    if own.exists():
        return own
    alone = os.environ.get("CLOUDCOLL_DAEMON") or os.environ.get("CLOUDCOLL_LAB")
    return None if alone or not SYSTEM_SOCKET.exists() else SYSTEM_SOCKET


def ask(
    path: Path, target: str, seconds: float = ASK_SECONDS, silence: float = math.inf
) -> tuple[int, bytes] | None:
    """Return status and body of ``GET target``, None if no daemon answers in time.

    All of it may take `seconds`, of which at most `silence` without a byte.
    """
    deadline = time.monotonic() + seconds
    received = bytearray()
    try:
        with reachable(path) as short, socket.socket(socket.AF_UNIX) as connection:
            # Not a timeout of Python's: it gives up at once where others wait, too.
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(min(seconds, silence))
            )
            connection.connect(short)
            connection.settimeout(min(seconds, silence))
            connection.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
            while len(received) <= LARGEST:
                if (left := deadline - time.monotonic()) <= 0:
                    return None
                connection.settimeout(min(left, silence))
                if not (more := connection.recv(1 << 20)):
                    return _parsed(received)
                received += more
    except OSError:
        # Nobody listens, or too slowly: whoever asks goes on without.
        return None
    return None


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a short name of the socket `path`: an address has room for 108 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _timeval(seconds: float) -> bytes:
    """Return a time as the kernel takes it; 0 would be for ever."""
    return struct.pack("@ll", *divmod(max(1, int(seconds * 1e6)), 1_000_000))


def _parsed(received: bytes | bytearray) -> tuple[int, bytes] | None:
    end = received.find(b"\r\n\r\n", 0, LONGEST_HEAD)
    words = received[: max(end, 0)].split(b"\r\n")[0].split(b" ")
    if len(words) < 2 or not re.fullmatch(rb"[0-9]{3}", words[1]):
        return None
    return int(words[1]), bytes(memoryview(received)[end + 4 :])


LEASE_BYTES = 16 << 20
"""Bytes of a lease."""


def leases_dir(lab: Path | None = None) -> Path:
    """Return the folder of the leases (not created here), perhaps of a lab."""
    return results_dir(lab) / "jobs"


def take_lease(hosts: Iterable[str]) -> int:
    """Say that a job runs on `hosts`, until the returned descriptor is closed.

    A program that takes this process over inherits it. UnusableError if it can't be.
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


def leased_hosts(lab: Path | None = None) -> frozenset[str]:
    """Return the hosts of all running jobs; leases of jobs that ended are removed.

    The jobs may be a lab's: see `results_dir`.
    """
    found: set[str] = set()
    for path in leases_dir(lab).glob("*.json"):
        # Gone, or another user's: not a lease of ours.
        with contextlib.suppress(OSError), open(path, "rb", opener=_at_once) as file:
            if lock(file):
                path.unlink()
            else:
                found.update(_hosts(file.read(LEASE_BYTES)))
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
