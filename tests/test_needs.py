from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import needs
import pytest

HERE = Path(__file__).parent
TABLE = """
ABSENT = Need("a cluster", "what clusters do", "rent one", False)
OWNED = Need("the sea", "ships", "at the coast", False, excused=True)
NEEDS = {need.reason: need for need in (ABSENT, OWNED)}
"""
TESTS = """
import pytest, needs
@pytest.mark.parametrize("number", range(3))
@needs.ABSENT.mark
def test_on_a_cluster(number): pass
def test_here(): pass
"""
OWNED = "@needs.OWNED.mark\ndef test_at_sea(): pass\n"
UNKNOWN = "def test_by_chance(): pytest.skip('not today')\n"


def run(
    folder: Path, text: str, *options: str, strict: bool = False
) -> tuple[int, str]:
    """Run tests under this conftest; return the exit code and what it printed."""
    for name in ("conftest.py", "turns.py"):
        shutil.copy(HERE / name, folder)
    (folder / "needs.py").write_text((HERE / "needs.py").read_text() + TABLE)
    (folder / "test_these.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(folder)],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "CLOUDCOLL_NO_SKIP": "1" if strict else ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.many
@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_the_last_lines_say_what_was_not_tried(
    tmp_path: Path, options: list[str]
) -> None:
    """Tests that what is missing is named once, with its tests and how to get it."""
    code, printed = run(tmp_path, TESTS + OWNED, *options)
    assert code == 0, printed
    assert printed.splitlines()[-4:] == [
        "Not tried here: 4 tests.",
        "  a cluster (3 tests: what clusters do): rent one",
        "  the sea (1 test: ships): at the coast",
        "All that can be installed comes with .ci/run.",
    ]


def test_a_reason_of_ones_own_is_not_allowed(tmp_path: Path) -> None:
    """Tests that each skip names an entry of the table, or the run fails."""
    code, printed = run(tmp_path, TESTS + UNKNOWN)
    assert code == 1
    assert "1 skipped, not allowed: Skipped: not today" in printed.splitlines()


def test_skips_can_be_forbidden(tmp_path: Path) -> None:
    """Tests that all but those that are excused fail where they are forbidden."""
    code, printed = run(tmp_path, TESTS + OWNED, strict=True)
    assert code == 1
    assert "3 skipped, not allowed: Skipped: needs a cluster" in printed.splitlines()
    assert "not allowed: Skipped: needs the sea" not in printed
    (tmp_path / "excused").mkdir()
    code, printed = run(tmp_path / "excused", "import needs\n" + OWNED, strict=True)
    assert code == 0, printed


def test_nothing_to_say(tmp_path: Path) -> None:
    """Tests the last line of a run that skipped nothing."""
    _, printed = run(tmp_path, "def test_here(): pass\n")
    assert printed.splitlines()[-1] == "No test was skipped."


def test_names_are_told_apart() -> None:
    """Tests that no two entries have one name, and each says how to get it."""
    table = [value for value in vars(needs).values() if isinstance(value, needs.Need)]
    assert len(needs.NEEDS) == len(table)
    assert all(need.covers and need.get for need in table)
