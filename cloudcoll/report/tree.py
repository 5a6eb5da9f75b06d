"""A fabric as a tree of lines: groups, their links, their hosts."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from cloudcoll import units
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.plain import plain_line
from cloudcoll.report.findings import oversubscription

NAMES_SHOWN = 16
_DEEPER = {"": "", "├─ ": "│  ", "└─ ": "   "}


def fabric_lines(
    fabric: Fabric, silent: frozenset[str] = frozenset(), width: int = 80
) -> list[str]:
    """Return the tree: a line for each group with its link, its hosts below.

    Parameters
    ----------
    fabric : Fabric
    silent : frozenset of str
        Hosts of which nothing was measured; they are said to be.
    width : int
        Columns that names are wrapped at.
    """

    def walk(node: Node, prefix: str, branch: str) -> Iterator[str]:
        groups = [child for child in node.children if child.children]
        hosts = [child for child in node.children if not child.children]
        plain = [host for host in hosts if host.name not in silent]
        # Hosts beside groups have links of their own to show.
        lone = [host for host in hosts if groups or host.name in silent]
        yield f"{prefix}{branch}{_group_line(fabric, node)}"
        deeper = prefix + _DEEPER[branch]
        items = groups + lone
        if not groups and plain:
            indent = deeper + ("│  " if items else "   ")
            yield from _names([host.name for host in plain], indent, width)
        for item in items:
            corner = "└─ " if item is items[-1] else "├─ "
            if item.children:
                yield from walk(item, deeper, corner)
            else:
                what = "nothing measured" if item.name in silent else _link(item)
                yield f"{deeper}{corner}{item.name}  {what}".rstrip()

    return list(walk(fabric.root, "", ""))


def _group_line(fabric: Fabric, node: Node) -> str:
    hosts = units.count(len(list(node.leaves())), "host")
    what = "core" if node is fabric.root else f"group {node.name}"
    parts = [f"{what}: {hosts}"]
    if not math.isnan(rtt := fabric.rtt(node)):
        parts.append(f"rtt {units.seconds(rtt)}")
    if node is not fabric.root:
        # Labels and other people's trees know of no load.
        unknown = "uplink never full" if fabric.origin == "measured" else ""
        parts.append(_link(node) or unknown)
        if not math.isnan(ratio := oversubscription(node)):
            parts.append(f"{ratio:.1f}:1")
    return "  ".join(part for part in parts if part)


def _link(node: Node) -> str:
    up, down = node.uplink_bytes_per_s, node.downlink_bytes_per_s
    if math.isnan(up) and math.isnan(down):
        return ""
    return f"up {units.bit_rate(up)} down {units.bit_rate(down)}"


def _names(names: Sequence[str], indent: str, width: int) -> list[str]:
    left = len(names) - NAMES_SHOWN
    more = [f"and {left} more"] if left > 0 else []
    return textwrap.wrap(
        plain_line(" ".join([*names[:NAMES_SHOWN], *more])),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
