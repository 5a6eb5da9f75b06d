"""What uplinks are taken to carry where only groups are known.

Labels say who shares a switch and nothing of how fast it is; pairs measured one
at a time show groups, and not what these carry together. Every order would tie,
and yet hosts of one group side by side are the better bet: uplinks that carry
less than all hosts below them send are the rule (2:1 to 8:1 are common).
"""

from __future__ import annotations

import math
from dataclasses import replace

from cloudcoll.network.tree import Fabric, Node

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
    told = measured or fabric.links().latency.any()
    groups = [node for level in fabric.groups() for node in level]
    uplinks = [node for node in groups if node is not fabric.root]
    rates = [
        rate for n in uplinks for rate in (n.uplink_bytes_per_s, n.downlink_bytes_per_s)
    ]
    if told or not uplinks or not all(map(math.isnan, rates)):
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
