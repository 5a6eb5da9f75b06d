"""``cloudcoll run`` with launchers that are started once on every host."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cloudcoll.launch.shim import NCCL
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning

ROOT = Path(__file__).parents[2]
WORDS = ("--nnodes=3", "--node-rank=1", "--master-addr=vm-0", "train.py")


@pytest.fixture
def torchrun(tmp_path: Path) -> str:
    """Write a program of torchrun's name that prints its words."""
    path = tmp_path / "torchrun"
    path.write_text('#!/bin/sh\necho "$@"\nexit 5\n')
    path.chmod(0o755)
    RankMap(("vm-0", "vm-2", "vm-1"), (1, 1, 1)).save(tmp_path / "map.json")
    return str(path)


def run(*argv: str, **env: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "cloudcoll.cli", "run", *argv],
        env={**os.environ, "CLOUDCOLL_HOST": "vm-1", **env},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_in_order(torchrun: str, tmp_path: Path) -> None:
    """Tests that a start gets its node rank from the map, and its exit code back."""
    expected = "--node-rank=2 --nnodes=3 --master-addr=vm-0 train.py\n"
    path = str(tmp_path / "map.json")
    assert run("--map", path, torchrun, *WORDS) == (5, expected, "")
    assert run(torchrun, *WORDS, CLOUDCOLL_MAP=path) == (5, expected, "")


def test_tuned_inside_nccl(torchrun: str, tmp_path: Path) -> None:
    """Tests that algorithms are told beside the shim, and --strict if they can't be."""
    Path(torchrun).write_text('#!/bin/sh\necho "$CLOUDCOLL_SHIM_ORDER $NCCL_ALGO"\n')
    path = str(tmp_path / "map.json")
    tree = TunedRange("allreduce", 0, "nccl_tree")
    pat = TunedRange("allgather", 0, "nccl_pat")
    words = ["--master-addr=127.0.0.1", *WORDS[:2]]
    command = ("--tune", "--strict", "--inject", "shim", "--map", path, torchrun)
    for chosen, code, out in (
        ((tree,), 0, "vm-0,vm-2,vm-1 allreduce:tree\n"),
        ((pat,), 125, ""),
    ):
        tuning = Tuning("nccl@2.27", 3, 1, chosen)
        RankMap(("vm-0", "vm-2", "vm-1"), (1, 1, 1), tuning=tuning).save(Path(path))
        assert run(*command, *words)[:2] == (code, out)


def test_dry_run(torchrun: str, tmp_path: Path) -> None:
    """Tests that --dry-run prints the command line and the order."""
    path = str(tmp_path / "map.json")
    code, out, err = run("--dry-run", "--map", path, torchrun, *WORDS)
    assert (code, err) == (0, "")
    first, order = out.splitlines()
    assert first == f"{torchrun} --node-rank=2 --nnodes=3 --master-addr=vm-0 train.py"
    assert order == "# order: vm-0 vm-2 vm-1"


def test_inside_nccl(torchrun: str, tmp_path: Path) -> None:
    """Tests that the command line stays and the order goes into the environment."""
    Path(torchrun).write_text('#!/bin/sh\necho "$LD_PRELOAD $CLOUDCOLL_SHIM_ORDER"\n')
    shim, words = ("--inject", "shim", "--map"), ["--master-addr=127.0.0.1", *WORDS[:2]]
    code, out, err = run(*shim, str(tmp_path / "map.json"), torchrun, *words)
    assert (code, out, err) == (0, f"{NCCL} vm-0,vm-2,vm-1\n", "")
    (tmp_path / "none").write_text("{")
    code, out, err = run(*shim, str(tmp_path / "none"), torchrun, *words)
    assert (code, out) == (0, " \n")
    assert err.count("\n") == 1
    strict = run("--strict", *shim, str(tmp_path / "none"), torchrun, *words)
    assert strict[:2] == (125, "")


def test_inside_nccl_where_the_launcher_can_not(torchrun: str, tmp_path: Path) -> None:
    """Tests that a map which would move the store is followed inside NCCL."""
    Path(torchrun).write_text('#!/bin/sh\necho "$LD_PRELOAD $CLOUDCOLL_SHIM_ROLL"\n')
    RankMap(("10.9.8.7", "vm-1"), (1, 1)).save(tmp_path / "moved")
    options = ("--library", "nccl", "--map", str(tmp_path / "moved"))
    words = ("--nnodes=2", "--rdzv-endpoint=127.0.0.1:4242", "train.py")
    code, out, err = run(*options, torchrun, *words)
    assert (code, out) == (0, f"{NCCL} - 4242 127.0.0.1\n")
    assert "rank 0" in err
    assert err.endswith("reordering inside NCCL instead\n")
    code, out, err = run("--inject", "launcher", *options, torchrun, *words)
    assert (code, out) == (0, " \n")
    assert err.endswith("; running the command unchanged\n")


def test_fails_open(torchrun: str, tmp_path: Path) -> None:
    """Tests that without a map, or with another job's, it runs as typed."""
    code, out, err = run(torchrun, *WORDS)
    assert (code, out) == (5, " ".join(WORDS) + "\n")
    assert err.count("\n") == 1
    assert err.endswith("CLOUDCOLL_MAP; running the command unchanged\n")
    other = ("--map", str(tmp_path / "map.json"), torchrun, "--nnodes=4", "a.py")
    code, out, err = run(*other)
    assert (code, out) == (5, "--nnodes=4 a.py\n")
    assert "is of 3 hosts and --nnodes 4 says 4" in err
    assert run("--strict", *other)[0] == 125
