"""The schedules against what the installed Open MPI sends, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from monitored import monitored

from cloudcoll.collectives import SCHEDULES, build_schedule

NUMBERS: dict[str, list[str]] = {
    "allgather": [
        "linear",
        "bruck",
        "recursive_doubling",
        "ring",
        "neighbor",
        "two_proc",
        "sparbit",
    ],
    "allreduce": [
        "basic_linear",
        "nonoverlapping",
        "recursive_doubling",
        "ring",
        "segmented_ring",
        "rabenseifner",
    ],
    "alltoall": ["linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"],
    "bcast": [
        "linear",
        "chain",
        "pipeline",
        "split_binary_tree",
        "binary_tree",
        "binomial",
        "knomial",
        "scatter_allgather",
        "scatter_allgather_ring",
    ],
    "reduce": [
        "linear",
        "chain",
        "pipeline",
        "binary",
        "binomial",
        "in_order_binary",
        "rabenseifner",
    ],
    "reduce_scatter": ["nonoverlapping", "recursive_halving", "ring", "butterfly"],
    "reduce_scatter_block": [
        "block_linear",
        "block_recursive_doubling",
        "recursive_halving",
        "butterfly_block",
    ],
}
"""The library's algorithms 1, 2, ... by the names of `SCHEDULES`."""

OTHERS = {"root": 3, "segment": 1000, "fanout": 3, "radix": 3}
PARTS = {"reduce": 7, "bcast": 8, "gather": 2, "scatter": 2}


class Case(NamedTuple):
    """One call of an algorithm that is forced."""

    call: str
    algorithm: str
    parameters: dict[str, int]

    def forced(self) -> dict[str, int]:
        """Return the values of the control variables of ``coll_tuned``."""
        given = self.parameters
        number = 1 + NUMBERS[self.call].index(self.algorithm)
        numbers = dict.fromkeys([*NUMBERS, "gather", "scatter"], 0)
        numbers |= {key: given[key] for key in PARTS if key in given}
        numbers[self.call] = number
        forced = {f"{key}_algorithm": value for key, value in numbers.items()}
        for key in ("allreduce", "bcast", "reduce"):
            forced[f"{key}_algorithm_segmentsize"] = given.get("segment", 0)
            forced[f"{key}_algorithm_chain_fanout"] = given.get("fanout", 4)
        forced["bcast_algorithm_knomial_radix"] = given.get("radix", 4)
        return {f"coll_tuned_{key}": value for key, value in forced.items()}


def cases(ranks: int) -> list[Case]:
    """Return every algorithm with its default and with other parameters."""
    found = []
    for call, names in NUMBERS.items():
        for name in names:
            family = SCHEDULES[call.removesuffix("_block")][name]
            if family.only not in (None, ranks):
                continue
            # Only broadcasts have a radix; parts that are not forced are chosen.
            takes = {*family.parameters()} - ({"radix"} if call != "bcast" else set())
            found.append(Case(call, name, {key: 1 for key in PARTS if key in takes}))
            others = {**OTHERS, **PARTS, "root": OTHERS["root"] % ranks}
            given = {key: value for key, value in others.items() if key in takes}
            found += [Case(call, name, given)] if given else []
    return found


def sent(ranks: int, elements: int, asked: list[Case], folder: Path) -> list[Any]:
    """Return the bytes between ranks for each case, measured in one job."""
    jobs = [
        {
            "call": case.call,
            "root": case.parameters.get("root", 0),
            "elements": elements,
            "forced": case.forced(),
        }
        for case in asked
    ]
    options = {"coll": "^han,adapt", "coll_tuned_use_dynamic_rules": "1"}
    return monitored(ranks, jobs, folder, options)


@pytest.mark.many
@pytest.mark.parametrize("ranks", [2, 6, 8])
def test_schedules_are_what_open_mpi_sends(ranks: int, tmp_path: Path) -> None:
    """Tests every pair's bytes for all algorithms, roots, segments and shapes."""
    elements, asked = 16 * 25 * ranks, cases(ranks)
    for case, matrix in zip(asked, sent(ranks, elements, asked, tmp_path), strict=True):
        collective = case.call.removesuffix("_block")
        schedule = build_schedule(
            collective, case.algorithm, ranks, 4 * elements, **case.parameters
        )
        # Blocks may differ by one element of four bytes, for each block passed.
        difference = np.abs(schedule.pair_bytes() - np.array(matrix)).max()
        assert difference <= 4 * ranks, case
