from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cloudcoll.cli import Interrupted, main
from cloudcoll.cli.output import TERMINAL
from cloudcoll.files import state_dir
from cloudcoll.hosts import parse_host_argument
from cloudcoll.infer.prior import GROUP
from cloudcoll.measured.snapshot import latest_path, load_snapshot
from cloudcoll.probe.results import Progress

HOSTS = "127.0.8.[1-3]"
TWO = "127.0.8.[1-2]"
pytestmark = pytest.mark.usefixtures("patient_probes")
# A flow that others hold up for all of its time is one line more, and an exit code.
no_line_more = pytest.mark.alone

LOCAL = ["probe", "-w", TWO, "--via", "local", "--quick"]


@no_line_more
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


@no_line_more
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


@no_line_more
def test_dry_run_says_what_is_probably_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that it rests on an assumption first, then on what was measured."""
    asked = [*LOCAL, "--dry-run"]
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert "if a host's card carries 10 Gbit/s, which is assumed: " in text
    assert "for each Gbit/s\n" in text
    assert main(LOCAL) == 0
    measured = capsys.readouterr().out
    assert re.search(r"^the hosts sent [\d.]+ [MG]B for this in ", measured, re.M)
    assert main(asked) == 0
    text = capsys.readouterr().out
    assert re.search(r"^probably .* moved: a flow got .*bit/s in the ", text, re.M)
    assert "assumed" not in text


def test_dry_run_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --json of a plan is one JSON value with what it takes."""
    assert main(["probe", "-w", "vm-[1-64]", "--dry-run", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["hosts"], said["mode"]) == (64, "standard")
    assert said["seconds"] > 1
    assert said["bytes"] > 1 << 30
    assert said["notes"][0].startswith("started by: ssh")


def test_labels_cut_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests what --dry-run says is saved, and labels that are of other hosts."""
    path = tmp_path / "labels"
    path.write_text("".join(f"vm-{i} zone/rack-{i % 8}\n" for i in range(1, 65)))
    command = ["probe", "-w", "vm-[1-64]", "--dry-run", "--labels", str(path)]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "24 rounds of latency" in text
    assert "labels save 39 of 63 rounds of latency and " in text
    path.write_text("other rack/1\n")
    assert main(command) == 2
    assert "of other hosts" in capsys.readouterr().err
    assert main([*command[:-1], str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@no_line_more
def test_a_probe_keeps_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a probe with labels from an imported snapshot: its hosts have them."""
    labels, known = tmp_path / "labels", tmp_path / "labels.snap"
    labels.write_text("127.0.8.1 a/b\n127.0.8.2 a/b\n127.0.8.3 a/c\n")
    output = tmp_path / "a.snap"
    assert main(["import", "labels", str(labels), "-o", str(known)]) == 0
    command = ["probe", "-w", HOSTS, "--via", "local", "--quick"]
    assert main([*command, "--labels", str(known), "-o", str(output)]) == 0
    hosts = load_snapshot(output).hosts
    assert [host.labels["physicalHost"] for host in hosts] == ["a/b", "a/b", "a/c"]
    assert [host.labels[GROUP] for host in hosts] == ["b", "b", ""]
    capsys.readouterr()


def test_one_host_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that there is nothing to measure on a single host."""
    assert main(["probe", "-w", "127.0.8.1", "--via", "local"]) == 0
    assert "1 host, 0 pairs" in capsys.readouterr().out


@no_line_more
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
    ("said", "way_out"),
    [
        ("Host key verification failed.", "'ssh vm-1 true' has to work without"),
        (
            "ssh: Could not resolve hostname vm-1: Name or service not known",
            "vm-1 is a host of lab 'mine', whose commands begin with "
            "'cloudcoll lab exec --name mine --'",
        ),
    ],
)
def test_the_way_out_where_ssh_leaves_it_open(
    said: str, way_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that hosts of a lab and unknown keys are answered with what to do."""
    hosts = state_dir() / "lab" / "mine" / "hosts"
    hosts.parent.mkdir(parents=True)
    hosts.write_text("vm-1 slots=1\nvm-2 slots=1\n")
    # Of another lab, and not to be read.
    (state_dir() / "lab" / "another" / "hosts").mkdir(parents=True)
    (ssh := tmp_path / "ssh").write_text(f"#!/bin/sh\necho {said!r} >&2; exit 255\n")
    ssh.chmod(0o755)
    assert main(["probe", "-w", "vm-1,vm-2", "--rsh", str(ssh)]) == 3
    assert way_out in capsys.readouterr().err
    assert main(["probe", "-w", "vm-8,vm-9", "--rsh", str(ssh)]) == 3
    assert "lab" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "no hosts: name them with --hostfile"),
        (["-w", "a,b", "--hostfile", "hosts"], 2, "exclude each other"),
        (
            ["-w", "a,b", "--via", "pigeon"],
            2,
            "known: lab, local, mpi, ssh, tls, torch",
        ),
        (["--lab", "no-such-lab"], 2, "no-such-lab"),
        (["-w", "a,b", "--rsh", "false"], 3, "0 of 2 hosts could be probed"),
        (["-w", "a,b", "--rsh", "no-such-program"], 3, "not installed"),
        (["-w", "a,b", "--seed", "-1"], 2, "seed -1"),
        (["hosts"], 2, "'hosts' is no option: name hosts with --hostfile FILE"),
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
    # For writing as well: a writer that comes between two readers would be killed.
    with os.fdopen(os.open(started, os.O_RDWR)) as pids:
        agents = [os.pidfd_open(int(pids.readline())) for _ in range(3)]
    driver.send_signal(number)
    _, error = driver.communicate(timeout=120)
    assert driver.returncode == 128 + number, error
    assert b"Traceback" not in error
    for agent in agents:
        # Readable when the process has ended.
        assert select.select([agent], [], [], 10)[0]
        os.close(agent)
    assert output.read_text() == "old"
    assert not Path(f"{output}.partial").exists()


@no_line_more
@pytest.mark.parametrize("moment", [2, 5])
def test_what_was_interrupted_is_resumed(
    moment: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a signal under way costs nothing: one line says how to go on."""

    @contextlib.contextmanager
    def until(what: str, *, patience: float | None = None) -> Iterator[Progress]:
        def progress(done: int, _: int) -> None:
            if done == moment:
                raise Interrupted(signal.SIGTERM)

        yield progress

    output, spool = tmp_path / "a.snap", tmp_path / "a.snap.partial"
    command = ["probe", "-w", HOSTS, "--via", "local", "--quick", "-o", str(output)]
    with monkeypatch.context() as patched:
        patched.setattr(TERMINAL, "progress", until)
        assert main(command) == 128 + signal.SIGTERM
    assert capsys.readouterr().err == (
        f"cloudcoll: {spool} has what was measured: --resume goes on with it\n"
        "cloudcoll: interrupted\n"
    )
    assert not output.exists()
    rows = [json.loads(line) for line in spool.read_bytes().splitlines()[1:]]
    assert len([row for row in rows if row["type"] != "starved"]) == moment
    # What a host measured that had no CPU to spare is measured again.
    starved = {row["slot"] for row in rows if row["type"] == "starved"}
    trips = [row for row in rows if row["type"] == "rtt" and row["slot"] not in starved]
    assert main([*command, "--resume"]) == 0
    seconds = load_snapshot(output).rtt.seconds.tolist()
    for row in trips:
        assert set(np.array(row["ns"]) * 1e-9) <= set(seconds)
    assert not spool.exists()
