"""What a bench says: the gain, whether to trust it, what to do next.

Turns `BenchRun`s, and the snapshot they were solved from, into a `Document`.
"""

from __future__ import annotations

import functools
import shlex
import textwrap
import time
from collections.abc import Sequence

import numpy as np

from cloudcoll.bench.result import BenchRun, Ratio
from cloudcoll.errors import UsageError
from cloudcoll.report import figures, units
from cloudcoll.report.bench import interval, run_doubts
from cloudcoll.report.checks import check_snapshot
from cloudcoll.report.document import Document, Figure, Section, Table
from cloudcoll.report.findings import honest_fabric
from cloudcoll.report.heatmap import group_names
from cloudcoll.report.tree import fabric_lines
from cloudcoll.snapshot import NetworkSnapshot

FEW_REPEATS = 5
WIDE = 0.25
"""Width of an interval, as a share of the ratio, above which it is called wide."""
ERROR = 0.25
"""Median error of the predictions above which the model is doubted."""


def tell(runs: Sequence[BenchRun], snapshot: NetworkSnapshot | None) -> Document:
    """Return the report of benches on the same hosts.

    Parameters
    ----------
    runs : sequence of BenchRun
        At least one.
    snapshot : NetworkSnapshot or None
        What the orders were solved from; without it nothing of the network is
        shown.

    Raises
    ------
    UsageError
        The runs are of other hosts, ranks or snapshots.
    """
    _check_same(runs)
    warnings = [doubt for run in runs for doubt in _doubts(run)]
    if snapshot:
        warnings += [f"the network: {line}" for line in check_snapshot(snapshot)]
    sections = [_speedups(runs), *map(_bandwidths, runs), _predictions(runs)]
    if snapshot:
        sections += _network(runs[0], snapshot)
    sections += [_orders(run, snapshot) for run in runs]
    sections.append(_origin(runs, snapshot))
    hosts = len(runs[0].metadata["hosts"])
    return Document(
        title=f"CloudColl on {hosts} hosts, {runs[0].ranks} ranks",
        summary=(*map(_gain, runs), _trust(runs, warnings), _next_step(runs)),
        warnings=tuple(warnings),
        sections=tuple(sections),
    )


def run_name(run: BenchRun) -> str:
    """Return what was measured, in a few words."""
    return f"{run.op} ({run.metadata['algorithm']})"


def median_error(runs: Sequence[BenchRun]) -> float:
    """Return the median of |predicted / measured - 1|; NaN if nothing was predicted."""
    errors = [abs(model / time - 1) for run in runs for _, time, model in _points(run)]
    return float(np.median(errors)) if errors else np.nan


def _points(run: BenchRun) -> list[tuple[str, float, float]]:
    """Return order, measured and predicted seconds, of every order and size."""
    return [
        (order, float(np.median(times)) * 1e-6, model[order])
        for size in run.sizes
        for model in [run.predicted.get(str(size), {})]
        for order in run.orders
        if order in model and len(times := run.times(size, order))
    ]


def _check_same(runs: Sequence[BenchRun]) -> None:
    for key in ("hosts", "ranks", "placement", "snapshot"):
        first, *others = (run.metadata.get(key) for run in runs)
        for other in others:
            if other != first:
                raise UsageError(
                    f"these results differ in their {key} ({_short(first)} and "
                    f"{_short(other)}): report each by itself"
                )


def _short(value: object) -> str:
    return textwrap.shorten(str(value), 40, placeholder=" ...")


def _gain(run: BenchRun) -> str:
    """Return the sentence about the largest size."""
    ratios = {ratio.baseline: ratio for ratio in _largest(run)}
    largest = run.sizes[-1]
    what = f"{run_name(run)} of {units.size(largest)}"
    mine = ratios.pop("given", None)
    if mine is None:
        return f"{what}: the order you have was not compared with CloudColl's."
    given = float(np.median(run.times(largest, run.same_as.get("given", "given"))))
    others = ", ".join(f"{ratio.ratio:.2f}x {name}" for name, ratio in ratios.items())
    against = f" Other orders take, of CloudColl's time: {others}." if others else ""
    now = f"{what} takes {units.seconds(given * 1e-6)} in the order you have"
    known = f"95 % interval {interval(mine)}"
    if np.isnan(mine.low):
        known = "measured too seldom for an interval"
    if _is_gain(mine):
        ours = run.times(largest, run.same_as.get("cloudcoll", "cloudcoll"))
        then = units.seconds(float(np.median(ours)) * 1e-6)
        gain = f"{mine.ratio:.2f}x faster ({known})"
        return f"{now} and {then} in CloudColl's: {gain}.{against}"
    same = "CloudColl would keep it" if mine.low == mine.high == 1.0 else "no gain"
    return f"{now}: {same} ({mine.ratio:.2f}x, {known}).{against}"


