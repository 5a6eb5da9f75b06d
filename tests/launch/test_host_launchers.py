"""Exact command lines of launchers that are started once on every host."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.launch import HOST_LAUNCHERS, LaunchPlan, host_launcher
from cloudcoll.launch.accelerate import Accelerate
from cloudcoll.launch.lightgbm import LightGbm
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.launch.plan import HostLauncher
from cloudcoll.rankmap import RankMap

NAMES = ("vm-0", "vm-3", "vm-1", "vm-2")
ADDRESSES = {name: {f"10.0.0.{name[-1]}"} for name in NAMES}

CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 1  # of this machine
main_process_ip: 'vm-0'
main_process_port: 29500
num_machines: 4
rdzv_backend: static
deepspeed_config:
  deepspeed_multinode_launcher: pdsh
"""
CONF = """
task = train
machines = 10.0.0.2:12400,10.0.0.1:12400
num_machines = 2 # both
"""
LIST = "10.0.0.0 12400\n10.0.0.1 12400\n10.0.0.1 12401\n10.0.0.2 12400\n10.0.0.3 1\n"
FILES = {
    "/c.yaml": CONFIG,
    "/one.yaml": "num_machines: 1\nmachine_rank: 0\n",
    "/c10d.json": '{\n  "num_machines": 4,\n  "rdzv_backend": "c10d"\n}\n',
    "/cpu.yaml": "num_machines: 4\nuse_cpu: true\n",
    "/ds.yaml": CONFIG.replace("MULTI_GPU", "DEEPSPEED"),
    "/standard.yaml": CONFIG.replace("MULTI_GPU", "DEEPSPEED").replace(
        "pdsh", "standard"
    ),
    "/train.conf": CONF,
    "/mlist": LIST,
    "/ranked": "rank=1\n10.0.0.0 1\n10.0.0.1 1\n",
}

ACCELERATE = Accelerate(lambda path: FILES.get(path, ""))
LIGHTGBM = LightGbm(FILES.__getitem__, lambda name: ADDRESSES.get(name, set()))


def plan(
    launcher: HostLauncher, words: str, *, free: bool = False, order: str = "0312"
) -> LaunchPlan:
    """Plan on vm-1."""
    names = tuple(f"vm-{number}" for number in order)
    rank_map = RankMap(names, (1,) * len(names))
    host = OwnHost(rank_map, Path("/shared/map.json"), "vm-1", free)
    return launcher.plan(words.split(), {"HOME": "/home/me"}, host)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "accelerate launch --config_file /c.yaml train.py --machine_rank 5",
            "accelerate launch --machine_rank=2 --config_file /c.yaml train.py "
            "--machine_rank 5",
        ),
        (
            "accelerate-launch --config_file /standard.yaml train.py",
            "accelerate-launch --machine_rank=2 --config_file /standard.yaml train.py",
        ),
        (
            "accelerate launch --config_file /one.yaml train.py",
            "accelerate launch --config_file /one.yaml train.py",
        ),
        ("accelerate launch train.py", "accelerate launch train.py"),
    ],
)
def test_accelerate(given: str, expected: str) -> None:
    """Tests that the machine's rank is set, over its configuration file."""
    assert " ".join(plan(ACCELERATE, given).argv) == expected


def test_accelerate_moves_its_store() -> None:
    """Tests that the main process is where rank 0 is, with leave only."""
    words = "accelerate launch --config_file /c.yaml train.py"
    with pytest.raises(LaunchError, match="moves rank 0 from vm-0 to vm-2"):
        plan(ACCELERATE, words, order="2310")
    names = ("localhost", "vm-1", "vm-2", "vm-3")
    host = OwnHost(RankMap(names, (1,) * 4), Path("/map"), "vm-1", free_rank0=True)
    made = ACCELERATE.plan(words.split(), {}, host)
    assert made.argv[2:4] == ("--machine_rank=1", "--main_process_ip=localhost")


