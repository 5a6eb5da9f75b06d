"""Tests of locks on files."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cloudcoll.files.locks import lock

HOLDER = """
import sys
from cloudcoll.files.locks import lock
file = open(sys.argv[1], "ab")
assert lock(file)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_is_one_users(tmp_path: Path) -> None:
    """Tests that a second one gets it only once the first has closed the file."""
    path = tmp_path / "lock"
    with path.open("ab") as mine, path.open("ab") as other:
        assert lock(mine)
        assert not lock(other)
        assert not lock(other, 0.05)
    with path.open("ab") as file:
        assert lock(file)


def test_who_waits_has_it_when_its_owner_ends(tmp_path: Path) -> None:
    """Tests an owner that is killed while another waits."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder,
        path.open("ab") as file,
        ThreadPoolExecutor(1) as pool,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not lock(file)
        waiting = pool.submit(lock, file, 60.0)
        holder.kill()
        assert waiting.result()
