"""Gains of collectives on emulated data centres, against what they should be.

For each lab a standard probe, then one job for each collective in which orders
take turns: `given` are the names sorted, `grouped` is what sorting gives where
names follow the racks. A line per ratio: baseline's time over that of CloudColl's
order, its interval, what was predicted and what is wanted; then how far off the
predictions are.

    python -m benchmarks.targets [--only WORD] [--json FILE]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.emulated import (
    Emulated,
    emulated,
    prediction_figures,
    ratio_figures,
)
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.result import BenchRun
from cloudcoll.report.bench import table_lines

ORDERS = "given,grouped,random:5,cloudcoll"
NOT_SLOWER = 0.97
"""Of any baseline's time: the noise of such measurements."""


class Case(NamedTuple):
    """One bench and the ratios wanted of it, by baseline."""

    racks: str
    what: str
    options: str
    wanted: dict[str, float]


CASES = (
    Case("4,4,4,4", "allreduce ring", "--algorithm ring", {"random": 3.0}),
    Case("4,4,4,4", "allgather", "--collective allgather", {"grouped": 1.5}),
    Case("4,4,4,4", "torch allreduce", "--via torch", {"random": 2.0}),
    Case("5,3,6,2", "allreduce", "", {"grouped": 1.15}),
    Case("5,3,6,2", "allgather", "--collective allgather", {"grouped": 1.15}),
    Case("5,4,6", "allreduce", "", {}),
    Case("5,4,6", "allgather", "--collective allgather", {"grouped": 1.15}),
    Case("5,4,6", "reduce scatter", "--collective reduce_scatter", {}),
)


def measured(cluster: Emulated, case: Case, size: str, seconds: int) -> BenchRun:
    """Return the bench of a case."""
    result = cluster.home / "result.json"
    cluster.inside(
        "bench", "--snapshot", str(cluster.snapshot), *case.options.split(),
        "-b", size, "-e", size, "--seconds", str(seconds), "--orders", ORDERS,
        "-o", str(result), "mpirun", "--hostfile", str(cluster.hostfile),
    )  # fmt: skip
    return BenchRun.from_json(result.read_text())


def errors(run: BenchRun) -> list[float]:
    """Return the relative error of the prediction for each order of a bench."""
    predicted = run.predicted[str(run.sizes[0])]
    return [
        float(abs(predicted[name] / np.median(run.times(run.sizes[0], name)) * 1e6 - 1))
        for name in run.orders
    ]


def figures(case: Case, run: BenchRun) -> Iterator[Figure]:
    """Yield a figure for each baseline, and that of the prediction."""
    what = f"{case.what}, racks {case.racks}"
    wanted = dict.fromkeys(("given", "grouped", "random"), NOT_SLOWER) | case.wanted
    gains = list(ratio_figures(what, run, wanted))
    yield from gains
    yield from prediction_figures(what, errors(run), gains, 0.08)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases with this word")
    parser.add_argument("--racks", default="", help="cases on these racks")
    parser.add_argument("--size", default="2M")
    parser.add_argument("--seconds", type=int, default=40, help="for each case")
    json_option(parser)
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.what]
    for racks in dict.fromkeys(case.racks for case in cases):
        if options.racks not in ("", racks):
            continue
        with emulated("targets", racks) as cluster:
            for case in cases:
                if case.racks == racks:
                    run = measured(cluster, case, options.size, options.seconds)
                    print("", *table_lines(run), "", sep="\n")
                    write_figures(figures(case, run), options.json)


if __name__ == "__main__":
    main()
