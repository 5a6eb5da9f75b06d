"""How well a fabric predicts measurements that it was not made from."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cloudcoll.infer.measured import Ints, Measured
from cloudcoll.measured.samples import RttSamples
from cloudcoll.measured.snapshot import RTT_QUANTILE
from cloudcoll.network.fair import Flows
from cloudcoll.network.tree import Fabric

Floats = npt.NDArray[np.float64]

WARN_ABOVE = 0.15
"""Median relative error from which a fabric is called a bad predictor."""

MOSTLY = 0.5
"""Share of the error from which it is put down to what rounds differ by. With the
right tree it is mostly above, as links' rates are read off their fullest rounds."""


def prediction_error(fabric: Fabric, held: Measured) -> float:
    """Return the median relative error on measurements kept out of the fit.

    Of those of `prediction_errors` the worse one: pairs are many more than links
    and would hide them. NaN where neither is known.

    Parameters
    ----------
    fabric : Fabric
        Of the hosts of `held`.
    held : Measured
    """
    return float(np.fmax(*prediction_errors(fabric, held)))


def prediction_errors(fabric: Fabric, held: Measured) -> tuple[float, float]:
    """Return the median relative errors for round trips and for full links.

    Full links by what they carried. NaN where nothing was kept out, or nothing of
    it can be predicted.
    """
    column = np.array([fabric.position(name) for name in held.names])
    links = fabric.links()
    a, b = np.nonzero(np.triu(np.isfinite(held.rtt), 1))
    trips = links.pair_rtt()[column[a], column[b]]
    ends = column[held.src], column[held.dst]
    flows = Flows(links, held.round, *ends)
    rates, limits = flows.shared(links)
    _, (got, due) = flows.on_full(limits, held.rate, rates)
    shown = trips > 0
    return (
        _median(np.abs(trips / held.rtt[a, b] - 1)[shown]),
        _median(np.abs(due / got - 1)),
    )


def _median(errors: Floats) -> float:
    return float(np.median(errors)) if len(errors) else math.nan


def scatter(rtt: RttSamples) -> float:
    """Return by how much round trips of one pair are longer than its shortest ones.

    The median over the pairs, as a share; NaN where there are none.
    """
    longer = rtt.quantile(0.5) / rtt.quantile(RTT_QUANTILE) - 1.0
    return _median(longer[np.isfinite(longer)])


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
        ends = column[seen.src[these]], column[seen.dst[these]]
        flows = Flows(links, seen.round[these], *ends)
        _, limits = flows.shared(links)
        _, (carried,) = flows.on_full(limits, seen.rate[these])
        # The same flows fill the same links in each of the rounds.
        got = carried.reshape(count, -1)
        others = (got.sum(axis=0) - got) / (count - 1)
        errors.append(np.abs(others / got - 1.0).ravel() * math.sqrt(1 - 1 / count))
    return _median(np.concatenate(errors)) if errors else math.nan


def holdout_warning(error: float, noise: float = math.nan, mode: str = "") -> list[str]:
    """Return the line for a fabric that predicts badly, if it does.

    Parameters
    ----------
    error : float
        See `prediction_error`.
    noise : float
        By how much the same measurement differs from time to time: `unevenness` for
        an error of links, `scatter` for one of round trips.
    mode : str
        Of the probe; after a full one there is no better.
    """
    if not error > WARN_ABOVE:
        return []
    missed = f"measurements kept out of its fit by {error:.0%} (median)"
    if noise >= MOSTLY * error:
        return [
            f"the fabric misses {missed}, mostly because the same measurement differs "
            f"by {noise:.0%} from one time to the next: busy hosts and TCP do that, "
            "and more measuring will not change it"
        ]
    if mode == "full":
        return [
            f"the fabric misses {missed}: something in this network is not in the "
            "model, and predictions may be off by as much"
        ]
    return [
        f"the fabric misses {missed}: probe again with --full when the network is quiet"
    ]
