"""One daemon a store: a lock that the kernel drops with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from cloudcoll.errors import UnusableError


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock at `path` while the context lasts.

    The file stays; it is the lock on it that counts, and a process that is
    killed leaves none.

    The folder is closed to other users, if it is ours: to lock a file it is enough
    that one can read it, and SQLite's, which are beside it, are locked, too.

    Raises
    ------
    UnusableError
        Another process holds it, which the message names, or there can be no
        such file.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        about = path.parent.stat()
        if about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.parent.chmod(0o700)
        # Not buffered: what a full disk did not take would be tried again at the end.
        file = path.open("ab+", buffering=0)
    except OSError as error:
        raise UnusableError(f"cannot open {path}: {error.strerror}") from error
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnusableError(f"cannot open {path}: it is no file")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).decode(errors="replace").strip()
            raise UnusableError(
                f"{path.parent} belongs to a running daemon: "
                f"{holder or 'a process that only just began'} (stop it, or set "
                "CLOUDCOLL_HOME to another folder)"
            ) from None
        # Who reads it meanwhile was refused: only they are told.
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {since}"
        with contextlib.suppress(OSError):  # a full disk costs the name only
            file.write(holder.encode())
        yield
