"""``cloudcoll run`` where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path
from cloudcoll.network.tree import Fabric, Node

ROOT = Path(__file__).parents[2]
JOB = ("--hostfile", "hosts", "app")
IN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
LAUNCHER = """#!/bin/sh
[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || echo ran "$@"
"""
ON_SUCH_A_DISK = """
disk=$1 state=$2
shift 2
mount -t tmpfs -o size=128k none "$disk"
mkdir -p "$disk/snapshots"
cp kept.snap "$disk/snapshots/$(basename "$KEPT")"
if [ "$state" = full ]; then cat /dev/zero > "$disk/fill" 2>/dev/null
else mount -o remount,bind,ro "$disk"; fi
exec "$@"
"""


@pytest.fixture
def snapshot(tmp_path: Path) -> NetworkSnapshot:
    """A snapshot in which the order given is not the best, and a job of its hosts."""
    rows = [
        Node(rack, tuple(Node(name, (), 50e6, 50e6) for name in rack), 50e6, 50e6)
        for rack in ("ac", "bd")
    ]
    made = NetworkSnapshot(
        tuple(map(Host, "abcd")),
        fabric=Fabric(Node("core", tuple(rows))),
        created=time.time(),
    )
    (tmp_path / "hosts").write_text("".join(f"{name} slots=1\n" for name in "abcd"))
    (tmp_path / "mpirun").write_text(LAUNCHER)
    (tmp_path / "mpirun").chmod(0o755)
    return made.save(tmp_path / "kept.snap")


@pytest.mark.lab
@pytest.mark.parametrize("state", ["full", "read-only"])
@pytest.mark.parametrize("temporary", [False, True], ids=["state", "all"])
def test_the_job_runs(
    state: str, temporary: bool, snapshot: NetworkSnapshot, tmp_path: Path
) -> None:
    """Tests a job whose map can't be kept, and one whose host list can't be written.

    The first runs in the better order all the same, the other as typed.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "CLOUDCOLL_HOME": str(disk),
        "KEPT": str(latest_path(snapshot.hosts)),
        **({"TMPDIR": str(disk)} if temporary else {}),
    }
    run = [sys.executable, "-m", "cloudcoll.cli", "run", str(tmp_path / "mpirun")]
    ended = subprocess.run(
        [*IN_MOUNTS, ON_SUCH_A_DISK, "sh", str(disk), state, *run, *JOB],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"cannot write {disk}/maps/" in ended.stderr
    assert ("--map-by seq" in ended.stdout) == (not temporary)
    assert ("running the command unchanged" in ended.stderr) == temporary
    if temporary:
        assert ended.stdout == f"ran {' '.join(JOB)}\n"
