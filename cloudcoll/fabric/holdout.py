"""How well a fabric predicts measurements that it was not made from."""

from __future__ import annotations

import math

import numpy as np

from cloudcoll.fabric.fair import fair_rounds, on_full_links
from cloudcoll.fabric.measured import Measured
from cloudcoll.fabric.tree import Fabric

WARN_ABOVE = 0.15
"""Median relative error from which a fabric is called a bad predictor."""


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


def holdout_warning(error: float) -> list[str]:
    """Return the line for a fabric that predicts badly, if it does."""
    if not error > WARN_ABOVE:
        return []
    return [
        f"the fabric misses measurements kept out of its fit by {error:.0%} (median): "
        "probe again with --full when the network is quiet"
    ]
