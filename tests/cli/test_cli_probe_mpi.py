from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--via", "mpi", "-w", "a,b"], 2, "no launcher: end in"),
        (["--via", "mpi", "--", "srun", "-N", "2"], 2, "--hostfile or -w before"),
        (["--via", "mpi", "--force", "--", "mpirun"], 2, "no meaning with --via mpi"),
        (["--via", "ssh", "-w", "a,b", "--", "mpirun"], 2, "go with --via mpi only"),
        (["--via", "ssh", "-w", "a,b", "--resume"], 2, "go with --via mpi only"),
        (["--via", "mpi", "-w", "a,b", "--resume", "--", "x"], 2, "nothing to resume"),
        (["--via", "mpi", "-w", "a,b", "--", "no-launcher"], 3, "cannot run"),
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


def test_dry_run_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that --dry-run prints the plan and the job's command line."""
    output = tmp_path / "a.snap"
    options = ["--via", "mpi", "-w", "vm-[1-8]", "-o", str(output), "--dry-run"]
    assert main(["probe", *options, "--", "no-launcher", "-N", "8"]) == 0
    text = capsys.readouterr().out
    for part in ("8 hosts", "7 rounds", "started by: no-launcher -N 8", "mpi_probe"):
        assert part in text
    assert list(tmp_path.iterdir()) == []
