"""The algorithm that the installed Open MPI takes by itself, told by its bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from monitored import monitored

from cloudcoll.collectives import SCHEDULES, build_schedule
from cloudcoll.libraries import select
from cloudcoll.libraries.open_mpi_rules import ALGORITHMS

SIZES = {
    "allgather": [1 << 10, 1 << 16],
    "allreduce": [1 << 6, 1 << 12, 1 << 13, 1 << 16, 1 << 18],
    "alltoall": [1 << 9, 1 << 15],
    "bcast": [1 << 6, 1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 17, 1 << 20],
    "reduce": [1 << 5, 1 << 12, 1 << 13, 1 << 16, 1 << 18, 1 << 20],
    "reduce_scatter": [1 << 12, 1 << 16, 1 << 17, 1 << 18],
}
"""Thresholds, in bytes: of the vector, of allgather and alltoall of a block."""


def points(ranks: int) -> list[tuple[str, int]]:
    """Return (call, elements of four bytes) below and at or above each threshold."""
    found = []
    for call, sizes in SIZES.items():
        blocks = 1 if call in {"allgather", "alltoall"} else ranks
        for size in sizes:
            # Whole elements in each of the blocks: the nearest on either side.
            above = -(-size // (4 * blocks))
            found += [(call, ranks * block) for block in (above - 1, above) if block]
    return found


def difference(call: str, ranks: int, size: int, matrix: object, name: str) -> float:
    """Return how far the bytes of an algorithm are from those measured."""
    chosen = select("openmpi@5.0.11", call, ranks, size)
    parameters = chosen.parameters if name == chosen.algorithm else {}
    schedule = build_schedule(call, name, ranks, size, **parameters)
    return float(np.abs(schedule.pair_bytes() - np.array(matrix)).max())


@pytest.mark.parametrize("ranks", [3, 7, pytest.param(16, marks=pytest.mark.slow)])
def test_the_rule_is_what_open_mpi_does(ranks: int, tmp_path: Path) -> None:
    """Tests next to each threshold that the bytes are those of the rule's choice."""
    asked = points(ranks)
    jobs = [
        {"call": call, "root": 0, "elements": elements, "forced": {}}
        for call, elements in asked
    ]
    told_apart = set()
    for (call, elements), matrix in zip(
        asked, monitored(ranks, jobs, tmp_path, {}), strict=True
    ):
        size = 4 * elements
        chosen = select("openmpi@5.0.11", call, ranks, size).algorithm
        slack = 4 * ranks
        assert difference(call, ranks, size, matrix, chosen) <= slack, (call, size)
        others = [
            name
            for name in ALGORITHMS[call].split()
            if SCHEDULES[call][name].only in (None, ranks)
            and difference(call, ranks, size, matrix, name) > slack
        ]
        told_apart |= {call} if others else set()
    assert {"allreduce", "bcast", "reduce", "reduce_scatter"} <= told_apart
