"""The status page: one HTML file, no script, drawn again by itself until held still.

Its drawings are SVG made here, not by matplotlib: a page is asked for again
and again, and a daemon should stay small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cloudcoll import units
from cloudcoll.arrays import Floats
from cloudcoll.daemon.view import MapView, Point, Publication, View, clock
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.files import read_stored
from cloudcoll.measured.snapshot import NetworkSnapshot, parse_snapshot
from cloudcoll.report.document import page_template
from cloudcoll.report.figures import blocks
from cloudcoll.report.findings import honest_fabric
from cloudcoll.report.heatmap import group_names, shade_edges
from cloudcoll.report.maps import map_lines
from cloudcoll.report.snapshot import fabric_lines
from cloudcoll.units import decimal_size

if TYPE_CHECKING:
    import jinja2

REFRESH_S = 30
"""After which a browser asks again."""

MAX_CELLS = 48
"""Rows of a heat map; more hosts share one, by the median."""

MAX_NAMES = 8
"""Hosts of an order that are named."""

CELL = 10
"""Side of a cell, in the drawing's own units."""

MARGIN, LETTERS = 0.23, 0.031
"""Room for names beside a heat map, and their height, as shares of its side."""

MAX_ROWS = 24
"""Rows that are named beside the heat map."""

MAX_NAME = 12
"""Characters of such a name: its last ones tell hosts apart."""

WIDTH, HEIGHT = 600, 150
"""Of the drawing of drift."""


@dataclass(frozen=True)
class Cell:
    """A square of the heat map: column, row, shade from 0 (best) to 3, words."""

    x: int
    y: int
    shade: int
    title: str


@dataclass(frozen=True)
class HeatMap:
    """Round trips of pairs and the groups found, ready to be drawn.

    Attributes
    ----------
    size : int
        Rows and columns.
    cells : tuple of Cell
        What was measured; an empty place was not.
    groups : tuple of (float, float)
        First row and height of each run of hosts of one group.
    names : tuple of str
        Beside each row; empty if there are too many.
    legend : tuple of str
        Words for each shade, best first; empty if nothing was measured.
    tree : tuple of str
        Groups, links and hosts as lines of text.
    """

    size: int
    cells: tuple[Cell, ...]
    groups: tuple[tuple[float, float], ...]
    names: tuple[str, ...]
    legend: tuple[str, ...]
    tree: tuple[str, ...]


@dataclass(frozen=True)
class Drift:
    """Measured over expected, by time, as lines of a drawing.

    Attributes
    ----------
    begin, end : float
        Seconds since the epoch.
    factor : float
        By which the upper edge is more than expected, and the lower less.
    lines : mapping of str to str
        Series to the points of its line.
    marks : tuple of float
        Where new orders were put in force, from the left.
    """

    begin: float
    end: float
    factor: float
    lines: dict[str, str]
    marks: tuple[float, ...] = ()


def render(view: View, renews: bool = True) -> str:
    """Return the page; who reads slowly can have one that stays as it is."""
    network, trouble = None, [view.trouble]
    try:
        network = _drawn(view.snapshot, view.digest) if view.snapshot else None
    except UnusableError as error:
        trouble.append(str(error))
    failed = [
        f"{host.name} failed: {host.failed}" for host in view.hosts if host.failed
    ]
    return _template().render(
        view=view,
        network=network,
        warnings=[text for text in (*trouble, *failed) if text],
        confirmed=_age(view.now - view.confirmed),
        drift=drift_of(view.history, view.published),
        published=[_publication_row(one) for one in view.published[::-1]],
        maps=[_map_row(one) for one in view.maps],
        clock=clock,
        amount=decimal_size,
        refresh=REFRESH_S,
        renews=renews,
        cell=CELL,
        margin=MARGIN,
        letters=LETTERS,
        width=WIDTH,
        height=HEIGHT,
    )


