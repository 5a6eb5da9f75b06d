"""How well a fabric predicts measurements that it was not made from."""

from __future__ import annotations

import math

import numpy as np

from cloudcoll.fabric.fair import fair_rounds, on_full_links
from cloudcoll.fabric.measured import Ints, Measured
from cloudcoll.fabric.tree import Fabric

WARN_ABOVE = 0.15
"""Median relative error from which a fabric is called a bad predictor."""

MOSTLY = 0.7
"""Share of the error from which what rounds differ by explains it: errors add up by
their squares, so that it is half of the error then."""


def prediction_error(fabric: Fabric, held: Measured) -> float:
    """Return the median relative error on measurements kept out of the fit.

    Of the medians for round trips and for what full links carried the worse
    one counts: pairs are many more than links and would hide them. NaN where
    nothing was kept out, or nothing of it can be predicted.

    Parameters
    ----------
    fabric : Fabric
        Of the hosts of `held`.
    held : Measured
    """
    column = np.array([fabric.position(name) for name in held.names])
    links = fabric.links()
    a, b = np.nonzero(np.triu(np.isfinite(held.rtt), 1))
    trips = links.pair_rtt()[column[a], column[b]]
    flows = (held.round, column[held.src], column[held.dst])
    rates, limits = fair_rounds(links, *flows)
    _, (got, due) = on_full_links(links, *flows, limits, held.rate, rates)
    shown = trips > 0
    errors = [np.abs(trips / held.rtt[a, b] - 1)[shown], np.abs(due / got - 1)]
    return max((float(np.median(e)) for e in errors if len(e)), default=math.nan)


def unevenness(fabric: Fabric, seen: Measured) -> float:
    """Return the median relative error that no fabric could avoid.

    By how much what full links carry differs between rounds of the very same
    flows: each is predicted from the others, so that the error of these, too, is
    in the difference and is taken off. NaN where no round was repeated.

    Parameters
    ----------
    fabric : Fabric
        Of the hosts of `seen`.
    seen : Measured
    """
    column = np.array([fabric.position(name) for name in seen.names])
    links = fabric.links()
    order = np.lexsort((seen.dst, seen.src, seen.round))
    flow = seen.src * len(column) + seen.dst
    same: dict[bytes, list[Ints]] = {}
    starts = np.flatnonzero(np.diff(seen.round[order])) + 1
    for one in np.split(order, starts) if len(order) else ():
        same.setdefault(flow[one].tobytes(), []).append(one)
    errors = []
    for repeats in same.values():
        if (count := len(repeats)) < 2:
            continue
        these = np.concatenate(repeats)
        flows = (seen.round[these], column[seen.src[these]], column[seen.dst[these]])
        _, limits = fair_rounds(links, *flows)
        _, (carried,) = on_full_links(links, *flows, limits, seen.rate[these])
        # The same flows fill the same links in each of the rounds.
        got = carried.reshape(count, -1)
        others = (got.sum(axis=0) - got) / (count - 1)
        errors.append(np.abs(others / got - 1.0).ravel() * math.sqrt(1 - 1 / count))
    return float(np.median(np.concatenate(errors))) if errors else math.nan


def holdout_warning(error: float, noise: float = math.nan, mode: str = "") -> list[str]:
    """Return the line for a fabric that predicts badly, if it does.

    Parameters
    ----------
    error : float
        See `prediction_error`.
    noise : float
        See `unevenness`.
    mode : str
        Of the probe; after a full one there is no better.
    """
    if not error > WARN_ABOVE:
        return []
    missed = f"measurements kept out of its fit by {error:.0%} (median)"
    if noise >= MOSTLY * error:
        return [
            f"the fabric misses {missed}, mostly because the same transfers differ by "
            f"{noise:.0%} from round to round: a single call may take that much "
            "longer or shorter than predicted, and more measuring will not change it"
        ]
    if mode == "full":
        return [
            f"the fabric misses {missed}: something in this network is not in the "
            "model, and predictions may be off by as much"
        ]
    return [
        f"the fabric misses {missed}: probe again with --full when the network is quiet"
    ]
