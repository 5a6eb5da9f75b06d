"""What real Open MPI sends between hosts, by the kernel's counters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloudcoll.collectives import build_schedule

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
AUDIT = (sys.executable, str(ROOT / "benchmarks" / "byte_audit"))
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
ALGORITHMS = {"3": "recursive_doubling", "4": "ring", "6": "rabenseifner"}
"""By Open MPI's numbers."""
RANKS = 5


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What five ranks sent in three algorithms, two sizes each."""
    only = [f"allreduce:{algorithm}" for algorithm in ALGORITHMS.values()]
    done = subprocess.run(
        [
            *(*AUDIT, "count", "openmpi", "--launcher", MPIRUN),
            *("--ranks", str(RANKS), "--only", *only),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def table(tmp_path: Path, rows: list[dict[str, Any]]) -> list[str]:
    """Return the verdicts of the printed table."""
    path = tmp_path / "rows"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run(
        [*AUDIT, "table", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| Open")]
    return [line.split("|")[-2].strip() for line in lines]


def test_open_mpi_sends_what_the_schedules_say(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Tests that every pair of hosts carries its scheduled bytes and few others."""
    assert len(rows) == 2 * len(ALGORITHMS)
    assert table(tmp_path, rows) == ["2 of 2"] * len(ALGORITHMS)
    # What Open MPI's daemons tell of their machines may come late, once: 33 KB.
    *others, most = sorted(row["elsewhere"] for row in rows)
    assert max(others) < 4096
    assert most < 65536


def test_each_algorithm_fits_its_own_schedule_alone(rows: list[dict[str, Any]]) -> None:
    """Tests that the bytes tell the algorithms apart: it was the one asked for."""
    for row in rows:
        off = {}
        for number, algorithm in ALGORITHMS.items():
            schedule = build_schedule("allreduce", algorithm, RANKS, row["size"])
            wrong = np.abs(schedule.pair_bytes() - row["sent"])
            off[number] = wrong.max() / row["size"]
        assert off.pop(row["forced"]) < 0.01
        assert min(off.values()) > 0.3


def test_wrong_bytes_are_found(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """Tests the verdict on a pair that lacks bytes, and on one that has too many."""
    lacking, stray = (json.loads(json.dumps(rows[1])) for _ in range(2))
    lacking["sent"][0][1] *= 0.9
    stray["sent"][0][3] += 0.05 * stray["size"]
    assert table(tmp_path, [lacking]) == ["0 of 1"]
    assert table(tmp_path, [stray]) == ["0 of 1"]
    assert table(tmp_path, [rows[1]]) == ["1 of 1"]
