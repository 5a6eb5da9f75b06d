from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcoll.daemon.service import held
from cloudcoll.errors import UnusableError

HOLD = """
import sys
from pathlib import Path
from cloudcoll.daemon.service import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock at `tmp_path`/lock."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    argv = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(argv, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_is_told_of_the_first(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Tests that the refusal names the process that holds the lock."""
    with (
        pytest.raises(UnusableError, match=rf"process {holder.pid} on \S+ since"),
        held(tmp_path / "lock"),
    ):
        pytest.fail("two hold it")


def test_a_killed_holder_leaves_nothing(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Tests that after SIGKILL the next holds it without any clean-up."""
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(20)
    with held(tmp_path / "lock"):
        assert f"process {os.getpid()} " in (tmp_path / "lock").read_text()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """Tests that a file in the folder's place is told in one line."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(UnusableError, match="cannot open"),
        held(tmp_path / "file" / "lock"),
    ):
        pytest.fail("it is held")


@pytest.mark.parametrize("there", [True, False])
def test_the_folder_is_closed_to_others(tmp_path: Path, there: bool) -> None:
    """Tests that nobody else can open what is in it: that is enough to lock it."""
    folder = tmp_path / "daemon"
    if there:
        folder.mkdir()
        folder.chmod(0o755)
    with held(folder / "lock"):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_a_pipe_in_its_place(tmp_path: Path) -> None:
    """Tests that it is told in one line."""
    os.mkfifo(tmp_path / "lock")
    with (
        pytest.raises(UnusableError, match="it is no file"),
        held(tmp_path / "lock"),
    ):
        pytest.fail("it is held")
