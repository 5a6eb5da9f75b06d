"""Every kind of file that is written, by the script that does it 500 times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "soak" / "write_faults.py"


def run(*argv: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *argv],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_files_are_whole_after_any_kill() -> None:
    """Tests that after SIGKILL the old or the new content is there, and is replaced.

    The script says by its exit code whether any file was neither.
    """
    assert len(run("kills", "--points", "10").splitlines()) == 10


@pytest.mark.lab
def test_files_are_whole_on_a_full_and_a_read_only_disk() -> None:
    """Tests that each writer names its place, in an error of exit code 3.

    What was there stays, and once there is room it is replaced.
    """
    said = run("disk").splitlines()
    assert len(said) == 18
    assert sum("cannot" in line for line in said) == 17  # a lock needs no room
