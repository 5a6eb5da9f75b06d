"""Pairs of hosts that one direction serves worse than the other, in SI units."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cloudcoll.infer.chance import beyond_chance
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
        fabric.links(), flows.round, column[flows.src], column[flows.dst]
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
