"""XGBoost's histogram trees, its ranks given by its tracker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

from benchmarks.workloads.lgbm import table
from benchmarks.workloads.place import Place, Sent

LIBRARY = "xgboost@3.2"
COLUMNS, BINS, DEPTH = 128, 256, 3
ENTRY = 16
"""Bytes of a bin: sums of gradients and of Hessians."""
DEADLINE = 60
"""Seconds to wait for the others."""


def sent(ranks: int) -> list[Sent]:
    """Return the histograms of each level: of the root, then of half the nodes."""
    nodes = [1, *(2**level for level in range(DEPTH - 1))]
    return [Sent("allreduce", COLUMNS * BINS * ENTRY * count) for count in nodes]


@contextlib.contextmanager
def training(place: Place) -> Iterator[Callable[[], float]]:
    if place.alone:
        yield boosting(place.rank)
        return
    tracker = None
    if place.rank == 0:
        tracker = RabitTracker(
            *(place.size, place.addresses[0], place.port),
            sortby="task",
            timeout=DEADLINE,
        )
        tracker.start()
    place.wait()
    with collective.CommunicatorContext(
        dmlc_tracker_uri=place.addresses[0],
        dmlc_tracker_port=place.port,
        dmlc_task_id=f"{place.rank:04}",
        dmlc_timeout=DEADLINE,
    ):
        if collective.get_rank() != place.rank:
            raise RuntimeError(f"the tracker gave rank {place.rank} another number")
        yield boosting(place.rank)
    if tracker:
        tracker.wait_for(DEADLINE)


def boosting(rank: int) -> Callable[[], float]:
    """Return a step that grows a tree."""
    values, labels = table(rank, columns=COLUMNS)
    data = xgboost.DMatrix(values, labels, nthread=1)
    booster = xgboost.Booster(
        {
            "objective": "binary:logistic", "tree_method": "hist", "nthread": 1,
            "max_depth": DEPTH, "max_bin": BINS,
        },
        [data],
    )  # fmt: skip
    done = 0

    def step() -> float:
        nonlocal done
        booster.update(data, done)
        done += 1
        found = booster.predict(data)
        return float(-np.log(np.where(labels > 0, found, 1 - found)).mean())

    return step
