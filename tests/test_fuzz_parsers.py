"""All that reads what others write, by the script that does it a million times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "soak" / "fuzz_parsers.py"


def test_hostile_bytes_are_refused() -> None:
    """Tests frames, TLS, requests, datagrams, host lists, files and the history.

    The script says by its exit code whether anything but a refusal in one line
    came of one, or memory grew.
    """
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count", "1000"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 26
    assert all(int(took) > 0 < int(refused) for _, took, refused, *_ in rows)
