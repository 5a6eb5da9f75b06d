"""What a bench comes to in words: the gain, whether to trust it, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np

from cloudcoll import units
from cloudcoll.bench.result import BenchRun, Ratio
from cloudcoll.report.bench import interval, run_doubts

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
    given = float(np.median(run.times(largest, run.same_as.get("given", "given"))))
    others = ", ".join(f"{ratio.ratio:.2f}x {name}" for name, ratio in ratios.items())
    against = f" Other orders, over CloudColl's time: {others}." if others else ""
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
            size, [run.same_as.get(name, name) for name in ("given", "cloudcoll")]
        )
    )
    if run.same_as.get("given", "given") == run.same_as.get("cloudcoll", "cloudcoll"):
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
