"""What keeps two probes of one user apart, and what strangers can do about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from driven import WAIT, Driven
from needs import ROOT, ROOT_FOLDER

from cloudcoll.cli import main
from cloudcoll.programs import BOOTSTRAP
from probes import agent

US, STRANGER = 23456, 12345
"""Users that nobody is."""
ADDRESS = "127.0.0.9"
AS_USER = (
    "import os, sys; sys.path.insert(0, sys.argv[1])\n"
    # What it imports may be in a folder that others cannot read.
    "import fcntl; from probes import agent\n"
    "os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))\n"
)
SQUAT = (
    "os.umask(0); os.mkdir(sys.argv[3], 0o777)\n"
    "path = os.path.join(sys.argv[3], sys.argv[4])\n"
    "file = os.open(path, os.O_RDWR | os.O_CREAT, int(sys.argv[5], 8))\n"
    "os.write(file, b'1 \\x1b[31mevil'); fcntl.flock(file, fcntl.LOCK_EX)\n"
    "print('locked', flush=True); sys.stdin.read()\n"
)

Start = Callable[..., Driven]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return what is the folder of temporary files to agents."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path


@pytest.fixture
def start() -> Iterator[Start]:
    """Start agents; none of them outlives the test."""
    started: list[Driven] = []

    def one(**how: Any) -> Driven:
        started.append(Driven(None, **how))
        return started[-1]

    yield one
    for each in started:
        each.stdin.close()
        each.process.wait(WAIT)
        each.close()


def runtime(folder: Path, name: str, mode: int = 0o700) -> dict[str, str]:
    """Return an environment whose runtime folder is new."""
    path = folder / name
    path.mkdir()
    path.chmod(mode)
    return {**os.environ, "XDG_RUNTIME_DIR": str(path)}


@pytest.mark.parametrize("first", [True, False])
def test_probes_meet_whatever_their_environment(
    temporary: Path, start: Start, first: bool
) -> None:
    """Tests that a probe with a runtime folder and one without see each other."""
    ways = [{"env": runtime(temporary, "run")}, {}]
    one, other = ways if first else reversed(ways)
    holder = start(**one)
    assert holder.prepare(force=False, address=ADDRESS)["type"] == "ports"
    busy = start(**other).prepare(force=False, address=ADDRESS)
    assert (busy["type"], busy["pid"]) == ("busy", holder.process.pid)
    forced = start(**other).prepare(force=True, address=ADDRESS)
    assert (forced["type"], forced["unlocked"]) == ("ports", "")


def test_locks_are_nobody_elses_to_see(temporary: Path, start: Start) -> None:
    """Tests that folder and file are closed to others, and the file goes."""
    env = runtime(temporary, "run")
    driven = start(env=env)
    assert driven.prepare(force=False, address=ADDRESS)["unlocked"] == ""
    own = temporary / f"cloudcoll-{os.geteuid()}"
    for folder in (own, temporary / "run"):
        assert folder.stat().st_mode & 0o777 == 0o700
        (file,) = folder.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
    driven.stdin.close()
    assert driven.process.wait(WAIT) == 0
    assert [*own.iterdir()] == [*(temporary / "run").iterdir()] == []


def test_a_runtime_folder_that_others_can_read(temporary: Path, start: Start) -> None:
    """Tests that it is passed over without a word: the other one is enough."""
    env = runtime(temporary, "run", 0o755)
    assert start(env=env).prepare(force=False, address=ADDRESS)["unlocked"] == ""
    assert [*(temporary / "run").iterdir()] == []


@pytest.mark.parametrize("kind", ["link", "file", "open"])
def test_what_is_no_folder_of_ours_alone(
    temporary: Path, start: Start, kind: str
) -> None:
    """Tests that a probe goes on without a lock, says so, and writes nothing there."""
    own, elsewhere = temporary / f"cloudcoll-{os.geteuid()}", temporary / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if kind == "link":
        own.symlink_to(elsewhere)
    elif kind == "file":
        own.write_text("")
    else:
        own.mkdir()
        own.chmod(0o777)
    ports = start().prepare(force=False, address=ADDRESS)
    assert ports["unlocked"].startswith(f"no lock in {own}: ")
    if kind == "open":
        assert ports["unlocked"].endswith(f"owned by user {os.geteuid()}, mode 777")
        assert [*own.iterdir()] == []
    assert [*elsewhere.iterdir()] == []


def test_a_link_in_place_of_a_lock(temporary: Path, start: Start) -> None:
    """Tests that what it leads to is neither locked nor written."""
    (folder,) = map(Path, agent.lock_folders())
    (temporary / "target").write_text("mine")
    (folder / agent.lock_name(ADDRESS)).symlink_to(temporary / "target")
    ports = start().prepare(force=False, address=ADDRESS)
    assert ports["unlocked"].startswith(f"no lock in {folder}: ")
    assert (temporary / "target").read_text() == "mine"


@contextmanager
def squatter(folder: Path, name: str, mode: int) -> Iterator[None]:
    """Have another user lock a file of ours, in a folder of ours, before we do."""
    words = (str(STRANGER), str(folder), name, f"{mode:o}")
    with subprocess.Popen(
        [sys.executable, "-c", AS_USER + SQUAT, str(ROOT_FOLDER), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"locked\n"
        yield
        process.communicate()


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of temporary files like the system's, for all users."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield folder
    shutil.rmtree(folder)


@ROOT.mark
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_another_user_blocks_nobody(public: Path, start: Start, mode: int) -> None:
    """Tests that a lock which is another user's is passed over, with a line."""
    argv = [sys.executable, "-c", AS_USER + BOOTSTRAP, str(ROOT_FOLDER), str(US)]
    own = public / f"cloudcoll-{US}"
    with squatter(own, agent.lock_name(ADDRESS), mode):
        ports = start(argv=argv).prepare(force=False, address=ADDRESS)
    assert ports["type"] == "ports"
    assert ports["unlocked"] == (
        f"no lock in {own}: owned by user {STRANGER}, mode 777"
    )


@pytest.mark.alone
def test_a_probe_without_locks_says_so(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests the line for each host, and that all is measured."""
    (temporary / f"cloudcoll-{os.geteuid()}").symlink_to(temporary)
    output = str(temporary / "a.snap")
    where = ["probe", "-w", "127.0.6.[1-2]", "--via", "local", "--quick"]
    assert main([*where, "-o", output]) == 0
    said = capsys.readouterr().err
    for host in ("127.0.6.1", "127.0.6.2"):
        assert f"{host} may be probed by others at the same time: no lock in " in said
