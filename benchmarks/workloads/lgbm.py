"""LightGBM's data-parallel trees over sockets, on a wide table like Higgs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import lightgbm
import numpy as np

from benchmarks.workloads.place import Place, Sent

LIBRARY = "lightgbm@4.6"
COLUMNS, BINS, LEAVES = 1000, 255, 4
ENTRY = 16
"""Bytes of a bin: sums of gradients and of Hessians."""


def table(rank: int, rows: int = 500, columns: int = COLUMNS) -> tuple[np.ndarray, ...]:
    """Return a rank's rows: momenta and angles, signal where a few of them agree."""
    generator = np.random.default_rng(rank)
    values = generator.gamma(2.0, 1.0, (rows, columns)).astype(np.float32)
    score = values[:, 0] * values[:, 1] - values[:, 2] + np.hypot(*values[:, 3:5].T)
    return values, (score + generator.normal(size=rows) > 4).astype(np.float32)


def sent(ranks: int) -> list[Sent]:
    """Return the histograms of each leaf that is built; best splits are small."""
    return [Sent("reduce_scatter", COLUMNS * BINS * ENTRY, LEAVES - 1)]


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    parameters = {
        "objective": "binary", "tree_learner": "serial" if place.alone else "data",
        "num_leaves": LEAVES, "max_bin": BINS, "min_data_in_bin": 1,
        "num_threads": 1, "verbosity": -1, "force_col_wise": True,
    }  # fmt: skip
    if not place.alone:
        machines = ",".join(f"{address}:{place.port}" for address in place.addresses)
        parameters |= {
            "machines": machines, "local_listen_port": place.port,
            "num_machines": place.size, "time_out": 2, "pre_partition": True,
        }  # fmt: skip
    values, labels = table(place.rank)
    booster = lightgbm.Booster(
        parameters, lightgbm.Dataset(values, labels, params=parameters)
    )

    def step() -> float:
        booster.update()
        ((_, _, loss, _),) = booster.eval_train()
        return float(loss)

    yield step
    if not place.alone:
        place.wait()
        booster.free_network()
