"""A matrix of pairs as a heat map of block characters."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from cloudcoll import units
from cloudcoll.arrays import Floats
from cloudcoll.measured.samples import PairMatrix
from cloudcoll.network.tree import Fabric, Node

MAX_HOSTS = 64
"""More do not fit a terminal."""

SHADES = "░▒▓█"
NOT_MEASURED = "·"
MIN_SPAN = 2.0
"""The scale spans at least this factor: noise must not look like structure."""

_ANSI = dict(zip(SHADES, (32, 33, 31, 35), strict=True))
_WIDTH = 80
_LABEL = 14
_TITLES = {"rtt": "round trip", "bandwidth": "highest rate seen under load"}
_UNITS: dict[str, Callable[[float], str]] = {
    "rtt": units.seconds,
    "bandwidth": units.bit_rate,
}


def heatmap_lines(
    matrix: PairMatrix, names: Sequence[str], fabric: Fabric
) -> list[str]:
    """Return the map: a row per sender, a column per receiver, dark is slow.

    Title, groups, rows and a legend with units; at most 80 columns for `MAX_HOSTS`
    hosts. These stand in the order of `fabric`, with gaps between groups where they
    fit.
    """
    edges = shade_edges(matrix)
    return [
        f"{_TITLES[matrix.kind]} from a row's host to a column's; dark is slow",
        *_rows(_cells(matrix, edges), names, fabric),
        _legend(matrix.kind, edges),
    ]


def _rows(
    cells: list[list[str]], names: Sequence[str], fabric: Fabric
) -> Iterator[str]:
    """Yield a line with the groups and one for each host, as wide as fits."""
    groups, labels = _groups(fabric.root), _labels(names)
    left = max(map(len, ["group", *labels.values()]))
    room = _WIDTH - 1 - left - (len(groups) - 1)
    gap = " " if len(names) <= room else ""
    wide = 2 if 2 * len(names) <= room else 1
    spans = [(name, len(hosts) * wide) for name, hosts in groups]
    heads = [f"{name[:span]:<{span}}" for name, span in spans]
    yield f"{'group':>{left}} {gap.join(heads)}".rstrip()
    for _, senders in groups:
        for sender in senders:
            row = dict(zip(names, cells[names.index(sender)], strict=True))
            blocks = [
                "".join(row[host] * wide for host in hosts) for _, hosts in groups
            ]
            yield f"{labels[sender]:>{left}} {gap.join(blocks)}".rstrip()
        if gap:
            yield ""


def group_names(fabric: Fabric) -> dict[str, str]:
    """Return the lowest group of each host."""
    return {host: name for name, hosts in _groups(fabric.root) for host in hosts}


def shade_edges(matrix: PairMatrix) -> Floats:
    """Return the three values between the four shades, best first, by ratio.

    NaN where nothing was measured.
    """
    known = matrix.values[np.isfinite(matrix.values) & (matrix.values > 0.0)]
    if not len(known):
        return np.full(3, np.nan)
    # A single pair far out would leave no shade for the others.
    low, high = np.log(np.quantile(known, [0.02, 0.98]))
    steps = max(high - low, math.log(MIN_SPAN)) * np.arange(1, 4) / 4.0
    # In logarithms: the ratio of absurd figures in a file overflows.
    with np.errstate(over="ignore"):
        edges: Floats = np.exp(low + steps if matrix.kind == "rtt" else high - steps)
    return edges


def color_wanted(is_terminal: bool) -> bool:
    """Return whether colours are welcome, after https://no-color.org."""
    return is_terminal and not os.environ.get("NO_COLOR")


def _groups(node: Node) -> list[tuple[str, list[str]]]:
    """Return name and hosts of each lowest group; hosts beside them come last."""
    inner = [child for child in node.children if child.children]
    if not inner:
        return [(node.name, list(node.leaves()))]
    found = [group for child in inner for group in _groups(child)]
    lone = [child.name for child in node.children if not child.children]
    return [*found, (node.name, lone)] if lone else found


def _cells(matrix: PairMatrix, edges: Floats) -> list[list[str]]:
    values, limits = matrix.values, edges[:, None, None]
    beyond = values > limits if matrix.kind == "rtt" else values < limits
    shades = np.array(list(SHADES))[beyond.sum(axis=0)]
    shades[np.isnan(values)] = NOT_MEASURED
    np.fill_diagonal(shades, " ")
    rows: list[list[str]] = shades.tolist()
    return rows


def _labels(names: Sequence[str]) -> dict[str, str]:
    """Return what each host is called: without its domain, and not too long."""
    short = [name.partition(".")[0] for name in names]
    if len(set(short)) < len(short):
        short = list(names)
    cut = [
        label if len(label) <= _LABEL else "…" + label[1 - _LABEL :] for label in short
    ]
    return dict(zip(names, cut, strict=True))


def _legend(kind: str, edges: Floats) -> str:
    if np.isnan(edges).any():
        return f"{NOT_MEASURED} not measured"
    word, rest = ("≤", "more") if kind == "rtt" else ("≥", "less")
    parts = [
        f"{shade} {word} {_UNITS[kind](float(edge))}"
        for shade, edge in zip(SHADES, edges, strict=False)
    ]
    return "  ".join([*parts, f"{SHADES[-1]} {rest}", f"{NOT_MEASURED} not measured"])


def painted(line: str) -> str:
    """Return a line with its blocks in colours; they read the same without."""
    for shade, code in _ANSI.items():
        line = re.sub(f"({shade}+)", f"\x1b[{code}m\\1\x1b[0m", line)
    return line
