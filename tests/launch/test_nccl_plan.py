from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest, shim
from cloudcoll.launch.accelerate import Accelerate
from cloudcoll.launch.lightgbm import LightGbm
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.plan import HostLauncher
from cloudcoll.launch.seal import PUBLIC, new_secret
from cloudcoll.launch.shim import plan_here
from cloudcoll.launch.torchrun import Torchrun
from cloudcoll.launch.wrapper import Inbox
from cloudcoll.rankmap import RankMap

INBOX = Inbox(("10.0.0.9",), 4242, new_secret())


def test_ranks_that_mpi_starts() -> None:
    """Tests that NCCL's ranks are told what MPI's are, with another library."""
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=("mpirun", "--hostfile", "F", "app", "-n"),
        start=3,
        hosts=(Host("a", "10.0.0.1"), Host("b"), Host("c")),
        source="F",
        counts=(2, 2, 2),
    )
    inside, library = shim.shim_of("nccl@2.27")
    rank_map = RankMap(tuple("cab"), (2, 2, 2))
    planned = shim.plan_shim(request, rank_map, INBOX, library)
    assert (inside, planned.roll) == ("NCCL", INBOX)
    assert planned.argv[6:] == (
        str(shim.NCCL),
        "CLOUDCOLL_SHIM_ORDER=c,a 10.0.0.1,b",
        "CLOUDCOLL_SHIM_ROLL=OMPI_CLOUDCOLL_KEY 4242 10.0.0.9",
        *("--", "app", "-n"),
    )
    assert shim.shim_of("openmpi@5.0") == shim.shim_of("") == ("MPI", shim.LIBRARY)


NODE = {"CLOUDCOLL_HOST": "node7"}


def plan(
    folder: Path,
    names: tuple[str, ...],
    *words: str,
    launcher: HostLauncher | None = None,
    **env: str,
) -> LaunchPlan:
    """Plan a launcher on a host called node7 with a map of these hosts."""
    path = folder / "map.json"
    RankMap(names, (2,) * len(names)).save(path)
    argv = words or ("torchrun", "--nnodes=2", "--master-addr=127.0.0.1", "train.py")
    return plan_here(launcher or Torchrun(), argv, path, {**NODE, **env})


def test_a_launcher_of_every_host(tmp_path: Path) -> None:
    """Tests that the command line stays and what was preloaded comes second."""
    planned = plan(tmp_path, ("node2.lan", "node7.lan"), LD_PRELOAD="/none/a")
    assert planned.argv == (
        "torchrun",
        "--nnodes=2",
        "--master-addr=127.0.0.1",
        "train.py",
    )
    assert planned.env == {
        "LD_PRELOAD": f"{shim.NCCL}:/none/a",
        "CLOUDCOLL_SHIM_ORDER": "node2.lan,node7.lan",
        "CLOUDCOLL_HOST": "node7.lan",
        "CLOUDCOLL_SHIM_ROLL": "- 29500 127.0.0.1",
    }
    assert planned.roll == Inbox(("127.0.0.1",), 29500, PUBLIC, variable="")


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (
            ("torchrun", "--nnodes=2", "--rdzv-endpoint=192.0.2.1:99"),
            "- 99 192.0.2.1",
        ),
        (
            (
                "torchrun",
                "--nnodes=2",
                "--rdzv-backend=c10d",
                "--rdzv-endpoint=192.0.2.1",
            ),
            "- 29400 192.0.2.1",
        ),
        (
            ("accelerate", "launch", "--num-machines=2", "--main-process-ip=192.0.2.1"),
            "- 29500 192.0.2.1",
        ),
    ],
)
def test_the_host_of_the_store_counts(
    tmp_path: Path, words: tuple[str, ...], asked: str
) -> None:
    """Tests that the others take this process over, as nobody asks them."""
    launcher = Accelerate() if words[0] == "accelerate" else Torchrun()
    planned = plan(tmp_path, ("a", "node7"), *words, launcher=launcher)
    assert planned.env["CLOUDCOLL_SHIM_ROLL"] == asked
    assert not planned.needs_us


@pytest.mark.parametrize(
    ("launcher", "words", "said"),
    [
        (Torchrun(), ("torchrun", "a.py"), "one host"),
        (Torchrun(), ("torchrun", "--nnodes=2", "a.py"), "no host"),
        (
            Torchrun(),
            ("torchrun", "--nnodes=2", "--master-addr=a", "--master-port=x", "a.py"),
            "a:x",
        ),
        (
            Torchrun(),
            ("torchrun", "--nnodes=2", "--master-addr=none.invalid", "a.py"),
            "no IPv4 address",
        ),
        (Accelerate(), ("accelerate", "launch", "--num-machines=2", "a.py"), "no host"),
        (LightGbm(), ("lightgbm", "machines=a:1,b:2"), "collectives of its own"),
    ],
)
def test_where_nobody_would_count(
    tmp_path: Path, launcher: HostLauncher, words: tuple[str, ...], said: str
) -> None:
    """Tests that a job starts without the library where no roll can be called."""
    with pytest.raises(LaunchError, match=said):
        plan(tmp_path, ("node2", "node7"), *words, launcher=launcher)


def test_a_host_that_is_not_in_the_map(tmp_path: Path) -> None:
    """Tests that it starts without the library, and the roll tells the others."""
    with pytest.raises(LaunchError, match="is not one of"):
        plan(tmp_path, ("node2", "node3"))
