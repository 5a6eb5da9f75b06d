"""How thorough a probe can be.

A thousand hosts take 90 s in a standard probe and 10 minutes in a full one, at
most; ``benchmarks/scale.py`` shows what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SLOT_S = 0.025
"""Seconds between rounds of latency, at least: a hundred round trips of 200 us."""


@dataclass(frozen=True)
class Mode:
    """How thorough a probe is.

    Attributes
    ----------
    samples : int
        Round trips per pair, spread over `ports` source ports, because the
        equal-cost paths of a data centre are chosen by port.
    warm_up : int
        Round trips on each port before its samples.
    rtt_s : float
        Seconds that a pair has for them, at most.
    mesh_s : float
        Seconds for the latency of all pairs: where these are many, each has
        less, down to `LEAST_SLOT_S`.
    loaded_rounds : int
        Rounds of the tournament that are also run under load, at most.
    repeats : int
        Times that all is done, spread over the probe.
    both_ways : bool
        Whether each pair is measured in both directions.
    sure_s : float
        Seconds for more loaded rounds, at most, as long as it is not sure from these
        who shares a link.
    uplink_s : float
        Seconds for a second phase that loads the uplinks found, at most; less
        for fewer than `plan.UPLINK_HOSTS`.
    """

    samples: int
    ports: int
    warm_up: int
    rtt_s: float
    mesh_s: float
    loaded_rounds: int
    repeats: int = 1
    both_ways: bool = False
    sure_s: float = 0.0
    uplink_s: float = 0.0


MODES = {
    "quick": Mode(
        samples=40,
        ports=4,
        warm_up=2,
        rtt_s=0.03,
        mesh_s=1.0,
        loaded_rounds=4,
        # With what comes before, agents' start included, 16 hosts take 15 s.
        sure_s=6.0,
    ),
    "standard": Mode(
        samples=104,
        ports=8,
        warm_up=3,
        rtt_s=0.06,
        mesh_s=50.0,
        loaded_rounds=40,
        sure_s=15.0,
        uplink_s=18.0,
    ),
    "full": Mode(
        samples=104,
        ports=8,
        warm_up=3,
        rtt_s=0.06,
        mesh_s=50.0,
        loaded_rounds=300,
        repeats=3,
        both_ways=True,
        sure_s=30.0,
        uplink_s=60.0,
    ),
}
