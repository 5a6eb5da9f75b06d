"""The campaigns of ``make soak``: that they start, and a little of what they do."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parent / "soak"
SCRIPT = SOAK / "fuzz_parsers.py"


def campaigns() -> dict[str, list[str]]:
    spec = importlib.util.spec_from_file_location("soak", SOAK / "__main__.py")
    assert spec
    assert spec.loader
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    found: dict[str, list[str]] = soak.CAMPAIGNS
    return found


def test_each_campaign_starts() -> None:
    """Tests that no program has lost what it imports, as tests move."""
    programs = sorted({first for first, *_ in campaigns().values()} - {"-m"})
    assert len(programs) > 10
    load = (
        "import runpy, sys\n"
        "soak, *programs = sys.argv[1:]\n"
        "sys.path.insert(0, soak)\n"
        "for program in programs:\n"
        "    runpy.run_path(f'{soak}/{program}', run_name='loaded')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", load, str(SOAK), *programs],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_each_reader_has_its_campaign() -> None:
    """Tests that `make soak` gives all readers of the script their bytes."""
    listed = [
        name
        for script, *words in campaigns().values()
        if script == SCRIPT.name
        for name in words[1].split()
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--only", "none"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    known = done.stderr.partition("there are ")[2].replace(",", "").split()
    assert sorted(listed) == sorted(known) != []


@pytest.mark.slow
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
