from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.errors import UnusableError
from cloudcoll.local_daemon import leased_hosts, leases_dir, take_lease

JOB = """
import os
import resource
import sys
from cloudcoll.local_daemon import take_lease
take_lease(["a", "b"])
print("taken", flush=True)
os.execvp("cat", ["cat"])
"""


def test_hosts_are_busy_while_a_job_runs() -> None:
    """Tests that a lease holds as long as its descriptor, and is removed then."""
    first, second = take_lease(["a", "b"]), take_lease(["b", "c"])
    assert leased_hosts() == {"a", "b", "c"}
    os.close(first)
    assert leased_hosts() == {"b", "c"}
    os.close(second)
    assert leased_hosts() == frozenset()
    assert list(leases_dir().iterdir()) == []


def test_a_program_that_takes_over_keeps_the_lease() -> None:
    """Tests a job that replaces the process that took the lease, and its death."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", JOB], **pipes) as job:  # type: ignore[call-overload]
        assert job.stdout.readline() == b"taken\n"
        job.stdin.write(b"cat speaks\n")
        job.stdin.flush()
        assert job.stdout.readline() == b"cat speaks\n"
        assert leased_hosts() == {"a", "b"}
        job.kill()
        job.wait(20)
        assert leased_hosts() == frozenset()


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"\xff", b"7"])
def test_what_is_no_list_of_hosts(text: bytes) -> None:
    """Tests that a file that is not ours to understand makes no host busy."""
    path = leases_dir() / "other.json"
    os.close(take_lease(["a"]))
    path.write_bytes(text)
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert leased_hosts() == frozenset()


def test_no_lease_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a folder that can't be is told in one line."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path / "file"))
    with pytest.raises(UnusableError, match="cannot write"):
        take_lease(["a"])
    assert leased_hosts() == frozenset()


def test_a_full_disk_leaves_nothing() -> None:
    """Tests that a lease that does not fit is told, and no part of it stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(UnusableError, match="cannot write"):
            take_lease(["a"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(leases_dir().iterdir()) == []


@pytest.mark.timeout(20)
def test_a_pipe_among_them() -> None:
    """Tests that nobody waits for somebody to write into it."""
    own = take_lease(["a"])
    os.mkfifo(leases_dir() / "other.json")
    assert leased_hosts() == {"a"}
    os.close(own)
