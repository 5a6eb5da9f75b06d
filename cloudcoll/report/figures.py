"""The drawings of a report: SVG by matplotlib, without a window or a network.

Text and axes take the colour of the page, so that one drawing serves light,
dark and paper; text stays text.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import numpy as np

from cloudcoll import units
from cloudcoll.arrays import Floats
from cloudcoll.bench.result import BenchRun
from cloudcoll.measured.samples import PairMatrix
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.plain import plain_line, plain_text
from cloudcoll.report.findings import honest_fabric
from cloudcoll.report.heatmap import MIN_SPAN, group_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
Point = tuple[str, float, float]
"""Order, measured and predicted seconds."""

INK = "#010203"
"""Drawn in the page's own colour: no palette has this one."""
COLORS = ("#e8743b", "#3b8ed0", "#3aa66a", "#a86fd0", "#c0a020", "#d05a86")
MARKERS = "osD^vP"
RANDOM = "#8a8a8a"
MAX_CELLS = 128
"""Rows of a heat map; more hosts share one, by the median."""
MAX_NAMED = 24
"""Hosts that are named beside a heat map."""
MAX_OUTLINES = 200
MAX_UPRIGHT = 4
"""Sizes that stand side by side below bars."""
WIDE = 3.75
"""Inches of a drawing: what a telephone shows without making letters smaller."""
MAX_WORD = 20
MAX_LABEL = 40
"""Characters of a name in a legend: longer ones would leave no room to draw in."""

_HEAD = '<svg role="img" aria-label="{shows}"'

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    # Names may hold dollars.
    "text.parse_math": False,
    "svg.hashsalt": "cloudcoll",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def _drawn(
    width: float, height: float, shows: str
) -> Callable[[Callable[Concatenate[Figure, P], None]], Callable[P, str]]:
    """Turn what draws on a figure of these inches into what returns its SVG.

    `shows` is said of the drawing to who can't see it.
    """

    def turn(draw: Callable[Concatenate[Figure, P], None]) -> Callable[P, str]:
        @functools.wraps(draw)
        def drawn(*args: P.args, **kwargs: P.kwargs) -> str:
            import matplotlib
            from matplotlib.figure import Figure

            with matplotlib.rc_context(_STYLE):
                figure = Figure((width, height), layout="constrained")
                draw(figure, *args, **kwargs)
                return _to_svg(figure, shows)

        return drawn

    return turn


def speedups(runs: Sequence[BenchRun]) -> str:
    """Return bars, a drawing for each run: each order's time over CloudColl's."""
    return "".join(map(bars, runs))


@_drawn(WIDE, 3.6, "bars: each order's time over CloudColl's, by size")
def bars(figure: Figure, run: BenchRun) -> None:
    """Draw the bars of one run; hollow ones are of what is not known better."""
    found = {(ratio.bytes, ratio.baseline): ratio for ratio in run.ratios()}
    baselines = list(dict.fromkeys(baseline for _, baseline in found))
    axes = figure.subplots()
    wide = 0.8 / max(len(baselines), 1)
    for number, baseline in enumerate(baselines):
        color = _color(baseline, baselines)
        axes.bar([0], [np.nan], color=color, label=_label(baseline))
        for place, size in enumerate(run.sizes):
            at = place + (number + 0.5) * wide - 0.4
            ratio = found.get((size, baseline))
            if ratio is None:
                _say_unmeasured(axes, at)
                continue
            known = math.isfinite(ratio.low)
            ends = [[ratio.ratio - ratio.low], [ratio.high - ratio.ratio]]
            axes.bar(
                [at],
                [ratio.ratio],
                wide * 0.9,
                yerr=np.maximum(ends, 0.0) if known else None,
                color=color if known else "none",
                edgecolor=color,
                ecolor=INK,
                capsize=2,
            )
    axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(run.sizes)), [units.size(size) for size in run.sizes])
    if len(run.sizes) > MAX_UPRIGHT:
        axes.tick_params("x", rotation=90, labelsize=8)
    # One size alone must not fill the page.
    axes.set_xlim(-0.6, max(len(run.sizes), 3) - 0.4)
    axes.set_ylabel("time / CloudColl's time")
    axes.set_title(_title(run), fontsize=10)
    _legend(figure)


