"""What a prediction assumes of links beside what was measured of them.

Links that differ by no more than they were measured to are taken as alike: an order
tuned to the errors of a measurement is slower than one that knows of no difference.
Rates and latencies of one level are shrunk toward their mean as far as the fabric's
own error explains their spread. Uplinks that were never seen full are given what
uplinks of their kind carry.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cloudcoll.network.tree import Fabric, Node

FIGURES = ("uplink_bytes_per_s", "downlink_bytes_per_s", "latency_s")


def with_alike_links(fabric: Fabric) -> Fabric:
    """Return a fabric to search on: without differences that may be noise.

    The logarithm of a figure keeps the share ``1 - error^2 / variance`` of its
    distance from the mean of its level, or none (positive-part empirical Bayes,
    Efron and Morris 1973). The error is that on held-out measurements: more than
    that of most links, so that small true differences go, too.

    Parameters
    ----------
    fabric : Fabric

    Returns
    -------
    Fabric
        The same where its error is not known.
    """
    if math.isnan(fabric.holdout_error):
        return fabric
    levels: dict[int, list[Node]] = {}
    for level, node in _levels(fabric.root, 0):
        levels.setdefault(level, []).append(node)
    shrunk = {
        (level, name): _shrunk([getattr(n, name) for n in nodes], fabric.holdout_error)
        for level, nodes in levels.items()
        for name in FIGURES
    }

    def walk(node: Node, level: int) -> Node:
        children = tuple(walk(child, level + 1) for child in node.children)
        figures = {
            name: shrunk[level, name].get(value, value)
            for name in FIGURES
            if not math.isnan(value := getattr(node, name))
        }
        return replace(node, children=children, **figures)

    return replace(fabric, root=walk(fabric.root, 0))


def _levels(node: Node, depth: int) -> Iterator[tuple[int, Node]]:
    """Yield every node with its distance from the root."""
    yield depth, node
    for child in node.children:
        yield from _levels(child, depth + 1)


def _shrunk(values: list[float], error: float) -> dict[float, float]:
    """Return what to take for each value that says something."""
    known = np.array([value for value in values if 0 < value < math.inf])
    if len(known) < 2:
        return {}
    logs = np.log(known)
    variance = float(logs.var(ddof=1))
    kept = max(0.0, 1 - error**2 / variance) if variance > 0 else 1.0
    shrunk = np.exp(logs.mean() + kept * (logs - logs.mean()))
    return dict(zip(known.tolist(), shrunk.tolist(), strict=True))


CARD = 1.25e9
"""Bytes/s assumed of a card of unknown rate: 10 Gbit/s."""

OVERSUBSCRIPTION = 4.0
"""Assumed of each group: its hosts' rates over that of its uplink."""

ASSUMPTION = (
    f"assumed, not measured: uplinks {OVERSUBSCRIPTION:g}:1, unknown cards alike; "
    "'cloudcoll probe' measures them"
)


def with_assumed_uplinks(fabric: Fabric) -> tuple[Fabric, str]:
    """Return a fabric to judge orders by, and what is assumed of it.

    Parameters
    ----------
    fabric : Fabric

    Returns
    -------
    fabric : Fabric
        The same if it was measured by a probe, where any uplink or latency is
        known, or where there are no groups.
    assumption : str
        Empty where nothing is assumed.
    """
    measured = fabric.origin not in ("labels", "imported")
    has_figures = measured or fabric.links().latency.any()
    groups = [node for level in fabric.groups() for node in level]
    uplinks = [node for node in groups if node is not fabric.root]
    rates = [
        rate for n in uplinks for rate in (n.uplink_bytes_per_s, n.downlink_bytes_per_s)
    ]
    if has_figures or not uplinks or not all(map(math.isnan, rates)):
        return fabric, ""
    return replace(fabric, root=_assumed(fabric.root)[0]), ASSUMPTION


def _assumed(node: Node) -> tuple[Node, float]:
    """Return the node with assumed rates, and the bytes/s of its hosts."""
    if not node.children:
        ways = (node.uplink_bytes_per_s, node.downlink_bytes_per_s)
        up, down = (CARD if math.isnan(rate) else rate for rate in ways)
        return replace(node, uplink_bytes_per_s=up, downlink_bytes_per_s=down), up
    children, rates = zip(*map(_assumed, node.children), strict=True)
    total = sum(rates)
    # No uplink is narrower than a card.
    uplink = total / min(OVERSUBSCRIPTION, len(list(node.leaves())))
    filled = replace(
        node,
        children=children,
        uplink_bytes_per_s=uplink,
        downlink_bytes_per_s=uplink,
    )
    return filled, total
