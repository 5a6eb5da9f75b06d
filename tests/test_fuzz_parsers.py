"""All that reads what others write, by the script that does it a million times."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "soak" / "fuzz_parsers.py"


def test_each_reader_has_its_campaign() -> None:
    """Tests that `make soak` gives all readers of the script their bytes."""
    spec = importlib.util.spec_from_file_location(
        "soak", SCRIPT.with_name("__main__.py")
    )
    assert spec
    assert spec.loader
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    listed = [
        name
        for script, *words in soak.CAMPAIGNS.values()
        if script == SCRIPT.name
        for name in words[1].split()
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "none"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    known = done.stderr.partition("there are ")[2].replace(",", "").split()
    assert sorted(listed) == sorted(known) != []


def test_hostile_bytes_are_refused() -> None:
    """Tests frames, TLS, requests, datagrams, host lists, files and the history.

    The script says by its exit code whether anything but a refusal in one line
    came of one, or memory grew.
    """
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--count", "1000"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 26
    assert all(int(took) > 0 < int(refused) for _, took, refused, *_ in rows)
