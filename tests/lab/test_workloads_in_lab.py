"""Real training in several orders of the hosts of a lab, and the record of it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {
    "stencil": "mpi4py",
    "lgbm": "lightgbm",
    "xgb": "xgboost",
    "fsdp": "torch",
}
"""Workload -> what it trains with; one for each."""


def script(name: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *argv],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.alone  # it counts bytes, and a busy machine sends some again
@pytest.mark.lab
def test_every_order_learns_the_same_and_sends_what_was_scheduled(
    tmp_path: Path,
) -> None:
    """Tests the workloads whose libraries are here, on four hosts in two racks."""
    names = [name for name in NEEDS if importlib.util.find_spec(NEEDS[name])]
    path = tmp_path / "figures"
    small = ("--racks", "2,2", "--turns", "1", "--steps", "1")
    few = ("--orders", "given,random:2,cloudcoll")
    done = script("workloads", *names, *small, *few, "--json", str(path))
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [f for f in figures if f["what"].endswith("losses differ by")]
    assert len(losses) == len(names)
    assert all(figure["value"] <= figure["most"] for figure in losses)
    words = done.stdout.split()
    sent = [float(words[at + 1]) for at, word in enumerate(words) if word == "sent"]
    assert len(sent) >= 3 * len(names)
    # Beside the payload: headers, acknowledgements, small sums.
    assert all(0.97 < share < 1.1 for share in sent), done.stdout
