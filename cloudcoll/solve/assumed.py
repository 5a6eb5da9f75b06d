"""What a fabric of groups without a single speed is taken to be.

Labels say who shares a switch and nothing of how fast it is. Every order would
tie, and yet hosts of one group side by side are the better bet: uplinks that
carry less than all hosts below them send are the rule (2:1 to 8:1 are common).
"""

from __future__ import annotations

from dataclasses import replace

from cloudcoll.fabric.tree import Fabric, Node

CARD = 1.25e9
"""Bytes/s assumed of each host's card: 10 Gbit/s."""

OVERSUBSCRIPTION = 4.0
"""Assumed of each group: its hosts' rates over that of its uplink."""

ASSUMPTION = (
    f"assumed, not measured: all cards alike, all uplinks {OVERSUBSCRIPTION:g}:1; "
    "'cloudcoll probe --labels' measures them"
)


def with_assumed_speeds(fabric: Fabric) -> tuple[Fabric, str]:
    """Return a fabric to judge orders by, and what is assumed of it.

    Parameters
    ----------
    fabric : Fabric

    Returns
    -------
    fabric : Fabric
        The same where anything is known of its speeds, or where it is flat.
    assumption : str
        Empty where nothing is assumed.
    """
    if fabric.has_speeds() or len(fabric.groups()) < 2:
        return fabric, ""
    return replace(fabric, root=_assumed(fabric.root)[0]), ASSUMPTION


def _assumed(node: Node) -> tuple[Node, float]:
    """Return the node with assumed rates, and the bytes/s of its hosts."""
    if not node.children:
        return replace(node, uplink_bytes_per_s=CARD, downlink_bytes_per_s=CARD), CARD
    children, rates = zip(*map(_assumed, node.children), strict=True)
    total = sum(rates)
    uplink = max(total / OVERSUBSCRIPTION, CARD)
    filled = replace(
        node,
        children=children,
        uplink_bytes_per_s=uplink,
        downlink_bytes_per_s=uplink,
    )
    return filled, total
