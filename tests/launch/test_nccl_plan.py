from __future__ import annotations

from pathlib import Path

from cloudcoll.hosts import Host
from cloudcoll.launch import LaunchPlan, LaunchRequest
from cloudcoll.launch.openmpi import OpenMpi
from cloudcoll.launch.shim import nccl
from cloudcoll.rankmap import RankMap


def test_ranks_that_mpi_starts() -> None:
    """Tests that the order and the launcher's placement come before the program."""
    request = LaunchRequest(
        launcher=OpenMpi(),
        argv=("mpirun", "--hostfile", "F", "app", "-n"),
        start=3,
        hosts=(Host("a", "10.0.0.1"), Host("b"), Host("c")),
        source="F",
        counts=(2, 2, 2),
    )
    planned = nccl.plan_ranks(request, RankMap(tuple("cab"), (2, 2, 2)))
    assert planned.argv[:5] == ("mpirun", "--hostfile", "F", "sh", "-c")
    assert planned.argv[6:] == (
        str(nccl.LIBRARY),
        "CLOUDCOLL_SHIM_ORDER=c,a 10.0.0.1,b",
        "CLOUDCOLL_SHIM_RANKS=1*2,2*2,0*2",
        *("--", "app", "-n"),
    )
    same = nccl.plan_ranks(request, RankMap(tuple("abc"), (2, 2, 2)))
    assert same.argv == request.argv


NODE = {"CLOUDCOLL_HOST": "node7"}


def plan(folder: Path, names: tuple[str, ...], **env: str) -> LaunchPlan:
    """Plan torchrun on a host called node7 with a map of these hosts."""
    path = folder / "map.json"
    RankMap(names, (2,) * len(names)).save(path)
    return nccl.plan_here(("torchrun", "train.py"), path, {**NODE, **env})


def test_a_launcher_of_every_host(tmp_path: Path) -> None:
    """Tests that the command line stays and what was preloaded comes second."""
    planned = plan(tmp_path, ("node2.lan", "node7.lan"), LD_PRELOAD="/none/a")
    assert planned.argv == ("torchrun", "train.py")
    assert planned.env == {
        "LD_PRELOAD": f"{nccl.LIBRARY}:/none/a",
        "CLOUDCOLL_SHIM_ORDER": "node2.lan,node7.lan",
        "CLOUDCOLL_HOST": "node7.lan",
    }


def test_a_host_that_is_not_in_the_map_votes_no(tmp_path: Path) -> None:
    """Tests that it preloads the library all the same: others wait for it."""
    planned = plan(tmp_path, ("node2", "node3"))
    assert planned.env["LD_PRELOAD"] == str(nccl.LIBRARY)
    assert planned.env["CLOUDCOLL_SHIM_ORDER"] == ""
    assert "is not one of" in planned.caution


def test_a_map_that_is_not_there_votes_no(tmp_path: Path) -> None:
    """Tests the same for a map that only some hosts can read."""
    planned = nccl.plan_here(("torchrun",), tmp_path / "none", NODE)
    assert planned.env["CLOUDCOLL_SHIM_ORDER"] == ""
    assert "NCCL keeps the order given" in planned.caution
