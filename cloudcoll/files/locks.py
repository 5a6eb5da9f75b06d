"""Locks on files: whoever has one loses it when its process ends, however it ends."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any

PAUSE_S = 0.02
"""Between two tries: no call of the system waits for a lock, but not for ever."""


def lock(file: IO[Any], wait: float = 0.0) -> bool:
    """Take a file's lock; return whether nobody else had it for so many seconds.

    OSError where files can't be locked.
    """
    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(PAUSE_S)
