"""The agents' reports, checked against the plan and put into a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from cloudcoll.probe.frames import Frame, FrameError
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.snapshot import LoadedFlows, RttSamples

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
        Only what it asked for is taken, and only once.
    progress : callable, optional
        Called with meetings reported and meetings planned.
    """

    def __init__(self, plan: ProbePlan, progress: Progress | None = None) -> None:
        self._plan = plan
        self._progress = progress
        # (slot, reporter) -> peer: the asker reports round trips, the receiver
        # what arrived.
        self._rtt: dict[tuple[int, int], int] = {}
        self._flow: dict[tuple[int, int], int] = {}
        for slot in plan.rounds():
            for src, dst in slot.pairs:
                if slot.kind == "rtt":
                    self._rtt[slot.number, src] = dst
                else:
                    self._flow[slot.number, dst] = src
        self._reports: dict[tuple[str, int, int], Frame] = {}
        self.troubles: list[dict[str, Any]] = []

    def add(self, position: int, frame: Frame) -> None:
        """Take one report of the agent at `position`.

        Raises
        ------
        FrameError
            It was not asked for, or came before.
        """
        kind, slot = frame["type"], frame["slot"]
        if kind == "trouble":
            if len(self.troubles) < TROUBLES:
                peer = frame["peer"]
                trouble = {"host": position, "peer": peer, "text": frame["text"]}
                self.troubles.append(trouble)
            return
        planned = self._rtt if kind == "rtt" else self._flow
        key = (kind, slot, position)
        if planned.get((slot, position)) != frame["peer"] or key in self._reports:
            raise FrameError(f"{kind} report of slot {slot} that nobody asked for")
        if kind == "rtt" and len(frame["ns"]) > frame["sent"]:
            raise FrameError(f"{len(frame['ns'])} replies to {frame['sent']} requests")
        self._reports[key] = frame
        if self._progress:
            self._progress(len(self._reports), len(self._rtt) + len(self._flow))

    def rtt(self, dead: Collection[int]) -> RttSamples:
        """Return the round trips of all planned pairs without a `dead` host."""
        pairs: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        for (slot, src), dst in self._rtt.items():
            if src in dead or dst in dead:
                continue
            sent, nanoseconds = pairs.setdefault((src, dst), ([], []))
            if report := self._reports.get(("rtt", slot, src)):
                sent.append(report["sent"])
                nanoseconds += report["ns"]
        samples = [nanoseconds for _, nanoseconds in pairs.values()]
        return RttSamples(
            src=_wholes([src for src, _ in pairs]),
            dst=_wholes([dst for _, dst in pairs]),
            sent=_wholes([sum(sent) for sent, _ in pairs.values()]),
            ends=_ends(samples),
            seconds=_wholes(sum(samples, [])) * 1e-9,
        )

    def flows(self, dead: Collection[int]) -> LoadedFlows:
        """Return all planned flows without a `dead` host, in order of time."""
        rows = [
            (slot, src, dst)
            for (slot, dst), src in self._flow.items()
            if src not in dead and dst not in dead
        ]
        windows = [
            report["windows"]
            if (report := self._reports.get(("flow", slot, dst)))
            else []
            for slot, _, dst in rows
        ]
        return LoadedFlows(
            round=_wholes([slot for slot, _, _ in rows]),
            src=_wholes([src for _, src, _ in rows]),
            dst=_wholes([dst for _, _, dst in rows]),
            ends=_ends(windows),
            window_bytes=_wholes(sum(windows, [])),
            window_s=self._plan.window_s,
            ramp_up=RAMP_UP,
        )


def _wholes(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def _ends(parts: list[list[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.cumsum(_wholes([len(part) for part in parts]), dtype=np.int64)
