"""What the ranks that a launcher started on this host find in their environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def started_values(name: str) -> set[str]:
    """Return the values of a variable in all processes that descend from this one.

    Only what a process was started with counts, and only where it differs from
    what this one has: a child that has not become its program yet has our own.
    """
    own, found = os.environ.get(name), set[str]()
    for pid in _descendants(os.getpid()):
        # It may have ended, or belong to somebody else.
        with contextlib.suppress(OSError):
            for setting in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                key, _, value = setting.decode(errors="replace").partition("=")
                if key == name and value != own:
                    found.add(value)
    return found


def _descendants(pid: int) -> Iterator[int]:
    """Yield children, their children and so on; none where Linux does not list them."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _descendants(child)
