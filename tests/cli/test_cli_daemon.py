from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.hosts import parse_host_argument
from cloudcoll.local_daemon import ask, socket_path
from cloudcoll.measured.snapshot import latest_path, load_snapshot

HOSTS = "127.0.9.[1-3]"
PATIENCE_S = 60.0


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    """Three hosts, all of them this machine."""
    path = tmp_path / "hosts"
    path.write_text("".join(f"127.0.9.{i} slots=1\n" for i in (1, 2, 3)))
    return path


@pytest.fixture
def daemon(hostfile: Path) -> Iterator[subprocess.Popen[str]]:
    """A daemon at work, that ends with the test."""
    process = started(hostfile)
    with process:
        yield process
        process.kill()


def started(hostfile: Path) -> subprocess.Popen[str]:
    """Return a daemon that answers."""
    argv = ["daemon", "--hostfile", str(hostfile), "--via", "local", "--every", "1h"]
    process = subprocess.Popen(
        [sys.executable, "-m", "cloudcoll.cli", *argv],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "answers at" in line(process)
    return process


def line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process says."""
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], PATIENCE_S)[0], "nothing is said"
    return process.stderr.readline()


@pytest.mark.alone
def test_probe_publish_status(
    daemon: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a daemon of real agents: its files, its status, an end on SIGTERM."""
    assert "probing all 3 hosts" in line(daemon)
    assert "new orders in force" in line(daemon)
    assert main(["daemon", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [host["name"] for host in status["hosts"]] == [
        f"127.0.9.{i}" for i in (1, 2, 3)
    ]
    kept = load_snapshot(latest_path(parse_host_argument(HOSTS)))
    assert kept.digest == status["digest"] == status["maps"][0]["snapshot"]
    assert main(["daemon", "status"]) == 0
    assert capsys.readouterr().out.startswith("3 hosts, calm, confirmed\norder: 127.")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0
    assert not socket_path().exists()


def test_the_second_is_refused(
    daemon: subprocess.Popen[str], hostfile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that two daemons on one store can't be, and which one is there."""
    argv = ["daemon", "--hostfile", str(hostfile), "--via", "local"]
    assert main(argv) == 3
    assert f"running daemon: process {daemon.pid} on " in capsys.readouterr().err
    assert ask(socket_path(), "/v1/status", PATIENCE_S) is not None


def test_a_killed_one_needs_no_clean_up(
    daemon: subprocess.Popen[str], hostfile: Path
) -> None:
    """Tests that after SIGKILL the next one goes on with what was measured."""
    while "new orders" not in line(daemon):
        pass
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait(PATIENCE_S)
    assert socket_path().exists()
    with started(hostfile) as again:
        told = ask(socket_path(), "/healthz", PATIENCE_S)
        again.kill()
    assert told == (200, b"ok\n")


@pytest.mark.slow
def test_once(hostfile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --once measures and ends; a second time there is nothing to do."""
    argv = ["daemon", "--hostfile", str(hostfile), "--via", "local", "--once"]
    assert main(argv) == 0
    assert "probing all 3 hosts" in capsys.readouterr().err
    assert main(argv) == 0
    assert "probing" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        ([], 2, "name the hosts with --hostfile"),
        (["--hostfile", "none"], 2, "cannot read none"),
        (["--hostfile", "x", "--slurm", "y"], 2, "name the hosts with"),
        (["--hostfile", "x", "--share", "0%"], 2, "0.000% of the rate"),
        (["--hostfile", "x", "--every", "soon"], 2, "not a time"),
        (["status"], 3, "no daemon answers at"),
    ],
)
def test_what_makes_no_sense(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests refusals, each in one line that says what to do."""
    assert main(["daemon", *argv]) == code
    assert said in capsys.readouterr().err
