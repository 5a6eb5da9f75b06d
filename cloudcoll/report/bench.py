"""A bench as tables: nccl-tests' columns per order, then the ratios."""

from __future__ import annotations

import numpy as np

from cloudcoll.bench.result import BenchRun, Ratio
from cloudcoll.report import units

_HEAD = "#{:>11} {:>12} {:>8} {:>6} {:>5}  {:>10} {:>7} {:>7} {:>6}  {:>10} {:>6}"
_ROW = (
    " {:>11} {:>12} {:>8} {:>6} {:>5}  {:>10.1f} {:>7.3f} {:>7.3f} {:>6}  {:>10} {:>6}"
)


def bench_lines(run: BenchRun) -> list[str]:
    """Return the tables of a bench, ready to print."""
    meta = run.metadata
    lines = [
        f"# cloudcoll bench: allreduce, {meta['algorithm']}, {run.ranks} ranks on "
        f"{len(meta['hosts'])} hosts, {meta['library']}",
        "# time: slowest rank, median of repeats, orders taking turns in one job; "
        "GB = 1e9",
    ]
    for order, hosts in run.orders.items():
        lines += ["#", *_order_lines(run, order, hosts)]
    return [*lines, "#", *ratio_lines(run)]


def _order_lines(run: BenchRun, order: str, hosts: tuple[str, ...]) -> list[str]:
    same = [alias for alias, name in run.same_as.items() if name == order]
    alike = f" (= {', '.join(same)})" if same else ""
    lines = [
        f"# order {order}{alike}: {' '.join(hosts)}",
        _HEAD.format(
            "size",
            "count",
            "type",
            "redop",
            "root",
            "time",
            "algbw",
            "busbw",
            "#wrong",
            "predicted",
            "error",
        ),
        _HEAD.format(
            "(B)",
            "(elements)",
            "",
            "",
            "",
            "(us)",
            "(GB/s)",
            "(GB/s)",
            "",
            "(us)",
            "",
        ),
    ]
    factor = 2 * (run.ranks - 1) / run.ranks
    for size in run.sizes:
        times = run.times(size, order)
        if not len(times):
            continue
        time = float(np.median(times))
        algbw = size / time * 1e-3
        wrong = sum(
            row["wrong"]
            for row in run.rows
            if row["bytes"] == size and row["order"] == order
        )
        predicted = run.predicted.get(str(size), {}).get(order, float("nan")) * 1e6
        known = np.isfinite(predicted)
        lines.append(
            _ROW.format(
                size,
                size // 4,
                "float",
                "sum",
                -1,
                time,
                algbw,
                algbw * factor,
                wrong,
                f"{predicted:.1f}" if known else "N/A",
                f"{predicted / time - 1:+.0%}" if known else "N/A",
            )
        )
    return lines


def ratio_lines(run: BenchRun) -> list[str]:
    """Return the table of ratios: baseline time / CloudColl's time."""
    ratios = run.ratios()
    if not ratios:
        return ["# no ratios: cloudcoll's order was not among those measured"]
    return [
        "# times longer than cloudcoll's order (95 % interval of the median)",
        f"#{'size':>11} {'baseline':>10} {'ratio':>7}  {'low':>6} {'high':>6}  "
        f"{'predicted':>9}",
        *(_ratio_line(ratio) for ratio in ratios),
    ]


def _ratio_line(ratio: Ratio) -> str:
    predicted = f"{ratio.predicted:.2f}x" if np.isfinite(ratio.predicted) else "N/A"
    return (
        f" {units.size(ratio.bytes):>11} {ratio.baseline:>10} {ratio.ratio:>6.2f}x  "
        f"{ratio.low:>6.2f} {ratio.high:>6.2f}  {predicted:>9}"
    )


def summary_lines(run: BenchRun) -> list[str]:
    """Return one small table: the largest size, a line for each order."""
    size = run.sizes[-1]
    ratios = {ratio.baseline: ratio for ratio in run.ratios() if ratio.bytes == size}
    ours = run.same_as.get("cloudcoll", "cloudcoll")
    lines = [
        f"allreduce of {units.size(size)}, {run.metadata['algorithm']}, {run.ranks} "
        f"ranks on {len(run.metadata['hosts'])} hosts, {run.metadata['library']}",
        "",
        f"{'order':>12} {'time':>9} {'predicted':>10}   against cloudcoll's order",
    ]
    for name in [*ratios, "cloudcoll"]:
        measured = [run.same_as.get(name, name)]
        if name == "random":
            measured = [order for order in run.orders if order.startswith("random-")]
        times = np.median([run.times(size, order) for order in measured], axis=0)
        model = run.predicted.get(str(size), {})
        predicted = np.median([model.get(order, np.nan) for order in measured])
        line = (
            f"{name:>12} {units.seconds(float(np.median(times)) * 1e-6):>9} "
            f"{units.seconds(float(predicted)):>10}"
        )
        if run.same_as.get(name, name) == ours and name != "cloudcoll":
            line += "   the same order"
        elif ratio := ratios.get(name):
            line += f"   {ratio.ratio:.2f}x  ({ratio.low:.2f} to {ratio.high:.2f})"
        lines.append(line)
    return lines
