from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest
from turns import Place, Quiet, turn

# Says that it is inside, and stays there until it is told to go.
VISIT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from turns import turn
with turn(Path(sys.argv[2]), sys.argv[3] == "alone"):
    print("in", flush=True)
    sys.stdin.readline()
    print("out", flush=True)
"""


def visitor(folder: Path, how: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", VISIT, str(Path(__file__).parent), str(folder), how]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)


def test_together(tmp_path: Path) -> None:
    """Tests that tests that may run beside others do."""
    with turn(tmp_path, alone=False), visitor(tmp_path, "beside") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        other.communicate("go\n")


def test_alone(tmp_path: Path) -> None:
    """Tests that one that runs alone comes after those inside, before later ones."""
    with visitor(tmp_path, "beside") as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "in\n"
        with visitor(tmp_path, "alone") as second:
            wait_until_shut(tmp_path)
            with visitor(tmp_path, "beside") as third:
                assert first.communicate("go\n")[0] == "out\n"
                assert second.stdout is not None
                assert second.stdout.readline() == "in\n"
                assert second.communicate("go\n")[0] == "out\n"
                assert third.communicate("go\n")[0] == "in\nout\n"


def test_alone_one_after_the_other(tmp_path: Path) -> None:
    """Tests that nobody comes in between two that run alone, and after them all may."""
    place = Place(tmp_path)
    with place.test(alone=True, next_alone=True):
        other = visitor(tmp_path, "beside")
        wait_until_shut(tmp_path)
    with other:
        with place.test(alone=True, next_alone=False):
            assert other.stdout is not None
            assert select.select([other.stdout], [], [], 0)[0] == []
        assert other.stdout.readline() == "in\n"
        with place.test(alone=False, next_alone=True):
            assert other.communicate("go\n")[0] == "out\n"
        with place.test(alone=True, next_alone=False):
            pass


def wait_until_shut(folder: Path) -> None:
    """Return when somebody holds the door."""
    number = str((folder / "door").stat().st_ino)
    while not any(
        line.split()[5].endswith(f":{number}") and "->" not in line
        for line in Path("/proc/locks").read_text().splitlines()
    ):
        pass


@pytest.mark.alone
def test_a_busy_machine() -> None:
    """Tests that it is waited for, until it is clear that it stays busy."""
    begun = "print(flush=True)\nwhile True: pass"
    hogs = [
        subprocess.Popen([sys.executable, "-c", begun], stdout=subprocess.PIPE)
        for _ in range(2 * (os.cpu_count() or 1) + 1)
    ]
    try:
        for hog in hogs:
            assert hog.stdout is not None
            assert hog.stdout.readline() == b"\n"
        impatient = Quiet(patience_s=0.2)
        assert not impatient.comes()
        Timer(0.2, kill, [hogs]).start()
        assert Quiet(patience_s=60.0).comes()
        assert all(hog.wait(60) for hog in hogs)
        assert impatient.comes()
    finally:
        kill(hogs)
        for hog in hogs:
            hog.communicate()


def kill(hogs: list[subprocess.Popen[bytes]]) -> None:
    for hog in hogs:
        hog.kill()
