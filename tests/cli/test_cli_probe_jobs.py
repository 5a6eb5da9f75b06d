from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.probe import TRANSPORTS


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--via", "mpi", "-w", "a,b"], 2, "no launcher: end in"),
        (["--via", "mpi", "--", "srun", "-N", "2"], 2, "--hostfile or -w before"),
        (["--via", "mpi", "--", "true"], 2, "unknown launcher 'true'"),
        (["--via", "mpi", "--force", "--", "x"], 2, "with --via lab, local, ssh"),
        (["--via", "mpi", "--rsh", "x", "--", "x"], 2, "--via mpi: it goes with"),
        (["--via", "mpi", "--backend", "gloo", "--", "x"], 2, "with --via torch"),
        (["--via", "ssh", "-w", "a,b", "--", "x"], 2, "goes with --via mpi, torch"),
        (["--rsh", "true", "-w", "a,b", "--resume"], 2, "nothing to resume"),
        (["--via", "local", "-w", "a,b", "--lab", "x"], 2, "goes with --via lab"),
        (["--via", "torch", "--", "torchrun"], 2, "unknown launcher 'torchrun'"),
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
    for name in ("CLOUDCOLL_LAB", "CLOUDCOLL_RSH", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
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


def test_help_lists_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that every transport of the table is named, and no other."""
    assert main(["probe", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"reached: {', '.join(TRANSPORTS)}." in words


def test_an_allocation_names_the_hosts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that srun needs no host list where Slurm has given nodes."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[01-03,7]")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert main(["probe", "--via", "torch", "--dry-run", "--", "srun"]) == 0
    text = capsys.readouterr().out
    assert "4 hosts" in text
    assert "torch_probe gpu01:29500 auto" in text
    assert "--ntasks-per-node=1" in text


def test_starting_afresh_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a probe without --resume keeps what an unfinished one measured."""
    output = tmp_path / "a.snap"
    left = Path(f"{output}.partial")
    left.write_text("{}\n{}\n")
    options = ["--via", "mpi", "-w", "vm-[1-8]", "-o", str(output)]
    assert main(["probe", *options, "--", "no-launcher"]) == 3
    afresh, error = capsys.readouterr().err.splitlines()
    assert afresh.endswith(f"are kept in {left}.old")
    assert "cannot run no-launcher" in error
    assert Path(f"{left}.old").read_text() == "{}\n{}\n"
    # Nothing was measured this time: what is kept stays.
    assert main(["probe", *options, "--", "no-launcher"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert Path(f"{left}.old").read_text() == "{}\n{}\n"
