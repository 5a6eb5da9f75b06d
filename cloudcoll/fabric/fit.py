"""Link rates that explain all loaded rounds together.

What a link was seen to carry is only where the search starts: the flows on it
may have been held back elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cloudcoll.fabric.fair import fair_rounds
from cloudcoll.fabric.links import Links
from cloudcoll.fabric.measured import Measured
from cloudcoll.fabric.tree import Fabric, Node

STEPS = 12
"""Corrections tried at most."""

Floats = npt.NDArray[np.float64]


def fitted(root: Node, seen: Measured) -> Node:
    """Return the tree with the link rates that predict the rounds best.

    Each step predicts all rounds with max-min fairness and gives each link the
    rate at which the flows that it held back would together have been as fast
    as they were. It ends when the mean error no longer falls, so the result
    is never worse than the start. Links of unknown rate stay so.

    Parameters
    ----------
    root : Node
        Of exactly the measured hosts, with rates to start from.
    seen : Measured
    """
    if not len(seen.rate):
        return root
    fabric = Fabric(root)
    column = np.array([fabric.position(name) for name in seen.names])
    best = links = fabric.links()
    least = math.inf
    for _ in range(STEPS):
        rates, limits = fair_rounds(
            links, seen.round, column[seen.src], column[seen.dst]
        )
        held = limits >= 0
        error = _error(rates[held], seen.rate[held])
        if not error < least:
            break
        best, least = links, error
        links = _corrected(links, limits[held], rates[held], seen.rate[held])
    return _with_rates(root, fabric, best)


def _error(predicted: Floats, rate: Floats) -> float:
    """Return the mean error of rates, the same for twice and for half."""
    if not len(rate):
        return math.inf
    return float(np.mean(np.abs(np.log(predicted / rate))))


def _corrected(
    links: Links, limits: npt.NDArray[np.int64], predicted: Floats, rate: Floats
) -> Links:
    """Scale each link by what its flows got over what they should have got."""
    count = len(links.up)
    got = np.bincount(limits, rate, 2 * count)
    due = np.bincount(limits, predicted, 2 * count)
    scale = np.where(due > 0, got / np.maximum(due, 1e-9), 1.0)
    return replace(links, up=links.up * scale[:count], down=links.down * scale[count:])


def _with_rates(root: Node, fabric: Fabric, links: Links) -> Node:
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
