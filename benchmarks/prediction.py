"""Predicted against measured allreduce times on an emulated data centre.

Uneven racks of 16 hosts; the fabric is what a standard probe infers there. One
MPI job per algorithm times the given, the grouped, ten random and CloudColl's
order, taking turns; larger sizes take minutes each. A row per algorithm and
size: the median of measured over predicted among random and among good orders,
the median error over all orders, how the ten random orders' ranks correlate
(Spearman), and how much longer the order given and the random ones take than
CloudColl's: predicted, measured.

    python -m benchmarks.prediction [--keep FOLDER | --from FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.emulated import CLOUDCOLL, command_in
from benchmarks.record import Figure, json_option, write_figures
from cloudcoll.bench.result import BenchRun

LAB = "prediction"
ALGORITHMS = ("recursive_doubling", "ring", "rabenseifner")
GOOD = ("grouped", "cloudcoll")
ORDERS = "given,grouped,random:10,cloudcoll"


def measured(options: argparse.Namespace) -> Iterator[BenchRun]:
    """Yield a bench of each algorithm, all in one lab."""
    with tempfile.TemporaryDirectory() as folder:
        cloudcoll = command_in(folder)

        keep = options.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        snapshot = keep / "network.snap"
        hosts = Path(folder) / "lab" / LAB / "hosts"
        cloudcoll(
            "lab", "up", "--name", LAB, "--preset", "tuned", "--racks", options.racks,
            "--nic", options.nic, "--uplink", options.uplink,
        )  # fmt: skip
        try:
            # 1: some pairs gave no result, as may be on a busy machine.
            cloudcoll("probe", "--lab", LAB, "--standard", "-o", str(snapshot), good=1)
            inside = ("lab", "exec", "--name", LAB, "--", *CLOUDCOLL)
            for algorithm in options.algorithms.split(","):
                text = cloudcoll(
                    *inside, "bench", "--json", "--snapshot", str(snapshot),
                    "--algorithm", algorithm, "-f", "4",
                    "-b", options.smallest, "-e", options.largest,
                    "--repeats", str(options.repeats), "--orders", options.orders,
                    "mpirun", "--hostfile", str(hosts),
                )  # fmt: skip
                (keep / f"{algorithm}.json").write_text(text)
                yield BenchRun.from_json(text)
        finally:
            cloudcoll("lab", "down", "--name", LAB)


def row(run: BenchRun, size: int) -> tuple[str, Any, float, list[float]]:
    """Return a line for one size, ratios, correlation, errors of the gains."""
    predicted = run.predicted[str(size)]
    names = list(run.orders)
    seconds = np.array([np.median(run.times(size, name)) for name in names]) * 1e-6
    model = np.array([predicted[name] for name in names])
    ratio = seconds / model
    random = np.array([name.startswith("random-") for name in names])
    good = np.array([name in GOOD for name in names])
    rank = float(spearmanr(model[random], seconds[random]).statistic)
    text = (
        f"{run.metadata['algorithm']:18} {size / 2**20:5.0f} MiB  "
        f"random {np.median(ratio[random]):5.2f}  good {np.median(ratio[good]):5.2f}  "
        f"median error {np.median(np.abs(1 / ratio - 1)):6.1%}  "
        f"Spearman {rank:5.2f}  gains"
    )
    ours = names.index(run.same_as.get("cloudcoll", "cloudcoll"))
    errors = []
    for baseline in (np.array(names) == "given", random):
        gains = [np.median(one[baseline]) / one[ours] for one in (model, seconds)]
        errors.append(abs(gains[0] / gains[1] - 1))
        text += f" {gains[0]:.2f}x, {gains[1]:.2f}x"
    return text, ratio, rank, errors


def figures(runs: Iterable[BenchRun]) -> Iterator[Figure]:
    """Print a row for each algorithm and size; yield the figures over all."""
    every: list[float] = []
    medians, ranks, gains = [], [], []
    for run in runs:
        for size in run.sizes:
            text, ratio, rank, off = row(run, size)
            errors = 100 * np.abs(1 / ratio - 1)
            print(text, flush=True)
            every += errors.tolist()
            medians.append(float(np.median(errors)))
            ranks.append(rank)
            gains += [100 * error for error in off]
    name = "prediction: error of seconds, median of the orders of a case"
    yield _over(name, medians, "%")
    yield Figure("prediction: error of seconds, worst order", max(every), unit="%")
    yield _over("prediction: error of gains over given and random", gains, "%")
    yield _over("prediction: rank correlation of random orders", ranks, "")


def _over(what: str, values: list[float], unit: str) -> Figure:
    """Return the median of cases that differ, with the least and the most."""
    kind = f"range of {len(values)}"
    ends = min(values), max(values)
    return Figure(what, float(np.median(values)), *ends, unit=unit, interval=kind)


def main() -> None:
    """Print a row per algorithm and size, and the figures over all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--racks", default="5,3,6,2")
    parser.add_argument("--nic", default="200mbit")
    parser.add_argument("--uplink", default="200mbit")
    parser.add_argument("--algorithms", default=",".join(ALGORITHMS))
    parser.add_argument("--smallest", default="1M")
    parser.add_argument("--largest", default="4M")
    parser.add_argument("--orders", default=ORDERS)
    parser.add_argument("--repeats", type=int, default=2)
    json_option(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="FOLDER")
    where.add_argument("--from", type=Path, metavar="FOLDER", dest="source")
    options = parser.parse_args()
    if options.source:
        files = (options.source / f"{algorithm}.json" for algorithm in ALGORITHMS)
        runs = (BenchRun.from_json(file.read_text()) for file in files if file.exists())
    else:
        runs = measured(options)
    write_figures(figures(runs), options.json)


if __name__ == "__main__":
    main()
