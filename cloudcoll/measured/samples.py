"""Raw measurements between pairs of hosts, as arrays and in an archive.

Hosts are positions in a snapshot's list. NaN means "not measured". A file has them in
a ZIP archive, as `numpy.savez` writes it; `numpy.load` believes what an archive says
of itself: its directory may lie, a member of 2 KB may ask for 256 TiB, and another
compression for gigabytes.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from cloudcoll.arrays import Floats, Ints
from cloudcoll.files.limits import MEMBERS, REQUESTS, ROUNDS, WINDOW_BYTES, room
from cloudcoll.hosts.names import shown

BLOCK = 1 << 17
"""Values of which the median is taken at once."""


@dataclass(frozen=True)
class PairMatrix:
    """One number for each ordered pair of hosts.

    Attributes
    ----------
    kind : str
        ``rtt`` (seconds) or ``bandwidth`` (bytes/s).
    origin : str
        ``measured``, ``imported``, ``derived`` or ``synthetic``.
    values : ndarray of float64, shape (hosts, hosts)
        ``values[src, dst]``; NaN where not measured, and on the diagonal.
    """

    kind: str
    origin: str
    values: Floats


@dataclass(frozen=True)
class RttSamples:
    """Round trips, pair after pair.

    Attributes
    ----------
    src, dst : ndarray of int64, shape (pairs,)
        Positions of the host that asked and the one that answered.
    sent : ndarray of int64, shape (pairs,)
        Requests sent; what is missing from the samples was lost.
    ends : ndarray of int64, shape (pairs,)
        Pair ``i`` owns ``seconds[ends[i - 1]:ends[i]]``.
    seconds : ndarray of float64, shape (samples,)
        Round trip times in the order taken.
    """

    src: Ints
    dst: Ints
    sent: Ints
    ends: Ints
    seconds: Floats

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take together."""
        return _nbytes(self)

    def check(self, hosts: int) -> None:
        """Raise ValueError for what no probe of so many hosts has measured."""
        _check_pairs(hosts, (self.src, self.dst), self.ends, len(self.seconds))
        counts = np.diff(self.ends, prepend=0)
        if not len(self.sent) == len(self.src) or (self.sent < counts).any():
            raise ValueError("more answers than requests")
        if (self.sent > REQUESTS).any():
            raise ValueError(f"more than {REQUESTS} requests to a host")
        if not ((self.seconds >= 0.0) & (self.seconds < math.inf)).all():
            raise ValueError("a round trip that is no time")

    def of(self, pair: int) -> Floats:
        """Return the samples of the pair at position `pair`."""
        start = self.ends[pair - 1] if pair else 0
        return self.seconds[start : self.ends[pair]]

    def quantile(self, q: float) -> Floats:
        """Return a quantile of each pair's samples, shape (pairs,); NaN for none."""
        figures = np.full(len(self.src), math.nan)
        counts = np.diff(self.ends, prepend=0)
        # A mesh of 1024 hosts has 523776 pairs: those with as many samples at
        # once, and not all of these, for the sake of memory.
        for count in np.unique(counts[counts > 0]).tolist():
            alike = np.flatnonzero(counts == count)
            for pairs in np.array_split(alike, len(alike) // 65536 + 1):
                rows = (self.ends[pairs] - count)[:, None] + np.arange(count)
                figures[pairs] = np.quantile(self.seconds[rows], q, axis=1)
        return figures


@dataclass(frozen=True)
class LoadedFlows:
    """TCP transfers, with which of them ran at the same time.

    Attributes
    ----------
    round : ndarray of int64, shape (flows,)
        Flows of one round ran together; those of other rounds did not.
    src, dst : ndarray of int64, shape (flows,)
        Positions of sender and receiver.
    ends : ndarray of int64, shape (flows,)
        Flow ``i`` owns ``window_bytes[ends[i - 1]:ends[i]]``.
    window_bytes : ndarray of int64
        Bytes that arrived in each window, the ramp-up included.
    window_s : float
        Length of a window in seconds.
    ramp_up : int
        Windows at the start of a flow that its rate leaves out.
    paced : bool
        Whether flows were sent no faster than hosts' cards carry.
    """

    round: Ints
    src: Ints
    dst: Ints
    ends: Ints
    window_bytes: Ints
    window_s: float = 0.025
    ramp_up: int = 2
    paced: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that all arrays take together."""
        return _nbytes(self)

    def fastest(self, hosts: int) -> Floats:
        """Return the rate of each host's fastest flow, either way, in bytes/s.

        Shape (hosts,); 0.0 where a host had none.
        """
        found, rate = np.zeros(hosts), np.nan_to_num(self.bytes_per_s)
        for end in (self.src, self.dst):
            np.maximum.at(found, end, rate)
        return found

    def check(self, hosts: int) -> None:
        """Raise ValueError for what no probe of so many hosts has measured."""
        windows = self.window_bytes
        _check_pairs(hosts, (self.src, self.dst), self.ends, len(windows))
        if len(self.round) != len(self.src) or not _within(self.round, ROUNDS):
            raise ValueError("a transfer of no round")
        # All of them are added up, too.
        most = WINDOW_BYTES if len(windows) < 4096 else (1 << 62) // len(windows)
        if not _within(windows, most) or not self.window_s > 0:
            raise ValueError("a transfer that no network carries")

    @cached_property
    def bytes_per_s(self) -> Floats:
        """Rate of each flow after its ramp-up, NaN where it never got there."""
        first = self.ends - np.diff(self.ends, prepend=0) + self.ramp_up
        windows = self.ends - first
        # The sums of all windows so far: a mpiGraph of 1024 has a million flows.
        total = np.concatenate([[0], np.cumsum(self.window_bytes)])
        rates = np.full(len(self.src), math.nan)
        counted = windows > 0
        sent = total[self.ends[counted]] - total[first[counted]]
        rates[counted] = sent / windows[counted] / self.window_s
        return rates


def _nbytes(part: RttSamples | LoadedFlows) -> int:
    return sum(one.nbytes for one in vars(part).values() if isinstance(one, np.ndarray))


def _check_pairs(hosts: int, pairs: tuple[Ints, Ints], ends: Ints, values: int) -> None:
    """Raise ValueError unless each of the pairs is of hosts, and owns values."""
    if any(len(column) != len(ends) for column in pairs):
        raise ValueError("columns of measurements that are not of one length")
    if not all(_within(column, hosts - 1) for column in pairs):
        raise ValueError("a measurement of no host")
    ordered = _within(ends, values) and not (np.diff(ends, prepend=0) < 0).any()
    if not ordered or (ends[-1] if len(ends) else 0) != values:
        raise ValueError("measurements that end elsewhere than they say")


def _within(values: Ints, most: int) -> bool:
    """Return whether all are whole numbers from 0 to `most`."""
    return not len(values) or bool(values.min() >= 0 and values.max() <= most)


def middle(values: Floats) -> Floats:
    """Return the median along the first axis, NaN left out.

    `numpy.nanmedian` without its warning where everything is NaN: that is
    "not measured", and nothing to warn of.
    """
    # A few rows at a time: the repeats of a thousand hosts' pairs are large.
    blocks = np.array_split(values, values.size // BLOCK + 1, axis=1)
    return np.concatenate([_middle(block) for block in blocks])


def _middle(values: Floats) -> Floats:
    ordered = np.sort(values, axis=0)
    count = np.isfinite(ordered).sum(axis=0)[None]
    # Where nothing is finite, the last and the first: NaN.
    low = np.take_along_axis(ordered, (count - 1) // 2, axis=0)
    high = np.take_along_axis(ordered, count // 2, axis=0)
    median: Floats = ((low + high) / 2.0)[0]
    return median


def medians(place: Ints, values: Floats, places: int) -> Floats:
    """Return the median of the values at each place, shape (places,); NaN for none."""
    values = values[np.lexsort((values, place))]
    count = np.bincount(place, minlength=places)
    first, some = np.cumsum(count) - count, count > 0
    low, high = first + (count - 1) // 2, first + count // 2
    found = np.full(places, math.nan)
    found[some] = (values[low[some]] + values[high[some]]) / 2.0
    return found


def no_rtt() -> RttSamples:
    """Return samples of no pair."""
    none = np.zeros(0, dtype=np.int64)
    return RttSamples(none, none, none, none, np.zeros(0))


def no_flows() -> LoadedFlows:
    """Return flows of no pair."""
    none = np.zeros(0, dtype=np.int64)
    return LoadedFlows(none, none, none, none, none)


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
    """Return the arrays of one dimension that an archive holds, by `kinds`.

    These are names and types; there may be others. `NOT_ARRAYS` if it is no such
    archive, an array is of another type or shape, or all would take more than
    `limits.room` says.
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
    while got := file.readinto(into[at : at + PIECE]):  # type: ignore[attr-defined]
        at += got
    # To the end, where the checksum is compared.
    if at < size or file.read(1):
        raise ValueError(f"array {name!r} is not as long as it says")
    return values.astype(kind, copy=False)