def test_where_ranks_of_accelerate_meet() -> None:
    """Tests that options go before the configuration, whose address counts else."""

    def store(words: str) -> tuple[str, int]:
        return ACCELERATE.store(f"accelerate launch {words} a.py".split(), {})

    assert store("--config_file /c.yaml --main_process_port 7") == ("vm-0", 7)
    assert store("--main_process_ip vm-9") == ("vm-9", 29500)
    with pytest.raises(LaunchError, match="no host:29500"):
        store("--num_machines 4")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--num_machines 5 a.py", "of 4 hosts and --num_machines 5 says 5"),
        ("--num_machines 4 --bogus a.py", "option '--bogus' is not known"),
        ("--config_file /ds.yaml a.py", "export --format deepspeed"),
        ("--config_file /cpu.yaml a.py", "ranks come from mpirun"),
        ("--num_machines 4 --mpirun_hostfile F a.py", "ranks come from mpirun"),
        ("--config_file /c.yaml --rdzv_backend etcd a.py", "'etcd' puts hosts"),
        ("--config_file /c10d.json a.py", "is of another Python"),
    ],
)
def test_accelerate_refused(words: str, reason: str) -> None:
    """Tests that what accelerate does not start in order is left alone."""
    with pytest.raises(LaunchError, match=reason):
        plan(ACCELERATE, f"/opt/other/bin/accelerate launch {words}")


@pytest.mark.parametrize(
    ("given", "expected", "order"),
    [
        (
            "lightgbm config=/train.conf",
            "lightgbm config=/train.conf machines=10.0.0.2:12400,10.0.0.1:12400",
            "21",
        ),
        (
            "/opt/lightgbm task=train machine_list_file=/mlist num_machines=5 data=d",
            "/opt/lightgbm task=train num_machines=5 data=d machines="
            "10.0.0.0:12400,10.0.0.3:1,10.0.0.1:12400,10.0.0.1:12401,10.0.0.2:12400",
            "0312",
        ),
        (
            "lightgbm config=/train.conf nodes=10.0.0.0:1,10.0.0.3:2,10.0.0.1:3",
            "lightgbm config=/train.conf machines=10.0.0.0:1,10.0.0.1:3,10.0.0.3:2",
            "013",
        ),
        ("lightgbm task=predict", "lightgbm task=predict", "01"),
        ("lightgbm nodes=10.0.0.9:1", "lightgbm nodes=10.0.0.9:1", "01"),
    ],
)
def test_lightgbm(given: str, expected: str, order: str) -> None:
    """Tests that machines stand in the map's order, ports and their hosts kept."""
    assert " ".join(plan(LIGHTGBM, given, order=order).argv) == expected


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("mlist=/ranked", "'rank=1' can't be reordered"),
        ("nodes=10.0.0.0:1,10.0.0.1", r"'10\.0\.0\.1' can't be reordered"),
        (
            "machines=10.0.0.0:1,10.0.0.9:1",
            r"10\.0\.0\.9 of the machine list is",
        ),
        ("machines=10.0.0.0:1,10.0.0.1:1", "of 4 hosts and the machine list says 2"),
        (
            "machines=10.0.0.3:1,10.0.0.1:1,10.0.0.0:1,10.0.0.2:1",
            r"moves rank 0 from 10\.0\.0\.3 to vm-0",
        ),
    ],
)
def test_lightgbm_refused(words: str, reason: str) -> None:
    """Tests that a list that is not the map's is left alone."""
    with pytest.raises(LaunchError, match=reason):
        plan(LIGHTGBM, f"lightgbm {words}")


def test_lightgbm_lets_rank_0_move() -> None:
    """Tests that --free-rank0 puts another host first."""
    words = "lightgbm machines=10.0.0.1:1,10.0.0.0:1"
    made = plan(LIGHTGBM, words, free=True, order="01")
    assert made.argv == ("lightgbm", "machines=10.0.0.0:1,10.0.0.1:1")


def test_who_is_asked() -> None:
    """Tests that each command line finds its launcher, and others find none."""
    asked = {
        "torchrun a.py": "torchrun",
        "accelerate launch a.py": "accelerate launch",
        "lightgbm config=c": "lightgbm",
    }
    found = [host_launcher(words.split()) for words in asked]
    assert [one.title for one in found if one] == [*asked.values()]
    assert len(HOST_LAUNCHERS) == len(asked)
    for words in ("accelerate config", "mpirun lightgbm", "python a.py"):
        assert host_launcher(words.split()) is None
