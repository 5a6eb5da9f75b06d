"""A bench as tables: nccl-tests' columns per order, then the ratios."""

from __future__ import annotations

import math

import numpy as np

from cloudcoll import units
from cloudcoll.bench.operations import ELEMENT, OPERATIONS
from cloudcoll.bench.result import BenchRun, Ratio

# The columns of nccl-tests (util.cu), then ours. In place is not measured.
_PLACES = " " * 57 + "out-of-place" + " " * 24 + "in-place"
_WHAT = "{:>12} {:>12} {:>7} {:>6} {:>6}"
_TIMES = "{:>10} {:>7} {:>7} {:>6}"
_LINE = f"{_WHAT} {_TIMES} {_TIMES} {{:>11}} {{:>6}}"
_TIMED = ("time", "algbw", "busbw", "#wrong")
_SCALE = ("(us)", "(GB/s)", "(GB/s)", "")
_NAMES = ("size", "count", "type", "redop", "root", *2 * _TIMED, "predicted", "error")
_UNITS = ("(B)", "(elements)", "", "", "", *2 * _SCALE, "(us)", "")


def bench_lines(run: BenchRun) -> list[str]:
    """Return the tables of a bench, ready to print."""
    meta = run.metadata
    lines = [
        f"# cloudcoll bench: {run.op}, {meta['algorithm']}, {run.ranks} ranks on "
        f"{len(meta['hosts'])} hosts, {meta['library']}",
        *(f"# by {choice}" for choice in meta.get("choices", [])),
        "# time: slowest rank, median of repeats, orders taking turns in one job; "
        "GB = 1e9",
    ]
    for order, hosts in run.orders.items():
        lines += ["#", *_order_lines(run, order, hosts)]
    words = (*spared_lines(run), *run_doubts(run))
    return [*lines, "#", *ratio_lines(run), *(f"# {word}" for word in words)]


def spared_lines(run: BenchRun) -> list[str]:
    """Return a line about what there was no time for; none if all was measured."""
    seldom = [units.size(size) for size in run.sizes if size > run.told_size]
    hint = [f"measured too seldom to compare: {', '.join(seldom)}"] if seldom else []
    if not (spared := run.spared):
        return hint
    orders = [name for name in spared["orders"] if not name.startswith("random-")]
    if random := len(spared["orders"]) - len(orders):
        orders.append(units.count(random, "random order"))
    what = [*orders, *map(units.size, spared["sizes"])]
    line = f"left out, to be done in {spared['seconds']:g} s: {', '.join(what)}"
    needed = spared["needed"] or 0
    # Where calls turned out to take longer than predicted nobody knows how many.
    enough = f"{needed} would do for all" if needed > spared["seconds"] else "was short"
    line += f" (--seconds {enough})"
    return [line, *hint]


def table_lines(run: BenchRun) -> list[str]:
    """Return a short table: a line for each order, a column for each size."""
    meta, largest = run.metadata, run.told_size
    ours = run.same_as.get("cloudcoll", "cloudcoll")
    compared = [one for one in run.ratios() if one.bytes == largest]
    ratios = {one.baseline: one for one in compared if one.baseline != ours}
    named = {name: [name] for name in run.orders if not name.startswith("random-")}
    if random := [name for name in run.orders if name.startswith("random-")]:
        named[f"{len(random)} random"] = random
    titles = {name: run.all_names(name) for name in named if name in run.orders}
    width = max(map(len, ["order", *named, *titles.values()]))
    sizes = "".join(f" {units.size(size):>9}" for size in run.sizes)
    against = f"   {units.size(largest)} against CloudColl's"
    lines = [
        f"{run.op}, {meta['algorithm']}, {run.ranks} ranks on {len(meta['hosts'])} "
        f"hosts, {meta['library']}",
        "",
        f"{'order':>{width}}{sizes}{against if {*ratios} & {*named} else ''}",
    ]
    for name, orders in named.items():
        times = [_median_s(run, size, orders) for size in run.sizes]
        line = f"{titles.get(name, name):>{width}}"
        line += "".join(f" {units.seconds(time):>9}" for time in times)
        if ratio := ratios.get("random" if orders is random else name):
            line += f"   {ratio.ratio:.2f}x  ({interval(ratio)})"
        lines.append(line)
    words = (*spared_lines(run), *run_doubts(run))
    return [*lines, *([""] if words else []), *words]


def _median_s(run: BenchRun, size: int, orders: list[str]) -> float:
    """Return the seconds of some orders, the median over repeats of their medians."""
    times = run.paired(size, orders)
    return float(np.median(np.median(times, axis=0))) * 1e-6 if times.size else np.nan


