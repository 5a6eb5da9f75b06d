"""Benches as a `Document`: the gain, whether to trust it, what to do next.

Made of `BenchRun`s and the snapshot that they were solved from.
"""

from __future__ import annotations

import functools
import shlex
import textwrap
import time
from collections.abc import Sequence

import numpy as np

from cloudcoll import units
from cloudcoll.bench.result import BenchRun
from cloudcoll.errors import UsageError
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.report import figures
from cloudcoll.report.bench import (
    doubts_of,
    gain_words,
    interval,
    median_error,
    next_step,
    points_of,
    run_name,
    trust_words,
)
from cloudcoll.report.checks import check_snapshot
from cloudcoll.report.document import Document, Figure, Section, Table
from cloudcoll.report.findings import honest_fabric
from cloudcoll.report.heatmap import group_names
from cloudcoll.report.snapshot import fabric_lines


def tell(runs: Sequence[BenchRun], snapshot: NetworkSnapshot | None) -> Document:
    """Return the report of benches, one or more on the same hosts and snapshot.

    Without that snapshot nothing of the network is shown.
    """
    for odd in filter(None, (difference(runs[0], run) for run in runs[1:])):
        raise UsageError(f"these results {odd}: report each by itself")
    warnings = [doubt for run in runs for doubt in doubts_of(run)]
    warnings += _unlike(runs)
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
        summary=(*map(gain_words, runs), trust_words(runs, warnings), next_step(runs)),
        warnings=tuple(warnings),
        sections=tuple(sections),
    )


def difference(first: BenchRun, other: BenchRun) -> str:
    """Return why two benches can't stand in one report; empty if they can."""
    for key in ("hosts", "ranks", "placement", "snapshot"):
        one, two = (run.metadata.get(key) for run in (first, other))
        if one != two:
            return f"differ in their {key} ({_short(one)} and {_short(two)})"
    return ""


def _short(value: object) -> str:
    return textwrap.shorten(str(value), 40, placeholder=" ...")


def _unlike(runs: Sequence[BenchRun]) -> list[str]:
    """Return which benches of one collective a reader must not compare."""
    warnings = []
    for op in dict.fromkeys(run.op for run in runs):
        same = [run for run in runs if run.op == op]
        libraries = dict.fromkeys(str(run.metadata["library"]) for run in same)
        sizes = dict.fromkeys(", ".join(map(units.size, run.sizes)) for run in same)
        if len(libraries) > 1:
            warnings.append(
                f"{op} was measured with {' and with '.join(libraries)}: their "
                "difference does not come from the order"
            )
        if len(sizes) > 1:
            warnings.append(
                f"{op} was measured at {'; and at '.join(sizes)}: compare ratios of "
                "one size only"
            )
    return warnings


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
            "Each order's time over that of CloudColl's order, with the 95 % interval "
            "of the median.",
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
            f"{run.metadata['library']}. algbw is size / time; busbw is what the "
            "busiest link would carry if all links were alike, as in nccl-tests.",
        ),
        (
            Figure(
                "algbw and busbw by order", functools.partial(figures.bandwidths, run)
            ),
        ),
        Table(("size", "order", "time", "algbw (GB/s)", "busbw (GB/s)"), tuple(rows)),
    )


def _predictions(runs: Sequence[BenchRun]) -> Section:
    points: dict[str, list[tuple[str, float, float]]] = {}
    for run in runs:
        points.setdefault(run_name(run), []).extend(points_of(run))
    found = any(points.values())
    error = median_error(runs)
    said = f"The median error is {error:.1%}." if found else "Nothing was predicted."
    figure = Figure(
        "predicted against measured", functools.partial(figures.predictions, points)
    )
    return Section("Predicted against measured", (said,), (figure,) if found else ())


def _network(run: BenchRun, snapshot: NetworkSnapshot) -> list[Section]:
    given = tuple(run.metadata["hosts"])
    ours = run.orders.get(run.order_of("cloudcoll"), given)
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
        Section("Groups and links", lines=tuple(fabric_lines(fabric, snapshot.silent))),
    ]


def _orders(run: BenchRun, snapshot: NetworkSnapshot | None) -> Section:
    ours = run.orders.get(run.order_of("cloudcoll"), ())
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
        if {"start_time", "end_time"} <= meta.keys():
            begin = time.gmtime(meta["start_time"])
            took = units.seconds(meta["end_time"] - meta["start_time"])
            said = time.strftime("%Y-%m-%d %H:%M UTC", begin)
            rows += [(f"{name}, when", f"{said}, {took}")]
    first = runs[0].metadata
    if lab := first.get("lab"):
        kinds = [lab.get("preset"), *lab.get("cards", ()), *lab.get("uplinks", ())]
        rows.append(("emulated network", "; ".join(map(str, filter(None, kinds)))))
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
        table=Table(("what", "which"), tuple(rows)),
        lines=tuple(filter(None, commands)),
    )