def _say_unmeasured(axes: Axes, at: float) -> None:
    """Say that there is no bar because there is nothing to draw one of."""
    place = axes.get_xaxis_transform()
    axes.text(
        at, 0.02, "not measured", rotation=90, fontsize=8, ha="center", va="bottom",
        transform=place,
    )  # fmt: skip


def _title(run: BenchRun) -> str:
    words = (run.op, str(run.metadata["algorithm"]))
    return ", ".join(plain_line(word)[:MAX_WORD] for word in words if word)


def bandwidths(run: BenchRun) -> str:
    """Return curves of algbw and of busbw, a drawing each."""
    return bandwidth(run, "algbw") + bandwidth(run, "busbw")


@_drawn(WIDE, 3.6, "curves over the size, a line for each order")
def bandwidth(figure: Figure, run: BenchRun, what: str) -> None:
    """Draw curves of ``algbw`` or ``busbw`` over the size, a line for each order."""
    medians = run.medians()
    names, randoms = run.named, run.random
    labels = {**dict.fromkeys(randoms, "_"), **dict.fromkeys(randoms[:1], "random")}
    axes = figure.subplots()
    for order in run.orders:
        points = [(m.size, getattr(m, what)) for m in medians if m.order == order]
        random = order in randoms
        axes.plot(
            *zip(*points, strict=True),
            color=_color(order, names),
            marker="." if random else MARKERS[names.index(order) % 6],
            linewidth=0.8 if random else 1.6,
            label=labels.get(order) or _label(run.all_names(order)),
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(run.sizes, [units.size(size) for size in run.sizes])
    axes.tick_params("x", rotation=30 if len(run.sizes) > 4 else 0)
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.1 * max(getattr(median, what) for median in medians))
    axes.set_ylabel(f"{what} (GB/s)")
    _legend(figure)


@_drawn(WIDE, 3.6, "predicted over measured seconds, a point for each order and size")
def predictions(figure: Figure, points: Mapping[str, Sequence[Point]]) -> None:
    """Draw predicted over measured seconds, a point for each order and size.

    `points` has order, measured and predicted seconds, by what was run.
    """
    axes = figure.subplots()
    for number, (name, found) in enumerate(points.items()):
        _, measured, predicted = zip(*found, strict=True) if found else ((), (), ())
        color, marker = COLORS[number % 6], MARKERS[number % 6]
        axes.scatter(measured, predicted, 22, color, marker=marker, label=_label(name))
    times = [
        value for found in points.values() for point in found for value in point[1:]
    ]
    ends = [min(times) / 1.3, max(times) * 1.3]
    axes.plot(ends, ends, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="measured", ylabel="predicted")
    ticks = np.geomspace(min(times), max(times), 4).tolist()
    axes.set_xticks(ticks, [units.seconds(tick) for tick in ticks], rotation=30)
    axes.set_yticks(ticks, [units.seconds(tick) for tick in ticks])
    axes.minorticks_off()
    _legend(figure)


def heat_maps(
    matrix: PairMatrix,
    snapshot: NetworkSnapshot,
    given: Sequence[str],
    ours: Sequence[str],
) -> str:
    """Return a matrix of pairs in two orders, a drawing each."""
    parts = ((given, "given"), (ours, "CloudColl's"))
    return "".join(heat_map(matrix, snapshot, *part) for part in parts)


