from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "daemon_faults.py"


def test_files_are_whole_after_any_kill() -> None:
    """Tests SIGKILL while snapshot, map, history and lock are written.

    The script that does so at 500 moments says by its exit code whether the
    next daemon found anything that was neither old nor new.
    """
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "kills", "--points", "40"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
