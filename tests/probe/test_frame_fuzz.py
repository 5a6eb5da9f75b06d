from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "soak" / "fuzz_frames.py"


def test_thousands_of_hostile_frames() -> None:
    """Tests that both ends refuse what is no frame, and keep none of it.

    The script that does so a million times ends in an error if either end does
    anything but take a frame or refuse it, or if memory grew by 32 MB.
    """
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--frames", "20000"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[:4]]
    assert [row[:2] for row in rows] == [
        ["driver", "refused"],
        ["driver", "took"],
        ["agent", "refused"],
        ["agent", "took"],
    ]
    assert all(int(row[2]) > 1000 for row in rows)
