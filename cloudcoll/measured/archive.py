"""Arrays in a ZIP archive, as `numpy.savez` writes them, and read within bounds.

`numpy.load` believes what an archive says of itself: its directory may lie, a
member of 2 KB may ask for 256 TiB, and another compression for gigabytes.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from cloudcoll.files.limits import MEMBERS, room
from cloudcoll.hosts.names import shown

PIECE = 1 << 20
"""Bytes of an array that are compressed or read at once."""

NOT_ARRAYS = (
    *(ValueError, TypeError, EOFError, OverflowError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
    # NumPy parses a member's header as Python and lets these through.
    *(SyntaxError, tokenize.TokenError, RecursionError),
)
"""What `unzipped` raises of bytes that nobody zipped here."""

Arrays = dict[str, npt.NDArray[Any]]


def zipped(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return what `numpy.savez_compressed` writes, which copies 16 MiB at a time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, values in arrays.items():
            about = np.lib.format.header_data_from_array_1_0(values)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, about)
                for part in np.array_split(values, values.nbytes // PIECE + 1):
                    file.write(part.tobytes())
    return buffer.getvalue()


def unzipped(payload: bytes, kinds: Mapping[str, npt.DTypeLike]) -> Arrays:
    """Return the arrays of one dimension that an archive holds.

    Parameters
    ----------
    payload : bytes
    kinds : mapping of str to dtype
        Names and types of the arrays that are read; there may be others.

    Raises
    ------
    NOT_ARRAYS
        It is no such archive, an array is of another type or shape, or all of
        them would take more than `limits.room` says.
    """
    # Each member has this in the directory, which is read as a whole.
    if payload.count(b"PK\x01\x02") > MEMBERS:
        raise ValueError(f"an archive of more than {MEMBERS} arrays")
    arrays: Arrays = {}
    left = room(len(payload))
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in kinds:
                continue
            if name in arrays:
                raise ValueError(f"two arrays {name!r}")
            # Others take memory of their own, as a file says.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"array {name!r} is compressed in an unknown way")
            with archive.open(member) as file:
                arrays[name] = _array(file, name, np.dtype(kinds[name]), left)
            left -= arrays[name].nbytes
    return arrays


def _array(
    file: IO[bytes], name: str, kind: np.dtype[Any], left: int
) -> npt.NDArray[Any]:
    """Read one array that takes `left` bytes at most."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"array {name!r} has a header of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if len(shape) != 1 or dtype.newbyteorder("=") != kind:
        raise ValueError(
            f"array {name!r} has {len(shape)} dimensions and type {shown(str(dtype))}"
        )
    size = math.prod(shape) * kind.itemsize
    if not 0 <= size <= left:
        raise ValueError(
            f"array {name!r} of {size >> 20} MiB: this file may hold {left >> 20} more"
        )
    values = np.empty(shape, dtype)
    into, at = values.view(np.uint8).data, 0
    while at < size and (got := file.readinto(into[at : at + PIECE])):  # type: ignore[attr-defined]
        at += got
    # To the end, where the checksum is compared.
    if at < size or file.read(1):
        raise ValueError(f"array {name!r} is not as long as it says")
    return values.astype(kind, copy=False)
