"""Ask a daemon on its Unix socket; loads nothing heavy, since ``run`` does it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from cloudcoll.files import results_dir
from cloudcoll.files.limits import TEXT_BYTES

ASK_SECONDS = 0.15
"""A daemon that takes longer is not there: a job starts 0.2 s later at most."""
LARGEST = TEXT_BYTES
"""Bytes of an answer."""
LONGEST_HEAD = 64 << 10
"""Bytes of its head."""
SYSTEM_SOCKET = Path("/run/cloudcoll/daemon.sock")
"""Where a daemon listens that serves all users of a machine."""


def socket_path() -> Path:
    """Return where this user's daemon listens (``CLOUDCOLL_DAEMON`` if set)."""
    if chosen := os.environ.get("CLOUDCOLL_DAEMON"):
        return Path(chosen)
    return results_dir() / "daemon.sock"


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

    Parameters
    ----------
    path : Path
        The socket.
    target : str
        See `cloudcoll.daemon.responses`.
    seconds : float
        For all of it.
    silence : float
        Seconds without a byte, at most.
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
    """Yield a short name of the socket `path`: an address has room for 108 bytes.

    Raises
    ------
    OSError
        Its folder is not there.
    """
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
