"""``cloudcoll run`` as a user starts it, for tests of its command lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(folder: Path, *argv: str, python: str = "") -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, *python.split(), "-m", "cloudcoll.cli", "run", *argv],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stdout, ended.stderr
