from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_sixty_agents_keep_their_budgets() -> None:
    """Tests that simulated agents end in time, meet one at a time, and see the racks.

    The script that does so for a thousand says by its exit code whether any
    host was claimed twice and whether time and bytes stayed within the plan.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--hosts", "60"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Each row is followed by its figures for the record.
    rows = [line.split() for line in done.stdout.splitlines()[1::2]]
    assert [row[1] for row in rows] == ["quick", "standard", "full"]
    for row in rows:
        twice, racks, pods, uplinks = row[-4:]
        assert twice == "0"
        if row[1] != "quick":  # which takes a third of the pairs only
            assert min(float(racks), float(pods)) >= 0.98
            assert float(uplinks.rstrip("%")) <= 15.0