@_drawn(WIDE, 4.5, "heat map of a figure of each pair of hosts")
def heat_map(
    figure: Figure,
    matrix: PairMatrix,
    snapshot: NetworkSnapshot,
    order: Sequence[str],
    title: str,
) -> None:
    """Draw a matrix of pairs in one order, groups outlined.

    Above `MAX_CELLS`, neighbours share a row and a column.
    """
    from matplotlib.colors import LogNorm

    scale, unit = (1e6, "us") if matrix.kind == "rtt" else (8e-6, "Mbit/s")
    groups = group_names(honest_fabric(snapshot))
    known = matrix.values[np.isfinite(matrix.values) & (matrix.values > 0.0)] * scale
    low, high = np.quantile(known, [0.02, 0.98])
    norm = LogNorm(low, max(high, MIN_SPAN * low), clip=True)
    colors = "viridis_r" if matrix.kind == "rtt" else "viridis"
    rows = [snapshot.names.index(name) for name in order]
    cells = matrix.values[np.ix_(rows, rows)] * scale
    values, step = blocks(cells, MAX_CELLS)
    axes = figure.subplots()
    image = axes.imshow(values, cmap=colors, norm=norm, interpolation="nearest")
    _outline(axes, [groups.get(name, "") for name in order], step)
    _name_hosts(axes, order, step)
    axes.set_title(f"order: {title}", fontsize=10)
    bar = figure.colorbar(
        image, ax=axes, shrink=0.8, label=unit, orientation="horizontal"
    )
    bar.ax.minorticks_off()
    ticks = np.geomspace(norm.vmin or low, norm.vmax or high, 4)
    bar.set_ticks(ticks.tolist(), labels=[f"{tick:.3g}" for tick in ticks])


def blocks(values: Floats, most: int) -> tuple[Floats, int]:
    """Return a matrix of at most `most` rows, and how many hosts share one.

    A block's value is the median of what was measured in it, NaN for nothing.
    """
    step = math.ceil(len(values) / most)
    if step == 1:
        return values, 1
    edge = -len(values) % step
    padded = np.pad(values, ((0, edge), (0, edge)), constant_values=np.nan)
    count = len(padded) // step
    cells = padded.reshape(count, step, count, step).swapaxes(1, 2)
    medians: Floats = np.full((count, count), np.nan)
    flat = cells.reshape(count, count, -1)
    seen = np.isfinite(flat).any(axis=2)
    medians[seen] = np.nanmedian(flat[seen], axis=1)
    return medians, step


def _outline(axes: Axes, groups: Sequence[str], step: int) -> None:
    """Draw a square around each run of hosts of one group."""
    from matplotlib.patches import Rectangle

    runs = [len(list(run)) for _, run in groupby(groups)]
    if len(runs) > MAX_OUTLINES:
        # As many as that are no structure, only ink.
        return
    start = 0
    for length in runs:
        corner = (start / step - 0.5,) * 2
        side = length / step
        # White on black is seen on every shade, and is no alarm.
        for color, width in (("#000000", 2.6), ("#ffffff", 1.2)):
            axes.add_patch(
                Rectangle(corner, side, side, fill=False, ec=color, linewidth=width)
            )
        start += length


def _name_hosts(axes: Axes, order: Sequence[str], step: int) -> None:
    if len(order) > MAX_NAMED:
        axes.set_xlabel(
            f"{len(order)} hosts" + (f", {step} in a cell" if step > 1 else "")
        )
        axes.set_xticks([])
        axes.set_yticks([])
        return
    short = [plain_line(name.partition(".")[0])[-12:] for name in order]
    axes.set_xticks(range(len(order)), short, rotation=90, fontsize=7)
    axes.set_yticks(range(len(order)), short, fontsize=7)


def _color(order: str, names: Sequence[str]) -> str:
    if order.startswith("random"):
        return RANDOM
    return COLORS[names.index(order) % len(COLORS)]


def _label(name: str) -> str:
    return plain_line(name)[:MAX_LABEL]


def _legend(figure: Figure) -> None:
    """Name the colours below the axes: beside them is no room on a telephone."""
    names = figure.axes[0].get_legend_handles_labels()[1]
    columns = 1 if any(len(name) > MAX_WORD for name in names) else 2
    if names:
        figure.legend(loc="outside lower center", ncols=columns, fontsize=9)


def _to_svg(figure: Figure, shows: str) -> str:
    """Return SVG that can stand in a page: no prolog, no colour of its own."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg", _HEAD.format(shows=shows), 1)
    return plain_text(svg).replace(INK, "currentColor")
