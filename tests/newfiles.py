"""Files that tests write over and over."""

from __future__ import annotations

from pathlib import Path


def write_new(path: Path, data: bytes | bytearray) -> None:
    """Write a file in place of one that may be there.

    ext4 sends to the disk at once what is written over an old file: that takes some
    milliseconds each time, many where others use the disk.
    """
    path.unlink(missing_ok=True)
    path.write_bytes(data)
