"""``cloudcoll completion``: what shells are told, and what they are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.cli import main
from cloudcoll.cli.commands import COMMANDS, SECTIONS


def answered(line: str, at: Path) -> list[str]:
    """Return what a bash is told at the end of a command line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "cloudcoll.cli"],
        cwd=at,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "_CLOUDCOLL_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("cloudcoll so", ["plain,solve"]),
        ("cloudcoll solve x.snap --pic", ["plain,--picture"]),
        ("cloudcoll show clu", ["file,clu"]),
        ("cloudcoll completion f", ["plain,fish"]),
        (
            "cloudcoll bench --collective alltoall --algorithm modi",
            ["plain,modified_bruck"],
        ),
        ("cloudcoll bench --algorithm bino", []),
        ("cloudcoll solve x.snap --collective allto", ["plain,alltoall"]),
        ("cloudcoll run --library ncc", ["plain,nccl"]),
        ("cloudcoll solve x.snap --solver e", ["plain,exact"]),
        ("cloudcoll run --workload fs", ["plain,fsdp"]),
        ("cloudcoll run --workload job.j", ["file,job.j"]),
        ("cloudcoll lab up --preset tu", ["plain,tuned"]),
        ("cloudcoll probe --lab x", []),
        ("cloudcoll slove ", sorted(f"plain,{name}" for name in COMMANDS)),
    ],
)
def test_a_shell_is_answered(line: str, answer: list[str], tmp_path: Path) -> None:
    """Tests commands, options, files and choices; a typo is no error there."""
    assert sorted(answered(line, tmp_path)) == answer


def test_labs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that those are named that have a folder."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(tmp_path))
    lab = tmp_path / "lab" / "blue"
    lab.mkdir(parents=True)
    (lab / "spec.json").touch()
    assert answered("cloudcoll probe --lab ", tmp_path) == ["plain,blue"]


@pytest.mark.parametrize(
    ("shell", "place", "words"),
    [
        ("bash", ".local/share/bash-completion/completions/cloudcoll", "COMP_WORDS"),
        ("fish", ".config/fish/completions/cloudcoll.fish", "fish_complete"),
        ("zsh", ".zshrc", 'eval "$(cloudcoll completion zsh)"'),
    ],
)
def test_it_is_installed_once(
    shell: str,
    place: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that one command puts it where the shell looks, and two do no more."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert main(["completion", "--install"]) == 0
    text = (tmp_path / place).read_text()
    assert words in text
    assert str(tmp_path / place) in capsys.readouterr().err
    assert main(["completion", "--install"]) == 0
    assert (tmp_path / place).read_text() == text


def test_what_is_in_a_zshrc_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests a last line without an end, in a file that is a link."""
    (tmp_path / "mine").write_text("setopt autocd")
    (tmp_path / ".zshrc").symlink_to("mine")
    monkeypatch.setenv("ZDOTDIR", str(tmp_path))
    assert main(["completion", "zsh", "--install"]) == 0
    line = 'eval "$(cloudcoll completion zsh)"'
    assert (tmp_path / "mine").read_text() == f"setopt autocd\n{line}\n"


def test_an_unknown_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that it says which there are."""
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert main(["completion"]) == 2
    assert "no shell 'tcsh': name one of bash, fish, zsh" in capsys.readouterr().err


def test_the_script_is_valid_bash(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests the script as the shell reads it."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=120)
    assert "_CLOUDCOLL_COMPLETE=bash_complete" in script


def test_every_command_has_a_section() -> None:
    """Tests that help lists each command once, first those that matter."""
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    assert listed[:3] == ["probe", "run", "bench"]