def _trust(runs: Sequence[BenchRun], warnings: Sequence[str]) -> str:
    repeats = min(
        len(run.times(run.sizes[-1], order)) for run in runs for order in run.orders
    )
    wrong = sum(run.wrong for run in runs)
    said = (
        f"Orders took turns in one job, {repeats} measurement{'s' * (repeats != 1)} "
        f"of each at the largest size; "
        f"{'every result was right' if not wrong else f'{wrong} elements were WRONG'}"
    )
    if not np.isnan(error := median_error(runs)):
        said += f"; the model's predictions are off by {error:.0%} (median)"
    if warnings:
        return f"{said}. Not to be trusted blindly: see the warnings."
    return f"{said}. Nothing speaks against trusting it."


def _next_step(runs: Sequence[BenchRun]) -> str:
    if any(run.failure or run.wrong for run in runs):
        return "Next: look at the job's own words, and measure again."
    better = [r for run in runs for r in _largest(run) if r.baseline == "given"]
    if any(map(_is_gain, better)):
        return "Next: start the job in that order, with 'cloudcoll run mpirun ...'."
    return "Next: keep the order you have; there is nothing to change for this."


def _is_gain(ratio: Ratio) -> bool:
    """Return whether CloudColl's order is faster, beyond doubt where that is known."""
    return (ratio.ratio if np.isnan(ratio.low) else ratio.low) > 1.0


def _largest(run: BenchRun) -> list[Ratio]:
    return [ratio for ratio in run.ratios() if ratio.bytes == run.sizes[-1]]


def _doubts(run: BenchRun) -> list[str]:
    """Return why a bench's figures are not to be trusted, and what to do."""
    name = run_name(run)
    doubts = [f"{name}: {doubt}" for doubt in run_doubts(run)]
    repeats = min(len(run.times(size, o)) for size in run.sizes for o in run.orders)
    if repeats < FEW_REPEATS:
        doubts.append(
            f"{name}: of some sizes only {repeats} measurements of an order: give "
            "'cloudcoll bench' more --seconds, or --repeats"
        )
    wide = [r for r in run.ratios() if r.high - r.low > WIDE * r.ratio]
    if wide:
        worst = max(wide, key=lambda r: (r.high - r.low) / r.ratio)
        doubts.append(
            f"{name}: {len(wide)} ratios are not well known, least of all "
            f"{worst.baseline} at {units.size(worst.bytes)} ({worst.low:.2f} to "
            f"{worst.high:.2f}): something else uses these hosts or links; measure "
            "when it is quiet"
        )
    if (error := median_error([run])) > ERROR:
        doubts.append(
            f"{name}: predictions are off by {error:.0%}: the model lacks something "
            "that matters here; go by the measured figures, and probe again"
        )
    return doubts


def _speedups(runs: Sequence[BenchRun]) -> Section:
    rows = [
        (
            *(run_name(run), units.size(ratio.bytes), ratio.baseline),
            *(f"{ratio.ratio:.2f}x", interval(ratio)),
            "?" if np.isnan(ratio.predicted) else f"{ratio.predicted:.2f}x",
        )
        for run in runs
        for ratio in run.ratios()
    ]
    head = (
        "operation",
        "size",
        "order",
        "of CloudColl's time",
        "interval",
        "predicted",
    )
    bars = functools.partial(figures.speedups, runs)
    return Section(
        "What CloudColl's order gains",
        (
            "How many times longer each order takes than CloudColl's; intervals are "
            "of 95 %, of the median.",
        ),
        (Figure("each order's time over that of CloudColl's, with intervals", bars),)
        if rows
        else (),
        Table(head, tuple(rows)),
    )


