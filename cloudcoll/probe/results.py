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
    """

    def __init__(self, plan: ProbePlan, progress: Progress | None = None) -> None:
        self.troubles: list[tuple[int, int, str]] = []
        self._plan = plan
        self._progress = progress
        # (kind, slot, reporter) -> peer: the asker reports round trips, the
        # receiver what arrived.
        self._planned: dict[tuple[str, int, int], int] = {}
        self._values: dict[tuple[str, int, int], Ints] = {}
        self._sent: dict[tuple[str, int, int], int] = {}
        self.expect(plan.rounds())

    def expect(self, rounds: Iterable[Round]) -> None:
        """Take reports of these rounds, too."""
        for slot in rounds:
            for src, dst in slot.pairs:
                if slot.kind == "rtt":
                    self._planned["rtt", slot.number, src] = dst
                else:
                    self._planned["flow", slot.number, dst] = src

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
        key = (kind, frame.get("slot", 0), position)
        if key not in self._planned or self._planned[key] != frame["peer"]:
            raise FrameError(f"{kind} report that nobody asked for")
        if key in self._values:
            raise FrameError(f"{kind} report that came before")
        values = frame["ns"] if kind == "rtt" else frame["windows"]
        if kind == "rtt" and len(values) > frame["sent"]:
            raise FrameError(f"{len(values)} replies to {frame['sent']} requests")
        self._values[key] = _wholes(values)
        self._sent[key] = frame.get("sent", 0)
        if self._progress:
            self._progress(*self.count)

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

    def rtt(self, dead: Set[int]) -> RttSamples:
        """Return the round trips of all planned pairs without a `dead` host."""
        sent: dict[tuple[int, int], int] = {}
        taken: dict[tuple[int, int], list[Ints]] = {}
        for key, peer in self._planned.items():
            pair = (key[2], peer)
            if key[0] == "rtt" and dead.isdisjoint(pair):
                sent[pair] = sent.get(pair, 0) + self._sent.get(key, 0)
                taken.setdefault(pair, []).append(self._values.get(key, _wholes([])))
        samples = [np.concatenate(parts) for parts in taken.values()]
        return RttSamples(
            src=_wholes([src for src, _ in sent]),
            dst=_wholes([dst for _, dst in sent]),
            sent=_wholes(list(sent.values())),
            ends=_ends(samples),
            seconds=_joined(samples).astype(np.float64) * 1e-9,
        )

    def flows(self, dead: Set[int]) -> LoadedFlows:
        """Return all planned flows without a `dead` host, in order of time."""
        rows = [
            (key, peer)
            for key, peer in self._planned.items()
            if key[0] == "flow" and dead.isdisjoint((key[2], peer))
        ]
        windows = [self._values.get(key, _wholes([])) for key, _ in rows]
        return LoadedFlows(
            round=_wholes([slot for (_, slot, _), _ in rows]),
            src=_wholes([src for _, src in rows]),
            dst=_wholes([dst for (_, _, dst), _ in rows]),
            ends=_ends(windows),
            window_bytes=_joined(windows),
            window_s=self._plan.window_s,
            ramp_up=RAMP_UP,
        )

    def messages(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return the troubles with host names, JSON-ready."""
        return [
            {"host": names[host], "peer": names[peer], "text": text}
            for host, peer, text in self.troubles
            if peer < len(names)
        ]


def _wholes(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([_wholes([]), *parts])


def _ends(parts: list[Ints]) -> Ints:
    return np.cumsum(_wholes([len(part) for part in parts]), dtype=np.int64)
