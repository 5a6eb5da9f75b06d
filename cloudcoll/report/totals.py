"""A snapshot's measurements in a few numbers, in SI units.

Pairs of hosts that one direction serves worse than the other are among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cloudcoll.arrays import Floats
from cloudcoll.infer.host_delays import beyond_chance
from cloudcoll.measured.merge import split
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.fair import fair_rounds
from cloudcoll.network.tree import Fabric

ASYMMETRY = 1.5
"""A pair with this many times the rate one way stands out."""


@dataclass(frozen=True)
class OneWay:
    """A pair that one direction serves worse than the other.

    Attributes
    ----------
    src, dst : str
        The worse direction.
    bytes_per_s, back_bytes_per_s : float
        Rates from `src` to `dst` and back; 0 where nothing arrived.
    """

    src: str
    dst: str
    bytes_per_s: float
    back_bytes_per_s: float


def one_way_pairs(snapshot: NetworkSnapshot, fabric: Fabric) -> list[OneWay]:
    """Return the pairs that one direction serves worse, the worst first.

    The rates must differ, and the lower one be less than the flows that ran
    beside it explain, by max-min fairness: a full uplink in one of the two rounds
    is no bad direction. And every transfer that way must be worse than chance explains,
    for which it takes three of them at least. One that was tried and brought
    nothing counts as 0. Pairs tried one way only say nothing.
    """
    flows = snapshot.flows
    if not len(flows.src):
        # A tree of ten thousand hosts that was imported has no room for pairs.
        return []
    rate = np.nan_to_num(flows.bytes_per_s)
    column = np.array([fabric.position(name) for name in snapshot.names], dtype=int)
    due, _ = fair_rounds(
        fabric.links, flows.round, column[flows.src], column[flows.dst]
    )
    share = rate / np.where(np.isinf(due), math.nan, due)
    best = np.full((2, len(snapshot.hosts), len(snapshot.hosts)), math.nan)
    np.fmax.at(best[0], (flows.src, flows.dst), share)
    np.fmax.at(best[1], (flows.src, flows.dst), rate)
    there, rates = best
    skewed = (best * ASYMMETRY < best.transpose(0, 2, 1)).all(axis=0)
    skewed &= there * ASYMMETRY < 1.0
    tried = int((np.isfinite(best[0]) & np.isfinite(best[0].T)).sum())
    for a, b in np.argwhere(skewed).tolist():
        mine = (flows.src == a) & (flows.dst == b)
        skewed[a, b] = beyond_chance(share[mine], share[~mine], tried)
    src, dst = np.nonzero(skewed)
    order = np.argsort(there[src, dst] / there[dst, src], kind="stable")
    names = snapshot.names
    return [
        OneWay(names[a], names[b], float(rates[a, b]), float(rates[b, a]))
        for a, b in zip(src[order].tolist(), dst[order].tolist(), strict=True)
    ]


@dataclass(frozen=True)
class RoundTrips:
    """All round trips together.

    Attributes
    ----------
    sent : int
        Requests.
    loss : float
        Share of them without an answer; NaN if none was sent.
    p50_s, p99_s : float
        Quantiles in seconds; NaN if none came back.
    """

    sent: int
    loss: float
    p50_s: float
    p99_s: float


@dataclass(frozen=True)
class Rates:
    """All transfers together.

    Attributes
    ----------
    transfers, rounds : int
        Transfers with a result, and the rounds that they ran in.
    p50_bytes_per_s, p1_bytes_per_s : float
        Quantiles; NaN for no transfer.
    """

    transfers: int
    rounds: int
    p50_bytes_per_s: float
    p1_bytes_per_s: float


@dataclass(frozen=True)
class Repeats:
    """What repeated measurements of the round trips have in common.

    Attributes
    ----------
    snapshots : int
        How many were merged.
    span_s : float
        Seconds between the first and the last.
    transient : float
        See `cloudcoll.measured.merge.Split.share`.
    src, dst : str
        The pair with the largest departure, empty for none.
    usual_s, once_s : float
        Its round trip, and what it was once; NaN for none.
    """

    snapshots: int
    span_s: float
    transient: float
    src: str = ""
    dst: str = ""
    usual_s: float = math.nan
    once_s: float = math.nan


def round_trips(snapshot: NetworkSnapshot) -> RoundTrips:
    """Return quantiles and loss of a snapshot's round trips."""
    trips, sent = snapshot.rtt.seconds, int(snapshot.rtt.sent.sum())
    loss = 1.0 - len(trips) / sent if sent else math.nan
    return RoundTrips(sent, loss, _quantile(trips, 0.5), _quantile(trips, 0.99))


def rates(snapshot: NetworkSnapshot) -> Rates:
    """Return quantiles of a snapshot's rates under load."""
    done = np.isfinite(snapshot.flows.bytes_per_s)
    found = snapshot.flows.bytes_per_s[done]
    return Rates(
        transfers=len(found),
        rounds=len(np.unique(snapshot.flows.round[done])),
        p50_bytes_per_s=_quantile(found, 0.5),
        p1_bytes_per_s=_quantile(found, 0.01),
    )


def repeats(snapshot: NetworkSnapshot) -> Repeats | None:
    """Return what the repeats of a merged snapshot say; None for another."""
    if not (merged := snapshot.metadata.get("merged")):
        return None
    span = merged[-1]["created"] - merged[0]["created"]
    parts = split(snapshot.latency_repeats)
    if (largest := parts.largest) is None:
        return Repeats(len(merged), span, parts.share)
    time, src, dst = largest
    usual = float(parts.constant[src, dst])
    return Repeats(
        snapshots=len(merged),
        span_s=span,
        transient=parts.share,
        src=snapshot.names[src],
        dst=snapshot.names[dst],
        usual_s=usual,
        once_s=usual + float(parts.transient[time, src, dst]),
    )


def _quantile(values: Floats, q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else math.nan
