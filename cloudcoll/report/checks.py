"""When a snapshot is not to be trusted, why, and what to run next."""

from __future__ import annotations

import numpy as np

from cloudcoll.report import units
from cloudcoll.snapshot import NetworkSnapshot

STALE = 3600.0
"""Seconds after which a snapshot is called old."""

FEW_SAMPLES = 20
SPREAD = 3.0
"""p90 over p10 of a pair's round trips above which a pair counts as noisy."""

NOISY_PAIRS = 0.25
LOSS = 0.01
ASYMMETRY = 1.5


def check_snapshot(snapshot: NetworkSnapshot) -> list[str]:
    """Return one line per doubt; an empty list means none."""
    return [
        line
        for check in (_age, _samples, _spread, _loss, _asymmetry, _load)
        if (line := check(snapshot))
    ] + list(snapshot.fabric.warnings if snapshot.fabric else ())


def _age(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.age < 0:
        return "it was made in the future: check the clocks, or probe again"
    if snapshot.age > STALE:
        return f"it is {units.seconds(snapshot.age)} old: probe again"
    return None


def _samples(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.origin == "imported":
        # One figure for each pair is all that a matrix has.
        return None
    counts = np.diff(snapshot.rtt.ends, prepend=0)
    few = int((counts < FEW_SAMPLES).sum())
    if few:
        return (
            f"{few} of {len(counts)} pairs have fewer than {FEW_SAMPLES} round trips: "
            "probe again with --standard"
        )
    return None


def _spread(snapshot: NetworkSnapshot) -> str | None:
    pairs = range(len(snapshot.rtt.src))
    samples = [s for pair in pairs if len(s := snapshot.rtt.of(pair)) >= 10]
    noisy = sum(
        np.quantile(values, 0.9) > SPREAD * np.quantile(values, 0.1)
        for values in samples
    )
    if noisy > NOISY_PAIRS * max(len(samples), 1):
        return (
            f"round trips of {noisy} of {len(samples)} pairs scatter more than "
            f"{SPREAD:.0f}x: something else uses these hosts or links; probe again "
            "when it is quiet"
        )
    return None


def _loss(snapshot: NetworkSnapshot) -> str | None:
    lossy = np.argwhere(snapshot.loss > LOSS)
    if not len(lossy):
        return None
    src, dst = (snapshot.names[i] for i in lossy[0])
    share = snapshot.loss[tuple(lossy[0])]
    return (
        f"{len(lossy)} pairs lose more than {LOSS:.0%} of packets, such as "
        f"{src} to {dst} with {share:.0%}: look at their links"
    )


def _asymmetry(snapshot: NetworkSnapshot) -> str | None:
    rate = snapshot.bandwidth.values
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = rate / rate.T
    skewed = np.argwhere(ratio > ASYMMETRY)
    if not len(skewed):
        return None
    src, dst = (snapshot.names[i] for i in skewed[0])
    return (
        f"{len(skewed)} pairs are more than {ASYMMETRY}x faster one way, such as "
        f"{src} to {dst}: 'cloudcoll probe --full' measures both ways alike"
    )


def _load(snapshot: NetworkSnapshot) -> str | None:
    if snapshot.origin == "imported" and not len(snapshot.rtt.src):
        # A tree that was read brings its own capacities, or a warning of none.
        return None
    if len(snapshot.hosts) > 1 and not np.isfinite(snapshot.flows.bytes_per_s).any():
        return "no bandwidth was measured: orders are judged by latency alone"
    return None
