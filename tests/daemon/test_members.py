from __future__ import annotations

import os
from pathlib import Path

import pytest

from cloudcoll.daemon.members import SELDOM_S, Hostfile, Seldom, slurm_busy, slurm_nodes
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def prints(folder: Path, name: str, text: str, code: int = 0) -> None:
    """Put a program there that prints a text."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\nexit {code}\n")
    path.chmod(0o755)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """Tests a host more, and less, whether the file is replaced or rewritten."""
    path = tmp_path / "hosts"
    path.write_text("a slots=2\nb slots=2\n")
    source = Hostfile(path)
    assert [host.name for host in source()] == ["a", "b"]
    assert source() is source()
    other = tmp_path / "new"
    other.write_text("a slots=2\nb slots=2\nc slots=2\n")
    other.rename(path)
    assert [host.name for host in source()] == ["a", "b", "c"]
    path.write_text("a slots=2\n")
    os.utime(path, ns=(1, 1))
    assert [host.name for host in source()] == ["a"]


def test_a_file_that_goes_away(tmp_path: Path) -> None:
    """Tests that its absence is an error, and its return none."""
    path = tmp_path / "hosts"
    source = Hostfile(path)
    with pytest.raises(UsageError, match="cannot read"):
        source()
    path.write_text("a\n")
    assert [host.name for host in source()] == ["a"]


def test_nodes_of_slurm(program: Path) -> None:
    """Tests that nodes that are down, or do not answer, are no members."""
    rows = (
        "n1 8 idle\nn2 8 allocated\nn3 8 down*\nn4 8 drained\nn5 8 idle*\nn6 4 mixed-"
    )
    prints(program, "sinfo", rows)
    assert slurm_nodes("all") == (
        Host("n1", slots=8),
        Host("n2", slots=8),
        Host("n6", slots=4),
    )


def test_nodes_that_work(program: Path) -> None:
    """Tests ranges, several jobs, and one that waits for its nodes."""
    prints(program, "squeue", "n[1-2]\n\nn2,x9")
    assert slurm_busy() == {"n1", "n2", "x9"}


def test_slurm_that_fails(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that no Slurm, an error of its and other words are told apart."""
    prints(program, "squeue", "", code=1)
    with pytest.raises(UnusableError, match="squeue failed"):
        slurm_busy()
    prints(program, "sinfo", "PARTITION AVAIL")
    with pytest.raises(UnusableError, match="sinfo says"):
        slurm_nodes("all")
    monkeypatch.setenv("PATH", str(program / "none"))
    with pytest.raises(UnusableError, match="no sinfo here"):
        slurm_nodes("all")


def test_slurm_is_not_asked_all_the_time(program: Path) -> None:
    """Tests that an answer stands for a while, and a failure does not."""
    now = 0.0
    source = Seldom(slurm_busy, clock=lambda: now)
    prints(program, "squeue", "", code=1)
    with pytest.raises(UnusableError):
        source()
    prints(program, "squeue", "n1")
    assert source() == {"n1"}
    prints(program, "squeue", "n2")
    assert source() == {"n1"}
    now = SELDOM_S
    assert source() == {"n2"}
