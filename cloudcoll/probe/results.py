"""The agents' reports, checked against the plan and put into a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import numpy as np

from cloudcoll.probe.frames import Frame, FrameError
from cloudcoll.probe.plan import ProbePlan, Round
from cloudcoll.samples import Ints, LoadedFlows, RttSamples

RAMP_UP = 2
"""Windows that a flow's rate leaves out: buffers grow and CPUs speed up."""
TROUBLES = 100
"""Messages kept of what went wrong for single pairs."""

Progress = Callable[[int, int], None]
Meeting = tuple[str, int, int]


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
        Meetings in which one of the two hosts had too little CPU to measure:
        ``rtt`` or ``flow``, number of the round, who reports it.
    record : callable
        Called with each report that was taken, and who made it.
    """

    def __init__(self, plan: ProbePlan, progress: Progress | None = None) -> None:
        self.troubles: list[tuple[int, int, str]] = []
        self.starved: set[Meeting] = set()
        self.record: Callable[[int, Frame], None] = lambda position, frame: None
        self._plan = plan
        self._progress = progress
        # Meeting -> peer: the asker reports round trips, the receiver what
        # arrived.
        self._planned: dict[Meeting, int] = {}
        # As bytes: of a thousand hosts they are many, and each is small.
        self._values: dict[Meeting, bytes] = {}
        self._sent: dict[Meeting, int] = {}
        # Rounds under load, and which of them repeat which.
        self._loads: dict[int, Round] = {}
        self._repeats: dict[int, int] = {}
        self.expect(plan.rounds())

    def expect(self, rounds: Iterable[Round], repeated: Iterable[Round] = ()) -> None:
        """Take reports of these rounds, too, the first of which repeat others."""
        rounds = list(rounds)
        again = zip(rounds, repeated, strict=False)
        self._repeats |= {new.number: old.number for new, old in again}
        for slot in rounds:
            for src, dst in slot.pairs:
                if slot.kind == "rtt":
                    self._planned["rtt", slot.number, src] = dst
                else:
                    self._planned["flow", slot.number, dst] = src
            if slot.kind != "rtt":
                self._loads[slot.number] = slot

    def add(self, position: int, frame: Frame) -> None:
        """Take one report of the agent at `position`.

        Raises
        ------
        FrameError
            It is no report, was not asked for, or came before.
        """
        kind = frame["type"]
        if kind == "trouble":
            if len(self.troubles) < TROUBLES:
                self.troubles.append((position, frame["peer"], frame["text"]))
            return
        if kind == "starved":
            self.starved.add(self._meeting(position, frame["slot"], frame["peer"]))
            self.record(position, frame)
            return
        key = (kind, frame.get("slot", 0), position)
        if key not in self._planned or self._planned[key] != frame["peer"]:
            raise FrameError(f"{kind} report that nobody asked for")
        if key in self._values:
            raise FrameError(f"{kind} report that came before")
        values = frame["ns"] if kind == "rtt" else frame["windows"]
        if kind == "rtt" and len(values) > frame["sent"]:
            raise FrameError(f"{len(values)} replies to {frame['sent']} requests")
        self._values[key] = _wholes(values).tobytes()
        self._sent[key] = frame.get("sent", 0)
        self.record(position, frame)
        if self._progress:
            self._progress(*self.count)

    def _meeting(self, position: int, slot: int, peer: int) -> Meeting:
        """Return what two hosts were asked for in a round, whoever reports it."""
        for kind in ("rtt", "flow"):
            for reporter, other in ((position, peer), (peer, position)):
                if self._planned.get((kind, slot, reporter)) == other:
                    return kind, slot, reporter
        raise FrameError("starved report that nobody asked for")

    @property
    def count(self) -> tuple[int, int]:
        """Meetings reported and meetings planned."""
        return len(self._values), len(self._planned)

    @property
    def missing(self) -> dict[int, list[int]]:
        """Who has not yet reported in which round, by position."""
        found: dict[int, list[int]] = {}
        for _, slot, reporter in self._planned.keys() - self._values.keys():
            found.setdefault(slot, []).append(reporter)
        return found

    def missing_between(self, hosts: Set[int]) -> int:
        """Return how many meetings of two of these hosts nobody reported yet."""
        left = self._planned.keys() - self._values.keys()
        return sum(key[2] in hosts and self._planned[key] in hosts for key in left)

    @property
    def heard(self) -> set[int]:
        """Positions of the hosts of which anything was reported."""
        return {host for key in self._values for host in (key[2], self._planned[key])}

    def starved_pairs(self, dead: Set[int]) -> list[tuple[int, int]]:
        """Return who met for their latency, but never with CPU enough."""
        return [
            pair
            for pair, keys in self._trips(dead).items()
            if self.starved.issuperset(keys)
        ]

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
        pairs: list[tuple[int, int]] = []
        sent: list[int] = []
        samples: list[bytes] = []
        for pair, keys in self._trips(dead).items():
            good = [key for key in keys if key not in self.starved] or keys
            pairs.append(pair)
            sent.append(sum(self._sent.get(key, 0) for key in good))
            samples.append(b"".join(self._values.get(key, b"") for key in good))
        return RttSamples(
            src=_wholes([src for src, _ in pairs]),
            dst=_wholes([dst for _, dst in pairs]),
            sent=_wholes(sent),
            ends=_ends(samples),
            seconds=_joined(samples).astype(np.float64) * 1e-9,
        )

    def flows(self, dead: Set[int]) -> LoadedFlows:
        """Return all planned flows without a `dead` host, in order of time.

        A round that was repeated because of a starved host has its own number
        and the repetition's flows, unless that was no better.
        """
        rows = [
            (number, ("flow", ran, dst), src)
            for number, ran in self._counted(dead)[0].items()
            for src, dst in self._loads[ran].pairs
            if dead.isdisjoint((src, dst))
        ]
        windows = [self._values.get(key, b"") for _, key, _ in rows]
        return LoadedFlows(
            round=_wholes([number for number, _, _ in rows]),
            src=_wholes([src for _, _, src in rows]),
            dst=_wholes([dst for _, (_, _, dst), _ in rows]),
            ends=_ends(windows),
            window_bytes=_joined(windows),
            window_s=self._plan.window_s,
            ramp_up=RAMP_UP,
        )

    def _trips(self, dead: Set[int]) -> dict[tuple[int, int], list[Meeting]]:
        """Return who asked whom for round trips, and in which meetings."""
        trips: dict[tuple[int, int], list[Meeting]] = {}
        for key, peer in self._planned.items():
            if key[0] == "rtt" and dead.isdisjoint((key[2], peer)):
                trips.setdefault((key[2], peer), []).append(key)
        return trips

    def _counted(self, dead: Set[int]) -> tuple[dict[int, int], set[int]]:
        """Return for each round under load the one that counts, and the starved."""
        starved = {
            key[1]
            for key in self.starved
            if key[0] == "flow" and dead.isdisjoint((key[2], self._planned[key]))
        }
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


def _wholes(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _joined(parts: list[bytes]) -> Ints:
    return np.frombuffer(b"".join(parts), dtype=np.int64)


def _ends(parts: list[bytes]) -> Ints:
    sizes = _wholes([len(part) for part in parts])
    return np.cumsum(sizes // sizes.itemsize, dtype=np.int64)
