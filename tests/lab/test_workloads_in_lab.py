"""Real training in several orders of the hosts of a lab, and the record of it."""

from __future__ import annotations

import importlib.util
import json
import re
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
TWO = pytest.param(("stencil", "fsdp"), id="two")
OTHERS = pytest.param(("lgbm", "xgb"), id="others", marks=pytest.mark.soak)


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
@pytest.mark.parametrize("workloads", [TWO, OTHERS])
@pytest.mark.slow
def test_every_order_learns_the_same_and_sends_what_was_scheduled(
    tmp_path: Path, workloads: tuple[str, ...]
) -> None:
    """Tests the workloads whose libraries are here, on four hosts in two racks."""
    names = [name for name in workloads if importlib.util.find_spec(NEEDS[name])]
    path = tmp_path / "figures"
    small = ("--racks", "2,2", "--turns", "1", "--steps", "1")
    few = ("--orders", "given,random:2,cloudcoll")
    done = script("workloads", *names, *small, *few, "--json", str(path))
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in path.read_text().splitlines()]
    losses = [f for f in figures if f["what"].endswith("losses differ by")]
    assert len(losses) == len(names)
    assert all(figure["value"] <= figure["most"] for figure in losses)
    # Of each workload one line an order: what was sent over what was scheduled.
    parts = re.split(r"^\w+: .* with nobody to talk to$", done.stdout, flags=re.M)[1:]
    assert len(parts) == len(names)
    for part in parts:
        shares = [float(share) for share in re.findall(r"sent ([\d.]+) of", part)]
        assert len(shares) >= 3
        # Beside the payload: headers, acknowledgements, small sums; and, where an
        # order fills links, what these drop and TCP sends again.
        assert min(shares) < 1.1, part
        assert all(0.97 < share < 1.25 for share in shares), part
