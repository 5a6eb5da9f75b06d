from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.launch.torchrun import Torchrun
from cloudcoll.rankmap import RankMap

ORDER = ("vm-0", "vm-3", "vm-1", "vm-2")
BIN = os.path.dirname(sys.executable)
MODULE = (f"{BIN}/python3", "-u", "-m", "torch.distributed.run")


def plan(
    words: str, env: dict[str, str] | None = None, *, free_rank0: bool = False
) -> tuple[str, dict[str, str]]:
    """Return what `words` become on vm-1, which is the third host of the map."""
    rank_map = RankMap(ORDER, (1,) * 4)
    host = OwnHost(rank_map, Path("/shared/map.json"), "vm-1", free_rank0)
    made = Torchrun().plan(words.split(), env or {}, host)
    assert not made.files
    return " ".join(made.argv), dict(made.env)


def test_variables() -> None:
    """Tests that PET_ variables count, and that the one with the rank follows."""
    env = {"PET_NNODES": "4", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "vm-0"}
    line, changed = plan("torchrun train.py", env)
    assert line == "torchrun --node-rank=2 train.py"
    assert changed == {"PET_NODE_RANK": "2"}
    env = {**env, "PET_STANDALONE": "0", "PET_NNODES": "9"}
    assert plan("torchrun --nnodes 4 train.py", env)[1] == {"PET_NODE_RANK": "2"}


@pytest.mark.parametrize(
    ("master", "moved"),
    [
        ("--master-addr=192.0.2.9", "--master-addr=127.0.0.1"),
        ("--rdzv-endpoint=192.0.2.9:29500", "--rdzv-endpoint=127.0.0.1:29500"),
    ],
)
def test_store_follows_rank_0(master: str, moved: str) -> None:
    """Tests that the address of the store is replaced where rank 0 moves."""
    rank_map = RankMap(("127.0.0.1", "vm-1"), (1, 1))
    argv = ["torchrun", "--nnodes=2", master, "train.py"]
    free = OwnHost(rank_map, Path("/map"), "vm-1", free_rank0=True)
    made = Torchrun().plan(argv, {}, free)
    assert made.argv == (
        *("torchrun", "--node-rank=1", moved, "--nnodes=2", "train.py"),
    )
    pinned = OwnHost(rank_map, Path("/map"), "vm-1")
    with pytest.raises(LaunchError, match=r"rank 0 from 192\.0\.2\.9 to 127\.0\.0\.1"):
        Torchrun().plan(argv, {}, pinned)


@pytest.mark.parametrize("backend", ["c10d", "cloudcoll"])
def test_elastic_command_line(backend: str) -> None:
    """Tests that c10d's rendezvous is replaced by ours, which gets the map."""
    words = f"--rdzv-backend={backend} --rdzv-endpoint=vm-0 --nnodes=2:4 train.py"
    line, env = plan(" ".join([*MODULE, words]))
    rest = "--rdzv-backend=cloudcoll --rdzv-endpoint=vm-0 --nnodes=2:4 train.py"
    assert line == " ".join([*MODULE, rest])
    assert env == {"CLOUDCOLL_MAP": "/shared/map.json"}


def test_elastic_of_another_python() -> None:
    """Tests that a torchrun that would not find our rendezvous is left alone."""
    with pytest.raises(LaunchError, match=r"/opt/x/torchrun is of another Python"):
        plan("/opt/x/torchrun --rdzv-backend=c10d --nnodes=4 train.py")


@pytest.mark.parametrize(
    "words", ["train.py", "--standalone --nnodes=4 train.py", "--nnodes=1:1 train.py"]
)
def test_one_host(words: str) -> None:
    """Tests that nothing changes where there is one host."""
    assert plan(f"torchrun {words}") == (f"torchrun {words}", {})


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("torchrun a.py", True),
        ("/opt/bin/torchrun", True),
        (" ".join([*MODULE, "a.py"]), True),
        ("python -m torch.distributed.launch a.py", False),
        ("python train.py -m torch.distributed.run", False),
        ("python torch.distributed.run", False),
        ("mpirun torchrun", False),
    ],
)
def test_recognised(words: str, known: bool) -> None:
    """Tests that torchrun is known by both its names, and nothing else is."""
    assert Torchrun().recognises(words.split()) == known


@pytest.mark.parametrize(
    ("words", "env", "where"),
    [
        ("--nnodes=4 --master-addr=vm-0 a.py", {}, ("vm-0", 29500)),
        ("--nnodes=2:4 --rdzv-backend=c10d --rdzv-endpoint=vm-0", {}, ("vm-0", 29400)),
        ("--nnodes=4 --rdzv-endpoint=vm-0:7 --master-port=8", {}, ("vm-0", 7)),
        ("--nnodes=4 --master-port=65535", {"PET_MASTER_ADDR": "b"}, ("b", 65535)),
    ],
)
def test_where_ranks_meet(
    words: str, env: dict[str, str], where: tuple[str, int]
) -> None:
    """Tests the address of the store, with torchrun's own ports where none is said."""
    assert Torchrun().store(f"torchrun {words}".split(), env) == where


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("a.py", "one host has nothing to reorder"),
        ("--nnodes=1:1 a.py", "one host has nothing to reorder"),
        ("--standalone --nnodes=4 a.py", "one host has nothing to reorder"),
        ("--nnodes=4 a.py", r"where the ranks meet \(no host:29500\)"),
        ("--nnodes=4 --rdzv-endpoint=vm-0:x a.py", r"ranks meet \(vm-0:x\)"),
        ("--nnodes=4 --rdzv-endpoint=vm-0:0 a.py", r"ranks meet \(vm-0:0\)"),
        ("--nnodes=4 --rdzv-endpoint=vm-0:65536 a.py", r"meet \(vm-0:65536\)"),
    ],
)
def test_ranks_that_meet_nowhere(words: str, reason: str) -> None:
    """Tests that an address that other hosts cannot know is named."""
    with pytest.raises(LaunchError, match=reason):
        Torchrun().store(f"torchrun {words}".split(), {})
