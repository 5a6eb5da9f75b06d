"""The agents' reports, checked against the plan and put into a snapshot.

A thousand hosts have a hundred thousand meetings: as objects they took 35 MB, so they
are kept in arrays.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any

import numpy as np

from cloudcoll.arrays import Bools, Ints
from cloudcoll.measured.samples import LoadedFlows, RttSamples
from cloudcoll.probe.frames import Frame, FrameError
from cloudcoll.probe.plan import ProbePlan, Round

HOST_BITS = 17
"""Of a meeting's code: a frame has room for so many hosts."""

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
    def is_rtt(self) -> Bools:
        """Whether round trips are taken."""
        return np.asarray(self._codes & 1 == 1)

    @property
    def missing(self) -> Bools:
        """Whether nothing was reported yet."""
        return np.asarray(self._starts < 0)

    def among(self, hosts: Set[int]) -> Bools:
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


RAMP_UP = 2
"""Windows that a flow's rate leaves out: buffers grow and CPUs speed up."""
TROUBLES = 100
"""Messages kept of what went wrong for single pairs."""

Progress = Callable[[int, int], None]


class Results:
    """What has been reported so far.

    Parameters
    ----------
    plan : ProbePlan
        Only what it, or `expect`, asked for is taken, and only once.
    progress : callable, optional
        Called with meetings reported and meetings planned.

    Attributes
    ----------
    troubles : list of (int, int, str)
        Reporter, its peer, and why the two could not be measured.
    starved : set of (str, int, int)
        Meetings in which one of the two hosts had too little CPU to measure, as it
        says or as it sent nothing that counts: ``rtt`` or ``flow``, number of the
        round, who reports it.
    sent : int
        Bytes of payload that hosts say they have sent.
    record : callable
        Called with each report that was taken, and who made it.
    """

    def __init__(self, plan: ProbePlan, progress: Progress | None = None) -> None:
        self.troubles: list[tuple[int, int, str]] = []
        self.starved: set[Meeting] = set()
        self.sent = 0
        self.record: Callable[[int, Frame], None] = lambda position, frame: None
        self._plan = plan
        self._progress = progress
        self._met = Meetings(plan.hosts)
        # Rounds under load, and which of them repeat which.
        self._loads: dict[int, Round] = {}
        self._repeats: dict[int, int] = {}
        self._paced: set[int] = set()
        self._spared = 0
        self.expect(list(plan.rounds()))

    def expect(
        self,
        rounds: Sequence[Round],
        repeated: Iterable[Round] = (),
        *,
        paced: bool = False,
    ) -> None:
        """Take reports of these rounds, too, the first of which repeat others.

        Where flows had to be paced, only those that were are counted.
        """
        self._met.add(self._noted(rounds, iter(repeated)))
        if paced:
            self._paced.update(slot.number for slot in rounds)

    def spare(self, rounds: Iterable[Round]) -> None:
        """Count these rounds, under load, no longer among those that are planned."""
        self._spared += sum(len(slot.pairs) for slot in rounds)

    def _noted(
        self, rounds: Iterable[Round], repeated: Iterator[Round]
    ) -> Iterator[tuple[Meeting, int]]:
        """Yield the meetings of rounds with who is met; note those under load."""
        for slot in rounds:
            if old := next(repeated, None):
                self._repeats[slot.number] = old.number
            if slot.kind != "rtt":
                self._loads[slot.number] = slot
            for src, dst in slot.pairs:
                # The asker reports round trips, the receiver what arrived.
                if slot.kind == "rtt":
                    yield ("rtt", slot.number, src), dst
                else:
                    yield ("flow", slot.number, dst), src

    def add(self, position: int, frame: Frame) -> None:
        """Take one report of the agent at `position`; FrameError if it is none.

        Nor is one that was not asked for, or came before.
        """
        kind = frame["type"]
        if kind == "sent":
            self.sent += frame["bytes"]
            return
        if kind == "trouble":
            if len(self.troubles) < TROUBLES:
                self.troubles.append((position, frame["peer"], frame["text"]))
            return
        if kind == "starved":
            self.starved.add(self._meeting(position, frame["slot"], frame["peer"]))
            self.record(position, frame)
            return
        place = self._met.find((kind, frame.get("slot", 0), position))
        if place < 0 or self._met.peer[place] != frame["peer"]:
            raise FrameError(f"{kind} report that nobody asked for")
        values = frame["ns"] if kind == "rtt" else frame["windows"]
        if kind == "rtt" and len(values) > frame["sent"]:
            raise FrameError(f"{len(values)} replies to {frame['sent']} requests")
        if not self._met.take(place, values, frame.get("sent", 0)):
            raise FrameError(f"{kind} report that came before")
        if kind == "rtt" and not frame["sent"]:
            self.starved.add((kind, frame["slot"], position))
        self.record(position, frame)
        if self._progress:
            self._progress(*self.count)

    def _meeting(self, position: int, slot: int, peer: int) -> Meeting:
        """Return what two hosts were asked for in a round, whoever reports it."""
        for kind in ("rtt", "flow"):
            for reporter, other in ((position, peer), (peer, position)):
                place = self._met.find((kind, slot, reporter))
                if place >= 0 and self._met.peer[place] == other:
                    return kind, slot, reporter
        raise FrameError("starved report that nobody asked for")

    @property
    def count(self) -> tuple[int, int]:
        """Meetings reported and meetings planned."""
        return self._met.reported, len(self._met) - self._spared

    @property
    def missing(self) -> dict[int, list[int]]:
        """Who has not yet reported in which round, by position."""
        found: dict[int, list[int]] = {}
        left = self._met.missing
        slots, hosts = self._met.slot[left].tolist(), self._met.host[left].tolist()
        for slot, reporter in zip(slots, hosts, strict=True):
            found.setdefault(slot, []).append(reporter)
        return found

    def missing_between(self, hosts: Set[int]) -> int:
        """Return how many meetings of two of these hosts nobody reported yet."""
        return int((self._met.among(hosts) & self._met.missing).sum())

    @property
    def heard(self) -> set[int]:
        """Positions of the hosts of which anything was reported."""
        reported = ~self._met.missing
        return {*self._met.host[reported].tolist(), *self._met.peer[reported].tolist()}

    def starved_pairs(self, dead: Set[int]) -> list[tuple[int, int]]:
        """Return who met for their latency, but never with CPU enough to be heard."""
        _, first, good = self._trips(dead)
        never = np.setdiff1d(first, first[good])
        src, dst = self._met.host[never], self._met.peer[never]
        return list(zip(src.tolist(), dst.tolist(), strict=True))

    def starved_loads(self, dead: Set[int]) -> list[Round]:
        """Return rounds under load, of one kind, in which hosts were starved.

        Each as it was asked for first, unless its repetition went well.
        """
        counted, starved = self._counted(dead)
        found = [self._loads[n] for n, ran in counted.items() if ran in starved]
        return [load for load in found if load.kind == found[0].kind]

    def rtt(self, dead: Set[int]) -> RttSamples:
        """Return the round trips of all planned pairs without a `dead` host.

        What a starved host measured is left out where there is better.
        """
        places, first, good = self._trips(dead)
        counted = good | ~np.isin(first, first[good])
        # A pair's meetings together, as early as its first.
        order = np.argsort(first[counted], kind="stable")
        places = places[counted][order]
        pairs, pair = np.unique(first, return_inverse=True)
        pair = pair[counted][order]
        sent, taken = (
            np.bincount(pair, each[places], len(pairs)).astype(np.int64)
            for each in (self._met.sent, self._met.sizes)
        )
        return RttSamples(
            src=self._met.host[pairs],
            dst=self._met.peer[pairs],
            sent=sent,
            ends=np.cumsum(taken),
            seconds=np.multiply(self._met.samples(places), 1e-9, dtype=np.float64),
        )

    def flows(self, dead: Set[int]) -> LoadedFlows:
        """Return all planned flows without a `dead` host, in order of time.

        A round that was repeated because of a starved host has its own number
        and the repetition's flows, unless that was no better.
        """
        rows = [
            (number, self._met.find(("flow", ran, dst)))
            for number, ran in self._counted(dead)[0].items()
            if not self._paced or number in self._paced
            for src, dst in self._loads[ran].pairs
            if dead.isdisjoint((src, dst))
        ]
        number, places = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return LoadedFlows(
            round=number,
            src=self._met.peer[places],
            dst=self._met.host[places],
            ends=np.cumsum(self._met.sizes[places]),
            window_bytes=self._met.samples(places),
            window_s=self._plan.window_s,
            ramp_up=RAMP_UP,
            paced=bool(self._paced),
        )

    def _trips(self, dead: Set[int]) -> tuple[Ints, Ints, Bools]:
        """Return the meetings for round trips without a `dead` host.

        Their places, that of the first of the same pair, and whether both hosts had
        CPU enough. One that heard nothing at all may have come too late for it.
        """
        alive = self._met.among({*range(self._plan.hosts)} - dead)
        places = np.flatnonzero(alive & self._met.is_rtt)
        pairs = self._met.host[places] * self._plan.hosts + self._met.peer[places]
        _, first, pair = np.unique(pairs, return_index=True, return_inverse=True)
        starved = [self._met.find(meeting) for meeting in self.starved]
        mute = ~self._met.missing[places] & (self._met.sizes[places] == 0)
        good = ~np.isin(places, starved) & ~mute
        return places, places[first][pair], good

    def _counted(self, dead: Set[int]) -> tuple[dict[int, int], set[int]]:
        """Return for each round under load the one that counts, and the starved.

        A round in which nothing came of a flow is one of these.
        """
        flows = self._met.among({*range(self._plan.hosts)} - dead) & ~self._met.is_rtt
        bad = flows & ~self._met.missing & (self._met.sizes == 0)
        places = [self._met.find(meeting) for meeting in self.starved]
        bad[places] = flows[places]
        starved = set(self._met.slot[bad].tolist())
        counted: dict[int, int] = {}
        for number in self._loads:
            first = self._repeats.get(number, number)
            if first == number or (counted[first] in starved and number not in starved):
                counted[first] = number
        return counted, starved

    def messages(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the troubles with host names, JSON-ready."""
        return [
            {"host": names[host], "peer": names[peer], "text": text}
            for host, peer, text in self.troubles
            if peer < len(names)
        ]
