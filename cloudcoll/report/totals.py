"""A snapshot's measurements in a few numbers, in SI units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cloudcoll.measured.merge import split
from cloudcoll.measured.samples import Floats
from cloudcoll.measured.snapshot import NetworkSnapshot


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