def _bandwidths(run: BenchRun) -> Section:
    rows = [
        (
            units.size(size),
            run.all_names(order),
            units.seconds(time * 1e-6),
            f"{algbw:.3g}",
            f"{busbw:.3g}",
        )
        for size, order, time, algbw, busbw in run.medians()
    ]
    return Section(
        f"Bandwidth: {run_name(run)}",
        (
            "algbw is size / time; busbw is what the busiest link would carry if all "
            "links were alike, as in nccl-tests.",
        ),
        (
            Figure(
                "algbw and busbw by order", functools.partial(figures.bandwidths, run)
            ),
        ),
        Table(("size", "order", "time", "algbw (GB/s)", "busbw (GB/s)"), tuple(rows)),
    )


def _predictions(runs: Sequence[BenchRun]) -> Section:
    points = {run_name(run): _points(run) for run in runs}
    found = any(points.values())
    error = median_error(runs)
    said = f"The median error is {error:.1%}." if found else "Nothing was predicted."
    figure = Figure(
        "predicted against measured", functools.partial(figures.predictions, points)
    )
    return Section("Predicted against measured", (said,), (figure,) if found else ())


def _network(run: BenchRun, snapshot: NetworkSnapshot) -> list[Section]:
    given = tuple(run.metadata["hosts"])
    ours = run.orders.get(run.same_as.get("cloudcoll", "cloudcoll"), given)
    maps = [
        Figure(
            f"{title}: the order given, and CloudColl's for {run_name(run)}",
            functools.partial(figures.heat_maps, matrix, snapshot, given, ours),
        )
        for title, matrix in (
            ("Round trip", snapshot.latency),
            ("Highest rate seen under load", snapshot.bandwidth),
        )
        if np.isfinite(matrix.values).any()
    ]
    fabric = honest_fabric(snapshot)
    return [
        Section(
            "The network between the hosts",
            (
                "Rows send, columns receive. Neighbours of one group are outlined: "
                "fewer and larger outlines are better for rings.",
            ),
            tuple(maps),
        ),
        Section(
            "Groups and links",
            lines=tuple(fabric_lines(fabric, snapshot.silent)),
        ),
    ]


def _orders(run: BenchRun, snapshot: NetworkSnapshot | None) -> Section:
    ours = run.orders.get(run.same_as.get("cloudcoll", "cloudcoll"), ())
    groups = group_names(honest_fabric(snapshot)) if snapshot else {}
    lines = []
    for start in range(0, len(ours), 8):
        hosts = ours[start : start + 8]
        named = " ".join(f"{host}" for host in hosts)
        at = " ".join(dict.fromkeys(groups[h] for h in hosts if h in groups))
        lines.append(f"{start:>5}  {named}{f'   in {at}' if at else ''}")
    text = () if ours else ("CloudColl's order was not measured.",)
    return Section(f"CloudColl's order: {run_name(run)}", text, lines=tuple(lines))


def _origin(runs: Sequence[BenchRun], snapshot: NetworkSnapshot | None) -> Section:
    """Return what was run, where and when."""
    rows = []
    for run in runs:
        meta, name = run.metadata, run_name(run)
        rows += [(f"{name}, library", str(meta["library"]))]
        rows += [(f"{name}, choice", str(choice)) for choice in meta.get("choices", [])]
        if "start_time" in meta:
            begin = time.gmtime(meta["start_time"])
            took = units.seconds(meta["end_time"] - meta["start_time"])
            said = time.strftime("%Y-%m-%d %H:%M UTC", begin)
            rows += [(f"{name}, when", f"{said}, {took}")]
    first = runs[0].metadata
    rows.append(("snapshot", str(first.get("snapshot", "?"))))
    if snapshot is None:
        rows.append(
            ("network", "not shown: its snapshot is not at hand; give --snapshot")
        )
    else:
        facts = ("transport", "mode", "seed", "origin")
        rows += [
            (f"probe, {k}", str(snapshot.metadata[k]))
            for k in facts
            if k in snapshot.metadata
        ]
    rows.append(("cloudcoll", str(first.get("version", "?"))))
    commands = [shlex.join(map(str, run.metadata.get("args", ()))) for run in runs]
    return Section(
        "Where this comes from",
        table=Table(("what", ""), tuple(rows)),
        lines=tuple(commands),
    )