def network_of(snapshot: NetworkSnapshot) -> HeatMap:
    """Return the drawing of a snapshot, with hosts of a group side by side.

    Above `MAX_CELLS` hosts, neighbours share a row and a column.
    """
    fabric = honest_fabric(snapshot)
    order = fabric.hosts
    place = {name: row for row, name in enumerate(snapshot.names)}
    rows = [place[name] for name in order]
    latency = snapshot.latency
    values, step = blocks(latency.values[np.ix_(rows, rows)], MAX_CELLS)
    edges = shade_edges(latency)
    names = [_span(order[start : start + step]) for start in range(0, len(order), step)]
    group_of = group_names(fabric)
    runs = [len(list(run)) for _, run in groupby(group_of[name] for name in order)]
    ends = (np.cumsum([0, *runs]) / step).tolist()
    return HeatMap(
        size=len(values),
        cells=tuple(
            Cell(
                x,
                y,
                int((values[y, x] > edges).sum()),
                f"{names[y]} to {names[x]}: {units.seconds(values[y, x])}",
            )
            for y, x in np.argwhere(np.isfinite(values)).tolist()
        ),
        groups=tuple((start, end - start) for start, end in pairwise(ends)),
        names=tuple(
            name.partition(".")[0][-MAX_NAME:]
            for name in order
            if len(order) <= MAX_ROWS
        ),
        legend=_legend(edges),
        tree=tuple(fabric_lines(fabric)),
    )


def drift_of(
    history: Sequence[Point], published: Sequence[Publication] = ()
) -> Drift | None:
    """Return the lines of a history of ratios, by logarithm; None for no line."""
    series: dict[str, list[Point]] = {}
    for point in history:
        if 0.0 < point.value < math.inf:
            series.setdefault(point.series, []).append(point)
    if not any(len(points) > 1 for points in series.values()):
        return None
    known = [point for points in series.values() for point in points]
    begin, end = min(p.time for p in known), max(p.time for p in known)
    factor = max(2.0, *(max(p.value, 1.0 / p.value) for p in known))

    def across(when: float) -> float:
        return round(WIDTH * (when - begin) / max(end - begin, 1.0), 1)

    def place(point: Point) -> str:
        y = HEIGHT / 2 * (1.0 - math.log(point.value) / math.log(factor))
        return f"{across(point.time)},{y:.1f}"

    lines = {name: " ".join(map(place, points)) for name, points in series.items()}
    orders = [one.time for one in published if not one.kept]
    marks = tuple(across(when) for when in orders if begin <= when <= end)
    return Drift(begin, end, factor, lines, marks)


def _template() -> jinja2.Template:
    if not find_spec("jinja2"):
        raise UsageError("the status page needs jinja2: pip install jinja2")
    return page_template("cloudcoll.daemon")


@functools.lru_cache(maxsize=1)
def _drawn(path: Path, digest: str) -> HeatMap:
    """Return what is drawn of a snapshot's file: only a new one is read."""
    data = read_stored(path, digest)
    return network_of(parse_snapshot(data, "the daemon's snapshot"))


def _age(seconds: float) -> str:
    known = not math.isnan(seconds)
    return f"confirmed {units.seconds(max(seconds, 0.0))} ago" if known else ""


def _span(names: Sequence[str]) -> str:
    """Return what a row is called: its host, or the first and the last."""
    return names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"


def _legend(edges: Floats) -> tuple[str, ...]:
    if np.isnan(edges).any():
        return ()
    return (*(f"≤ {units.seconds(edge)}" for edge in edges.tolist()), "more")


def _map_row(one: MapView) -> tuple[str, ...]:
    ranks = one.rank_map
    ours, given = (ranks.predicted.get(it, math.nan) for it in ("cloudcoll", "given"))
    left = len(ranks.order) - MAX_NAMES
    return (
        map_lines(ranks)[0].removeprefix("rank map for "),
        units.seconds(ours),
        units.seconds(given),
        "" if math.isnan(one.drift) else f"{one.drift:.2f}x",
        " ".join(ranks.order[:MAX_NAMES]) + (f" and {left} more" if left > 0 else ""),
    )


def _publication_row(one: Publication) -> tuple[str, ...]:
    what = "figures" if one.kept else "new order"
    return clock(one.time), what, f"{one.gain:.0%}", one.reason
