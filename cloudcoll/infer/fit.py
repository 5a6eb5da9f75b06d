"""Link rates that explain all loaded rounds together.

What a link was seen to carry is only where the search starts: the flows on it
may have been held back elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cloudcoll.infer.measured import Measured
from cloudcoll.network.fair import Flows
from cloudcoll.network.links import Links
from cloudcoll.network.tree import Fabric, Node

STEPS = 12
"""Corrections tried at most."""
FULLEST = 0.85
"""Quantile of the rounds that filled a link which tells its rate: flows that
meet often get less out of a link together, and never more than there is."""

SURELY = 0.85
"""Share of the highest rate of a flow that was alone on a link which the link carries
for sure: a rate is read too high by 10 to 15 % now and then."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def fitted(root: Node, seen: Measured) -> Node:
    """Return the tree with the link rates that predict the rounds best.

    Links of unknown rate stay so.

    Parameters
    ----------
    root : Node
        Of exactly the measured hosts, with rates to start from.
    seen : Measured
    """
    fabric = Fabric(root)
    links = fabric.links()
    column = np.array([fabric.position(name) for name in seen.names])
    flows = Flows(links, seen.round, column[seen.src], column[seen.dst])
    carried = SURELY * flows.alone(seen.rate)
    return with_rates(root, fabric, fitted_links(links, flows, seen.rate, carried))


def fitted_links(
    links: Links, flows: Flows, rate: Floats, carried: Floats | None = None
) -> Links:
    """Return links with the rates that predict the rounds best.

    Each step predicts all rounds with max-min fairness and scales each link by
    what it carried when it was full over what it should have carried: in the
    median round, because a flow that stalls says nothing of the link. It ends
    when the mean error no longer falls, so the result is never worse than the
    start.

    Parameters
    ----------
    links : Links
        With rates to start from; infinite ones stay so.
    flows : Flows
    rate : ndarray of float64, shape (flows,)
        Bytes/s that were measured.
    carried : ndarray of float64, shape (2 links,), optional
        What each link, up ones and then down ones, carries at least; NaN for no such
        bound. Who shares a link is judged without: groups that are wrong then look
        as good as those that are right.
    """
    best, least = links, math.inf
    for _ in range(STEPS):
        if carried is not None:
            links = _at_least(links, carried)
        rates, limits = flows.shared(links)
        full, (got, due) = flows.on_full(limits, rate, rates)
        held = limits >= 0
        error = math.inf
        if held.any():
            # Of each flow, not of each full link: which links are full changes.
            error = float(np.mean(np.abs(np.log(rates[held] / rate[held]))))
        if not error < least:
            break
        best, least = links, error
        links = _corrected(links, full, got / due)
    return best


def _at_least(links: Links, carried: Floats) -> Links:
    """Return links that can carry what they did carry; NaN says nothing."""
    up, down = np.split(carried, 2)
    return replace(links, up=np.fmax(links.up, up), down=np.fmax(links.down, down))


def _corrected(links: Links, full: Ints, ratio: Floats) -> Links:
    """Scale each link by its ratio in the fullest of its rounds."""
    count = len(links.up)
    scale = np.ones(2 * count)
    # All quantiles at once, as numpy.quantile interpolates them.
    order = np.lexsort((ratio, full))
    which, first, cases = np.unique(full[order], return_index=True, return_counts=True)
    place = FULLEST * (cases - 1)
    low = first + place.astype(np.int64)
    high = first + np.ceil(place).astype(np.int64)
    ordered = ratio[order]
    scale[which] = ordered[low] + (place % 1.0) * (ordered[high] - ordered[low])
    return replace(links, up=links.up * scale[:count], down=links.down * scale[count:])


def with_rates(root: Node, fabric: Fabric, links: Links) -> Node:
    """Return the tree with the rates of `links`, NaN where these are free."""
    rates: dict[int, tuple[float, float]] = {}

    def read(node: Node, depth: int) -> str:
        """Note the rates of a node's link, and return one of its hosts."""
        name = [read(child, depth + 1) for child in node.children] or [node.name]
        if depth >= 0:
            link = links.member[depth, fabric.position(name[0])]
            rates[id(node)] = (float(links.up[link]), float(links.down[link]))
        return name[0]

    read(root, -1)

    def fill(node: Node) -> Node:
        up, down = rates.get(id(node), (math.inf, math.inf))
        return replace(
            node,
            children=tuple(map(fill, node.children)),
            uplink_bytes_per_s=up if math.isfinite(up) else math.nan,
            downlink_bytes_per_s=down if math.isfinite(down) else math.nan,
        )

    return fill(root)
