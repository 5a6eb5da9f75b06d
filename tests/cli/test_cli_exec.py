from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.rankmap import RankMap

ROOT = Path(__file__).parents[2]
SHOW = ("sh", "-c", 'echo "$RANK $NODE_RANK $MASTER_ADDR $CLOUDCOLL_PLACED"; exit 7')
JOB = {
    "RANK": "1",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "3",
    "NODE_RANK": "1",
    "MASTER_ADDR": "vm-0",
    "CLOUDCOLL_HOST": "vm-1",
}


@pytest.fixture
def map_path(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    RankMap(("vm-0", "vm-2", "vm-1"), (1, 1, 1), snapshot="abc").save(path)
    return path


def run(*argv: str, python: str = "", **env: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, *python.split(), "-m", "cloudcoll.cli", "exec", *argv],
        env={**os.environ, **env},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_ranks_follow_the_map(map_path: Path) -> None:
    """Tests that the program sees its new ranks, and that its exit code returns."""
    expected = (7, "2 2 vm-0 abc\n", "")
    assert run("--map", str(map_path), "--", *SHOW, **JOB) == expected
    assert run(*SHOW, **JOB, CLOUDCOLL_MAP=str(map_path)) == expected


def test_the_program_takes_the_process_over(map_path: Path) -> None:
    """Tests that no process of ours is left between the caller and the program."""
    command = [sys.executable, "-m", "cloudcoll.cli", "exec", "--map", str(map_path)]
    with subprocess.Popen(
        [*command, "sh", "-c", "echo $$"],
        env={**os.environ, **JOB},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        out, _ = started.communicate(timeout=120)
    assert int(out) == started.pid


def test_nested(map_path: Path) -> None:
    """Tests that a program inside a placed one keeps the ranks it was given."""
    inner = [sys.executable, "-m", "cloudcoll.cli", "exec", "--map", str(map_path)]
    code, out, err = run(
        *("--map", str(map_path), "env", "RANK=9", "NODE_RANK=9", *inner, *SHOW), **JOB
    )
    assert (code, out, err) == (7, "9 9 vm-0 abc\n", "")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"CLOUDCOLL_HOST": "vm-9"}, "this host, vm-9, is not one of vm-0, vm-2, vm-1"),
        ({"WORLD_SIZE": "4"}, "is of 3 hosts and this job has 4 ranks"),
        ({"MASTER_ADDR": "vm-1"}, "moves rank 0 from vm-1 to vm-0"),
    ],
)
def test_fails_open(map_path: Path, change: dict[str, str], words: str) -> None:
    """Tests that a job that can't be placed starts as it is, with one line."""
    env = {**JOB, **change}
    code, out, err = run("--map", str(map_path), *SHOW, **env)
    assert (code, out) == (7, f"1 1 {env['MASTER_ADDR']} \n")
    assert words in err
    assert err.endswith("; starting the program unchanged\n")
    assert err.count("\n") == 1
    code, out, err = run("--strict", "--map", str(map_path), *SHOW, **env)
    assert (code, out) == (125, "")
    assert words in err


def test_without_a_map() -> None:
    """Tests that a missing map is one line, and a missing program its usual code."""
    code, out, err = run(*SHOW, **JOB)
    assert (code, out) == (7, "1 1 vm-0 \n")
    assert "name it with --map or CLOUDCOLL_MAP" in err
    assert run("no-such-program")[0] == 127


def test_start_loads_nothing_heavy(map_path: Path) -> None:
    """Tests that a start needs neither NumPy nor anything else that is slow."""
    _, _, err = run("--map", str(map_path), "true", python="-X importtime", **JOB)
    loaded = {line.rpartition("|")[2].strip() for line in err.splitlines()}
    assert "cloudcoll.rankmap" in loaded
    assert not {"numpy", "scipy", "torch", "rich"} & loaded