def run_doubts(run: BenchRun) -> list[str]:
    """Return why a bench is not to be trusted as it is; nothing if it is."""
    doubts = []
    if run.failure:
        doubts.append(
            f"NOT COMPLETE, {len(run.rows)} measurements are kept: {run.failure}"
        )
    doubts += [
        f"ORDER {order} LEFT OUT, it could not be started: {why}"
        for order, why in run.left_out.items()
    ]
    if run.wrong:
        orders = dict.fromkeys(str(row["order"]) for row in run.rows if row["wrong"])
        doubts.append(
            f"WRONG RESULTS, {run.wrong} elements, in order {', '.join(orders)}: "
            "the library or the network alters data; its times mean nothing"
        )
    return doubts


def _order_lines(run: BenchRun, order: str, hosts: tuple[str, ...]) -> list[str]:
    same = [alias for alias, name in run.same_as.items() if name == order]
    alike = f" (= {', '.join(same)})" if same else ""
    return [
        f"# order {order}{alike}: {' '.join(hosts)}",
        f"#{_PLACES}",
        f"#{_LINE.format(*_NAMES)[1:]}",
        f"#{_LINE.format(*_UNITS)[1:]}",
        *(_row(run, order, size) for size in run.sizes if len(run.times(size, order))),
    ]


def _row(run: BenchRun, order: str, size: int) -> str:
    time = float(np.median(run.times(size, order)))
    algbw = size / time * 1e-3
    operation = OPERATIONS[run.op]
    busbw = operation.busbw(algbw, run.ranks)
    mine = [row for row in run.rows if (row["bytes"], row["order"]) == (size, order)]
    wrong = sum(row["wrong"] for row in mine)
    predicted = run.predicted.get(str(size), {}).get(order, math.nan) * 1e6
    model = ("N/A", "N/A")
    if not math.isnan(predicted):
        model = (f"{predicted:.1f}", f"{predicted / time - 1:+.0%}")
    times = (f"{time:.1f}", f"{algbw:.3f}", f"{busbw:.3f}", wrong)
    what = (size, size // ELEMENT, "float", operation.redop, operation.root)
    return _LINE.format(*what, *times, *4 * ("N/A",), *model)


def ratio_lines(run: BenchRun) -> list[str]:
    """Return the table of ratios: baseline time / CloudColl's time."""
    ratios = run.ratios()
    if not ratios:
        return ["# no ratios: cloudcoll's order was not among those measured"]
    return [
        "# time over that of cloudcoll's order (95 % interval of the median)",
        f"#{'size':>11} {'baseline':>10} {'ratio':>7}  {'low':>6} {'high':>6}  "
        f"{'predicted':>9}",
        *(_ratio_line(ratio) for ratio in ratios),
    ]


def interval(ratio: Ratio) -> str:
    """Return the bounds of a ratio in words."""
    if math.isnan(ratio.low):
        return "measured too seldom"
    return f"{ratio.low:.2f} to {ratio.high:.2f}"


def _bound(value: float) -> str:
    return "N/A" if math.isnan(value) else f"{value:.2f}"


def _ratio_line(ratio: Ratio) -> str:
    predicted = f"{ratio.predicted:.2f}x" if np.isfinite(ratio.predicted) else "N/A"
    return (
        f" {units.size(ratio.bytes):>11} {ratio.baseline:>10} {ratio.ratio:>6.2f}x  "
        f"{_bound(ratio.low):>6} {_bound(ratio.high):>6}  {predicted:>9}"
    )


def summary_lines(run: BenchRun) -> list[str]:
    """Return one small table: the largest size, a line for each order."""
    size = run.sizes[-1]
    ratios = {ratio.baseline: ratio for ratio in run.ratios() if ratio.bytes == size}
    ours = run.same_as.get("cloudcoll", "cloudcoll")
    lines = [
        f"{run.op} of {units.size(size)}, {run.metadata['algorithm']}, {run.ranks} "
        f"ranks on {len(run.metadata['hosts'])} hosts, {run.metadata['library']}",
        "",
        f"{'order':>12} {'time':>9} {'predicted':>10}   against cloudcoll's order",
    ]
    for name in [*ratios, "cloudcoll"]:
        measured = [run.same_as.get(name, name)]
        if name == "random":
            measured = [order for order in run.orders if order.startswith("random-")]
        times = np.median(run.paired(size, measured), axis=0)
        model = run.predicted.get(str(size), {})
        predicted = np.median([model.get(order, np.nan) for order in measured])
        line = (
            f"{name:>12} {units.seconds(float(np.median(times)) * 1e-6):>9} "
            f"{units.seconds(float(predicted)):>10}"
        )
        if run.same_as.get(name, name) == ours and name != "cloudcoll":
            line += "   the same order"
        elif ratio := ratios.get(name):
            line += f"   {ratio.ratio:.2f}x  ({interval(ratio)})"
        lines.append(line)
    return lines
