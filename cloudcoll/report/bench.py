"""A bench as tables and in words: the gain, whether to trust it, what to do next.

The tables have nccl-tests' columns per order, then the ratios.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

import numpy as np

from cloudcoll import units
from cloudcoll.bench.result import ELEMENT, OPERATIONS, BenchRun, Median, Ratio

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
    limit, needed = spared["seconds"], spared["needed"] or 0
    line = f"left out, to be done in {units.seconds(limit)}: {', '.join(what)}"
    # Where calls turned out to take longer than predicted nobody knows how many.
    enough = f"{needed} would do for all" if needed > limit else "was short"
    line += f" (--seconds {enough})"
    return [line, *hint]


def table_lines(run: BenchRun) -> list[str]:
    """Return a short table: a line for each order, a column for each size."""
    meta, largest = run.metadata, run.told_size
    ours = run.order_of("cloudcoll")
    compared = [one for one in run.ratios() if one.bytes == largest]
    ratios = {one.baseline: one for one in compared if one.baseline != ours}
    named = {name: [name] for name in run.named}
    if random := run.random:
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
        *(_row(run, one) for one in sorted(run.medians()) if one.order == order),
    ]


def _row(run: BenchRun, one: Median) -> str:
    size, operation = one.size, OPERATIONS[run.op]
    mine = [row for row in run.rows if (row["bytes"], row["order"]) == one[:2]]
    wrong = sum(row["wrong"] for row in mine)
    predicted = run.predicted.get(str(size), {}).get(one.order, math.nan) * 1e6
    model = ("N/A", "N/A")
    if not math.isnan(predicted):
        model = (f"{predicted:.1f}", f"{predicted / one.time_us - 1:+.0%}")
    times = (f"{one.time_us:.1f}", f"{one.algbw:.3f}", f"{one.busbw:.3f}", wrong)
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


FEW_REPEATS = 5
WIDE = 0.25
"""Width of an interval, as a share of the ratio, above which it is called wide."""
ERROR = 0.25
"""Median error of the predictions above which the model is doubted."""


def run_name(run: BenchRun) -> str:
    """Return what was measured, in a few words."""
    return f"{run.op} ({run.metadata['algorithm']})"


def median_error(runs: Sequence[BenchRun]) -> float:
    """Return the median of |predicted / measured - 1|; NaN if nothing was predicted."""
    errors = [
        abs(model / time - 1) for run in runs for _, time, model in points_of(run)
    ]
    return float(np.median(errors)) if errors else np.nan


def points_of(run: BenchRun) -> list[tuple[str, float, float]]:
    """Return order, measured and predicted seconds, of every order and size."""
    return [
        (order, float(np.median(times)) * 1e-6, model[order])
        for size in run.sizes
        for model in [run.predicted.get(str(size), {})]
        for order in run.orders
        if order in model and len(times := run.times(size, order))
    ]


def gain_words(run: BenchRun) -> str:
    """Return the sentence about the largest size."""
    ratios = {ratio.baseline: ratio for ratio in _largest(run)}
    largest = run.sizes[-1]
    what = f"{run_name(run)} of {units.size(largest)}"
    mine = ratios.pop("given", None)
    if mine is None:
        return f"{what}: the order you have was not compared with CloudColl's."
    given = float(np.median(run.times(largest, run.order_of("given"))))
    others = ", ".join(f"{ratio.ratio:.2f}x {name}" for name, ratio in ratios.items())
    against = f" Other orders, over CloudColl's time: {others}." if others else ""
    now = f"{what} takes {units.seconds(given * 1e-6)} in the order you have"
    known = f"95 % interval {interval(mine)}"
    if np.isnan(mine.low):
        known = "measured too seldom for an interval"
    if _is_gain(mine):
        ours = run.times(largest, run.order_of("cloudcoll"))
        then = units.seconds(float(np.median(ours)) * 1e-6)
        gain = f"{mine.ratio:.2f}x faster ({known})"
        return f"{now} and {then} in CloudColl's: {gain}.{against}"
    same = "CloudColl would keep it" if mine.low == mine.high == 1.0 else "no gain"
    return f"{now}: {same} ({mine.ratio:.2f}x, {known}).{against}"


def verdict_words(run: BenchRun) -> str:
    """Return the sentence about the gain at `told_size`: what people measure for."""
    size = run.told_size
    what = f"this {run.op} of {units.size(size)}"
    if run.wrong:
        return f"The results of {what} were wrong, so its times say nothing."
    mine = {ratio.baseline: ratio for ratio in _told(run)}.get("given")
    if mine is None and run.failure:
        return f"Too little was measured to say what another order does for {what}."
    if mine is None:
        return (
            f"The order given was not compared with CloudColl's for {what}: measure "
            "with --orders given,cloudcoll."
        )
    given, ours = (
        units.seconds(float(np.median(times)) * 1e-6)
        for times in run.paired(
            size, [run.order_of(name) for name in ("given", "cloudcoll")]
        )
    )
    if run.order_of("given") == run.order_of("cloudcoll"):
        return f"CloudColl would keep the order given: {what} takes {given} in it."
    ratio, known = f"{mine.ratio:.2f} times as fast", f"({interval(mine)})"
    if np.isnan(mine.low):
        known = "(measured too seldom to say how sure that is: give more --seconds)"
    if _is_gain(mine):
        return (
            f"In CloudColl's order {what} takes {ours} instead of {given}: {ratio} "
            f"{known} as in the order given."
        )
    if mine.high < 1.0:
        return (
            f"In CloudColl's order {what} takes {ours} instead of {given}, longer than "
            f"in the order given: {ratio} {known}."
        )
    return (
        f"No gain could be measured for {what}: {ours} in CloudColl's order, {given} "
        f"in the order given, {ratio} {known}."
    )


def command_words(
    run: BenchRun, launcher: Sequence[str], options: Sequence[str]
) -> str:
    """Return the command to run next, with the user's launcher and options of `run`."""
    if run.failure or run.wrong:
        return "Next: look at the job's own messages, and measure again."
    if any(_is_gain(one) for one in _told(run) if one.baseline == "given"):
        start = shlex.join(["cloudcoll", "run", *options, *launcher, "./app"])
        return f"Next: {start}"
    return "Next: keep the order given; there is nothing to change for this."


