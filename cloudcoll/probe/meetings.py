"""The meetings of a probe and what was reported of each, in arrays.

A thousand hosts have a hundred thousand: as objects they took 35 MB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set

import numpy as np
import numpy.typing as npt

from cloudcoll.measured.samples import Ints

HOST_BITS = 17
"""Of a meeting's code: a frame has room for so many hosts."""

Mask = npt.NDArray[np.bool_]
Meeting = tuple[str, int, int]
"""``rtt`` or ``flow``, number of the round, position of the host that reports."""


class Meetings:
    """Who meets whom: each meeting has a place, in the order of `add`.

    Parameters
    ----------
    size : int
        Hosts, whose positions are below it.

    Attributes
    ----------
    peer : ndarray of int64, shape (meetings,)
        Whom the host that reports meets.
    sent : ndarray of int64, shape (meetings,)
        Requests that were sent.
    sizes : ndarray of int64, shape (meetings,)
        Samples that were reported.
    reported : int
        Meetings of which there is a report.
    """

    def __init__(self, size: int) -> None:
        self.reported = 0
        self._size = size
        self._samples = array("q")
        none = np.zeros(0, dtype=np.int64)
        self._codes = self._order = self._starts = none
        self.peer = self.sent = self.sizes = none
        self._sorted = array("q")

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, meetings: Iterable[tuple[Meeting, int]]) -> None:
        """Add meetings, each with its peer, but those that are there already."""
        new = array("q")
        for meeting, peer in meetings:
            if self.find(meeting) < 0:
                new.extend((_code(meeting), peer))
        codes, peers = np.frombuffer(new, dtype=np.int64).reshape(-1, 2).T
        self._codes = np.concatenate([self._codes, codes])
        self.peer = np.concatenate([self.peer, peers])
        nothing = np.zeros_like(codes)
        self._starts = np.concatenate([self._starts, nothing - 1])
        self.sizes = np.concatenate([self.sizes, nothing])
        self.sent = np.concatenate([self.sent, nothing])
        # Looked up for each report: bisecting an array takes less than a microsecond.
        self._order = np.argsort(self._codes)
        self._sorted = array("q", self._codes[self._order].tobytes())

    def find(self, meeting: Meeting) -> int:
        """Return the place of a meeting, -1 if nobody asked for it."""
        if not 0 <= meeting[2] < self._size:
            return -1
        code = _code(meeting)
        at = bisect_left(self._sorted, code)
        found = at < len(self._sorted) and self._sorted[at] == code
        return int(self._order[at]) if found else -1

    def take(self, place: int, values: Sequence[int], sent: int) -> bool:
        """Keep a report; return whether it is the first of its meeting."""
        if self._starts[place] >= 0:
            return False
        self._starts[place], self.sizes[place] = len(self._samples), len(values)
        self.sent[place] = sent
        self._samples.extend(values)
        self.reported += 1
        return True

    @property
    def host(self) -> Ints:
        """Who reports."""
        return self._codes >> 1 & (1 << HOST_BITS) - 1

    @property
    def slot(self) -> Ints:
        """Number of the round."""
        return self._codes >> HOST_BITS + 1

    @property
    def is_rtt(self) -> Mask:
        """Whether round trips are taken."""
        return np.asarray(self._codes & 1 == 1)

    @property
    def missing(self) -> Mask:
        """Whether nothing was reported yet."""
        return np.asarray(self._starts < 0)

    def among(self, hosts: Set[int]) -> Mask:
        """Return which meetings are of two of these hosts."""
        there = np.zeros(self._size, dtype=bool)
        there[[host for host in hosts if host < self._size]] = True
        return np.asarray(there[self.host] & there[self.peer])

    def samples(self, places: Ints) -> Ints:
        """Return what was reported of these meetings, one after the other."""
        sizes = self.sizes[places]
        where = np.repeat(self._starts[places] - np.cumsum(sizes) + sizes, sizes)
        where += np.arange(len(where))
        return np.frombuffer(self._samples, dtype=np.int64)[where]


def _code(meeting: Meeting) -> int:
    """Return a meeting as a number, which grows with that of its round."""
    kind, slot, host = meeting
    return (slot << HOST_BITS | host) << 1 | (kind == "rtt")
