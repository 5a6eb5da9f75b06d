"""The file of rules by which Open MPI is told a tuning, and what it then sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from monitored import monitored

from cloudcoll.collectives import build_schedule
from cloudcoll.libraries import select
from cloudcoll.libraries.tell import tell
from cloudcoll.tuning import TunedRange, Tuning

LIBRARY = "openmpi@5.0.11"
RANKS = 7
FEWER = 6
SIZE = RANKS * FEWER * 4 * 400
"""Bytes of the full vector from which an algorithm is asked for: 67200."""
CHOSEN: dict[str, tuple[str, dict[str, int]]] = {
    "allgather": ("ring", {}),
    "allreduce": ("ring", {}),
    "alltoall": ("modified_bruck", {}),
    "bcast": ("chain", {"segment": 4096, "fanout": 2}),
    "reduce": ("chain", {"segment": 8192, "fanout": 3}),
    "reduce_scatter": ("ring", {}),
}
"""What the library does not take there by itself."""


def tuning(library: str) -> Tuning:
    ranges = []
    for call, (name, parameters) in CHOSEN.items():
        ranges += [TunedRange(call, 0), TunedRange(call, SIZE, name, parameters)]
    return Tuning(library, RANKS, 1, tuple(ranges))


def off(
    matrix: Any, call: str, ranks: int, size: int, name: str, told: dict[str, int]
) -> float:
    """Return by how many bytes a pair differs at most from a schedule."""
    pairs = build_schedule(call, name, ranks, size, **told).pair_bytes()
    measured = np.array(matrix)[:ranks, :ranks]
    return float(np.abs(pairs - measured).max())


def test_the_algorithm_asked_for_runs_from_its_size_on(tmp_path: Path) -> None:
    """Tests next to a threshold, and among fewer ranks, that the bytes are right."""
    told = tell(tuning(LIBRARY))
    assert set(told.collectives) == set(CHOSEN)
    assert not told.notes
    rules = tmp_path / "rules"
    rules.write_text(told.file)
    options = {
        name.removeprefix("OMPI_MCA_"): value
        for name, value in {**told.variables, told.file_variable: str(rules)}.items()
    }
    asked = [
        (call, members, size)
        for call in CHOSEN
        for members, size in (
            (RANKS, SIZE - 4 * RANKS),
            (RANKS, SIZE),
            (FEWER, SIZE + 4 * FEWER),
        )
    ]
    jobs = [
        {
            "call": call,
            "root": 0,
            "elements": size // 4,
            "forced": {},
            "members": members,
        }
        for call, members, size in asked
    ]
    found = monitored(RANKS, jobs, tmp_path, options)
    for (call, members, size), matrix in zip(asked, found, strict=True):
        own = select(LIBRARY, call, members, size)
        name, parameters = CHOSEN[call]
        case = (call, members, size)
        far = off(matrix, call, members, size, own.algorithm, dict(own.parameters))
        near = off(matrix, call, members, size, name, parameters)
        if members == RANKS and size >= SIZE:
            far, near = near, far
        assert far <= 4 * RANKS, case
        assert near > 4 * RANKS, case


def test_the_rules_are_read_back_as_they_were_told(tmp_path: Path) -> None:
    """Tests that the file that is written is the one that `select` reads."""
    told = tell(tuning(LIBRARY))
    rules = tmp_path / "rules"
    rules.write_text(told.file)
    settings = {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_dynamic_rules_filename": str(rules),
    }
    for call, (name, parameters) in CHOSEN.items():
        for ranks, size in ((RANKS, SIZE), (RANKS, SIZE - 4), (6, SIZE), (8, SIZE)):
            chosen = select(LIBRARY, call, ranks, size, settings=settings)
            if (ranks, size) == (RANKS, SIZE):
                assert (chosen.algorithm, chosen.parameters) == (name, parameters)
            else:
                own = select(LIBRARY, call, ranks, size)
                assert chosen.algorithm == own.algorithm
