"""How fast hosts send where their transfers stall.

Where a card drops at once what it does not carry (a policer), TCP mostly waits for its
timer, and no flow tells who shares a link with it. Flows that are no faster than the
cards of both ends lose packets only where they share a link. Nothing here touches a
network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.measured.snapshot import NetworkSnapshot

STALLED = 0.5
"""Share of the windows in which nothing arrives from which flows are paced: behind a
policer there are .7 to .9, in a short queue at most .3 (benchmarks/grid.py)."""

NEAR = 0.5
"""Windows that a round trip may take: in slow start data comes once in each, and the
windows between are empty without any stall."""

SUSTAINED = 4
"""Windows in a row, 100 ms, of which the fastest tell what a card carries: over fewer,
what a policer's bucket lets through at once counts for too much."""


@dataclass(frozen=True)
class CardRates:
    """What cards keep up.

    Attributes
    ----------
    out, into : tuple of int
        Bytes/s that each host has sent and taken, by position.
    """

    out: tuple[int, ...]
    into: tuple[int, ...]

    def between(self, src: int, dst: int) -> int:
        """Return how fast a host is to send to another, in bytes/s."""
        return min(self.out[src], self.into[dst])


def pace_of(snapshot: NetworkSnapshot) -> CardRates | None:
    """Return how fast hosts are to send; None if as fast as TCP does, as here."""
    flows = snapshot.flows
    first = flows.ends - np.diff(flows.ends, prepend=0)
    flow = np.repeat(np.arange(len(flows.src)), flows.ends - first)
    place = np.arange(len(flow)) - first[flow]
    trips = np.nan_to_num(snapshot.latency.values[flows.src, flows.dst])
    counted = (place >= flows.ramp_up) & (trips < NEAR * flows.window_s)[flow]
    if not counted.any() or (flows.window_bytes[counted] == 0).mean() < STALLED:
        return None
    total = np.concatenate([[0], np.cumsum(flows.window_bytes)])
    begin = np.flatnonzero(np.arange(len(flow)) + SUSTAINED <= flows.ends[flow])
    rate = (total[begin + SUSTAINED] - total[begin]) / (SUSTAINED * flows.window_s)
    fastest = np.zeros((2, len(snapshot.names)))
    for way, end in enumerate((flows.src, flows.dst)):
        np.maximum.at(fastest[way], end[flow[begin]], rate)
    if not fastest.any():
        return None
    out, into = (_known(way) for way in fastest)
    return CardRates(out, into)


def _known(fastest: Floats) -> tuple[int, ...]:
    """Return what each host keeps up, the usual figure where nothing came."""
    usual = float(np.median(fastest[fastest > 0]))
    return tuple(int(rate or usual) for rate in fastest.tolist())
