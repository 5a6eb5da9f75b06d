"""How fast hosts send where their transfers stall, as they do behind a policer.

A policer drops what is above its rate and holds nothing: TCP then waits for its timer
most of the time, and what gets through tells little of who shares a link. Transfers
that are sent no faster than the cards carry get through, but where a link is shared.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from cloudcoll.measured.samples import LoadedFlows
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

FAST = 0.75
"""Quantile of hosts' fastest 100 ms from which a pace is looked for: at 8:1 the median
is an uplink's rate, and the highest ones have a policer's bucket in them."""

LADDER = tuple(1.25**step for step in range(-2, 6))
"""Paces that are tried, over that quantile, which was .4 to 1.1 times what cards carry
in the grid's networks. The lowest is what is left where none gets through."""

TRIES = 3
"""Paces that halving the ladder tries: all but its lowest are seven."""

TRIED_ROUNDS = 2
"""Rounds in which a pace is tried: among 16 hosts in racks of four, three of their 16
pairs share a rack, and none in one of thirty tries."""

THROUGH = 0.9
"""Share of its pace that a transfer gets through with: at the next pace that is tried,
a card that carries no more than this one lets .8 through."""

ENOUGH = 2
"""Transfers that get through: those of a pair, one each way."""


def usual_pace(snapshot: NetworkSnapshot) -> int:
    """Return what most hosts' cards keep up for 100 ms, roughly, in bytes/s.

    0 where flows are as fast as TCP sends, and need no pace.
    """
    flows = snapshot.flows
    first = flows.ends - np.diff(flows.ends, prepend=0)
    flow = np.repeat(np.arange(len(flows.src)), flows.ends - first)
    place = np.arange(len(flow)) - first[flow]
    trips = np.nan_to_num(snapshot.latency.values[flows.src, flows.dst])
    counted = (place >= flows.ramp_up) & (trips < NEAR * flows.window_s)[flow]
    if not counted.any() or (flows.window_bytes[counted] == 0).mean() < STALLED:
        return 0
    total = np.concatenate([[0], np.cumsum(flows.window_bytes)])
    begin = np.flatnonzero(np.arange(len(flow)) + SUSTAINED <= flows.ends[flow])
    rate = (total[begin + SUSTAINED] - total[begin]) / (SUSTAINED * flows.window_s)
    fastest = np.zeros(len(snapshot.names))
    for end in (flows.src, flows.dst):
        np.maximum.at(fastest, end[flow[begin]], rate)
    # Of whom nothing came nothing is known.
    heard = fastest[fastest > 0]
    return int(np.quantile(heard, FAST)) if len(heard) else 0


def highest_pace(usual: int, gets_through: Callable[[int], bool]) -> int:
    """Return the highest pace of a ladder around the usual one that gets through.

    Parameters
    ----------
    usual : int
        Bytes/s, of `usual_pace`.
    gets_through : callable
        Tries a pace in bytes/s; called `TRIES` times.
    """
    paces = [int(usual * step) for step in LADDER]
    stuck = bisect.bisect(paces, False, lo=1, key=lambda pace: not gets_through(pace))
    return paces[stuck - 1]


def through(flows: LoadedFlows, first: int, pace: int) -> bool:
    """Return whether some of the flows from round `first` on got through at a pace."""
    rates = flows.bytes_per_s[flows.round >= first]
    return int((rates >= THROUGH * pace).sum()) >= ENOUGH
