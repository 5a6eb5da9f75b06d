from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.hosts import parse_host_argument
from cloudcoll.snapshot import latest_path, load_snapshot

HOSTS = "127.0.8.[1-3]"
TWO = "127.0.8.[1-2]"
LOCAL = ["probe", "-w", TWO, "--via", "local", "--quick"]


def test_a_probe_is_stored_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that `probe` prints its groups and keeps -o and the latest."""
    output = tmp_path / "a.snap"
    assert main([*LOCAL, "-o", str(output)]) == 0
    snapshot = load_snapshot(output)
    assert snapshot.fabric is not None
    latest = latest_path(parse_host_argument(TWO))
    assert load_snapshot(latest).digest == snapshot.digest
    said = capsys.readouterr()
    assert snapshot.digest[:12] in said.out
    assert "2 hosts" in said.out
    assert said.err == ""


def test_json_is_the_snapshots_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --json prints one JSON value and nothing else."""
    assert main([*LOCAL, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["hosts"] == ["127.0.8.1", "127.0.8.2"]
    assert summary["metadata"]["mode"] == "quick"


def test_dry_run_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --dry-run prints rounds, seconds, bytes and a command line."""
    assert main(["probe", "-w", "vm-[1-64]", "--dry-run", "--rsh", "true -v"]) == 0
    text = capsys.readouterr().out
    for part in ("64 hosts", "mode standard", "63 rounds", " GB moved", "true -v -T"):
        assert part in text
    assert not latest_path(parse_host_argument("vm-[1-64]")).exists()


def test_one_host_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that there is nothing to measure on a single host."""
    assert main(["probe", "-w", "127.0.8.1", "--via", "local"]) == 0
    assert "1 hosts" in capsys.readouterr().out


def test_a_failed_host_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a host that is down is named on stderr, the rest stored."""
    rsh = tmp_path / "rsh"
    rsh.write_text(
        "#!/bin/sh\nshift 5\n"
        '[ "$1" = 127.0.8.2 ] && { echo down >&2; exit 255; }\n'
        'shift; exec sh -c "$*"\n'
    )
    rsh.chmod(0o755)
    code = main(["probe", "-w", HOSTS, "--rsh", str(rsh), "--quick"])
    said = capsys.readouterr()
    assert (code, said.err) == (1, "cloudcoll: 127.0.8.2 failed: down\n")
    latest = load_snapshot(latest_path(parse_host_argument(HOSTS)))
    assert latest.failed == {"127.0.8.2": "down"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "no hosts: name them with --hostfile"),
        (["-w", "a,b", "--hostfile", "hosts"], 2, "exclude each other"),
        (["-w", "a,b", "--via", "pigeon"], 2, "known: lab, local, mpi, ssh, torch"),
        (["--lab", "no-such-lab"], 2, "no-such-lab"),
        (["-w", "a,b", "--rsh", "false"], 3, "0 of 2 hosts could be probed"),
        (["-w", "a,b", "--rsh", "no-such-program"], 3, "not installed"),
        (["-w", "a,b", "--seed", "-1"], 2, "seed -1"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests the exit codes, and that an error says what to do on one line."""
    monkeypatch.delenv("CLOUDCOLL_LAB", raising=False)
    assert main(["probe", *arguments]) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Tests that agents end with the driver and the old snapshot is intact."""
    output = tmp_path / "old.snap"
    output.write_text("old")
    started = tmp_path / "started"
    os.mkfifo(started)
    rsh = tmp_path / "rsh"
    rsh.write_text(f'#!/bin/sh\nshift 6\necho $$ > {started}\nexec sh -c "exec $*"\n')
    rsh.chmod(0o755)
    command = ["probe", "-w", HOSTS, "--rsh", str(rsh), "-o", str(output)]
    driver = subprocess.Popen(
        [sys.executable, "-m", "cloudcoll.cli", *command],
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell may have started us with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    agents: list[int] = []
    while len(agents) < 3:
        words = started.read_text().split()
        agents += [os.pidfd_open(int(word)) for word in words]
    driver.send_signal(number)
    _, error = driver.communicate(timeout=20)
    assert driver.returncode == 128 + number, error
    assert b"Traceback" not in error
    for agent in agents:
        # Readable when the process has ended.
        assert select.select([agent], [], [], 10)[0]
        os.close(agent)
    assert output.read_text() == "old"
