"""The scale study of docs/scale-study.md, sixteen hosts of it.

Needs libsimgrid-dev and g++ from apt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from needs import SIMGRID

pytestmark = [pytest.mark.system, SIMGRID.mark]

STUDY = Path(__file__).parents[2] / "benchmarks" / "simgrid" / "study.py"


@pytest.mark.slow
def test_a_real_program_runs_in_each_order(tmp_path: Path) -> None:
    """Tests SimGrid's seconds of an allgather, and that what has rows is not rerun."""
    rows = tmp_path / "rows.jsonl"
    one = ("--hosts", "16", "--platforms", "8:1", "--programs", "Bruck allgather")
    command = [sys.executable, str(STUDY), *one, "--rows", str(rows)]
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    lines = rows.read_text().splitlines()
    runs = {run["order"]: run for run in map(json.loads, lines)}
    seconds = {order: run["seconds"] for order, run in runs.items()}
    assert len(runs) == len(lines) == 6
    assert seconds["cloudcoll"] < seconds["given"]
    assert seconds["regrouped"] <= seconds["grouped"]
    for run in runs.values():
        assert run["predicted"] == pytest.approx(run["seconds"], rel=0.15)