def trust_words(runs: Sequence[BenchRun], warnings: Sequence[str]) -> str:
    """Return the sentence about how well it is known."""
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
        return f"{said}. Read the warnings before you trust it."
    return f"{said}. Nothing suggests that it is wrong."


def next_step(runs: Sequence[BenchRun]) -> str:
    """Return the sentence about what to do with it."""
    if any(run.failure or run.wrong for run in runs):
        return "Next: look at the job's own messages, and measure again."
    better = [r for run in runs for r in _largest(run) if r.baseline == "given"]
    if any(map(_is_gain, better)):
        return "Next: start the job in that order, with 'cloudcoll run mpirun ...'."
    return "Next: keep the order you have; there is nothing to change for this."


def _is_gain(ratio: Ratio) -> bool:
    """Return whether CloudColl's order is faster, beyond doubt where that is known."""
    return (ratio.ratio if np.isnan(ratio.low) else ratio.low) > 1.0


def _told(run: BenchRun) -> list[Ratio]:
    return [ratio for ratio in run.ratios() if ratio.bytes == run.told_size]


def _largest(run: BenchRun) -> list[Ratio]:
    return [ratio for ratio in run.ratios() if ratio.bytes == run.sizes[-1]]


def doubts_of(run: BenchRun) -> list[str]:
    """Return why a bench's figures are not to be trusted, and what to do."""
    name = run_name(run)
    doubts = [f"{name}: {doubt}" for doubt in run_doubts(run)]
    repeats = min(len(run.times(size, o)) for size in run.sizes for o in run.orders)
    if repeats < FEW_REPEATS:
        doubts.append(
            f"{name}: some sizes have only {repeats} measurements of an order: give "
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
