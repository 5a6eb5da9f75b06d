"""LightGBM's and XGBoost's own ranks on the hosts of a lab follow a map."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import XGBOOST

from cloudcoll import lab as labs
from cloudcoll.rankmap import RankMap, load_rankmap

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")

LIGHTGBM = """\
#!{python}
# The wheel has LightGBM's library but not its program: the same parameters.
import socket, sys
import lightgbm, numpy
words = [word.split("=", 1) for word in sys.argv[1:]]
given = {{key: int(v) if v.isdecimal() else v for key, v in words}}
generator = numpy.random.default_rng(sum(socket.gethostname().encode()))
x = generator.random((200, 4))
fixed = {{"objective": "regression", "num_threads": 1, "min_data_in_bin": 1}}
booster = lightgbm.train({{**fixed, **given}}, lightgbm.Dataset(x, x[:, 0]), 2)
print("trees", booster.num_trees())
"""

TRACKER = """
import sys
from xgboost.tracker import RabitTracker
tracker = RabitTracker(int(sys.argv[2]), sys.argv[1], 9091, sortby="task", timeout=60)
tracker.start()
print("up", flush=True)
tracker.wait_for(60)
"""

WORKER = """
import os, socket, sys
import numpy
from xgboost import collective
task = os.environ["DMLC_TASK_ID"]
with collective.CommunicatorContext(
    dmlc_communicator="rabit", dmlc_tracker_uri=sys.argv[1], dmlc_tracker_port=9091,
    dmlc_task_id=task, dmlc_timeout=60,
):
    total = collective.allreduce(numpy.ones(1), collective.Op.SUM)
    print("rank", collective.get_rank(), "of", int(total[0]))
"""


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Racks of two hosts and of one."""
    return shared_lab(far_racks((2, 1), seed=4))


@pytest.fixture
def order(cluster: labs.Lab) -> list[str]:
    """Return an order of the hosts that no sort makes."""
    first, second, third = sorted(host.name for host in cluster.hosts)
    return [second, third, first]


@pytest.fixture
def addresses(cluster: labs.Lab) -> list[str]:
    """Return the IPv4 address of each host, in the lab's order."""
    names = [host.name for host in cluster.hosts]
    look_up = "import socket, sys; print(*map(socket.gethostbyname, sys.argv[1:]))"
    asked = start(cluster, names[0], sys.executable, "-c", look_up, *names)
    return ended({"": asked})[""].split()


@pytest.fixture
def map_path(order: list[str], tmp_path: Path) -> str:
    path = tmp_path / "map.json"
    RankMap(tuple(order), (1,) * len(order)).save(path)
    return str(path)


def start(lab: labs.Lab, host: str, *argv: str, **env: str) -> subprocess.Popen[str]:
    command, environment = labs.exec_argv(lab, host, argv)
    return subprocess.Popen(
        command,
        env={**environment, **env},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(running: dict[str, subprocess.Popen[str]]) -> dict[str, str]:
    """Return what each process printed, all of them having ended well."""
    try:
        texts = {name: p.communicate(timeout=90)[0] for name, p in running.items()}
    finally:
        for process in running.values():
            process.kill()
    codes = {name: process.returncode for name, process in running.items()}
    assert set(codes.values()) == {0}, texts
    return texts


def test_lightgbm(
    cluster: labs.Lab,
    order: list[str],
    addresses: list[str],
    map_path: str,
    tmp_path: Path,
) -> None:
    """Tests that a machine's rank in a real training is its place in the map."""
    program = tmp_path / "lightgbm"
    program.write_text(LIGHTGBM.format(python=sys.executable))
    program.chmod(0o755)
    listed = ",".join(f"{address}:12400" for address in addresses)
    words = [f"machines={listed}", "local_listen_port=12400", "num_machines=3"]
    words += ["tree_learner=data", "time_out=1"]
    run = [*CLOUDCOLL, "run", "--map", map_path, "--strict", "--free-rank0"]
    texts = ended(
        {name: start(cluster, name, *run, str(program), *words) for name in order}
    )
    for rank, name in enumerate(order):
        assert f"Local rank: {rank}, total number of machines: 3" in texts[name]
        assert "trees 2" in texts[name]


@pytest.mark.slow
def test_pythons_lightgbm(cluster: labs.Lab, tmp_path: Path) -> None:
    """Tests the way of docs/boosting.md: from a probe to ranks in a training."""
    snapshot, ranks = str(tmp_path / "lab.snap"), tmp_path / "map.json"
    machines = tmp_path / "machines.txt"
    for words in (
        ["probe", "--lab", cluster.name, "--quick", "-o", snapshot],
        ["solve", snapshot, "--library", "lightgbm", "-o", str(ranks)],
        ["export", str(ranks), "--format", "lightgbm", "-o", str(machines)],
    ):
        done = subprocess.run([*CLOUDCOLL, *words], cwd=ROOT)
        # On a busy machine a quick probe may lack a pair, and says so with 1.
        assert done.returncode <= (words[0] == "probe")
    program = tmp_path / "train"
    program.write_text(LIGHTGBM.format(python=sys.executable))
    program.chmod(0o755)
    listed = ",".join(machines.read_text().replace(" 12400", ":12401").split())
    words = [f"machines={listed}", "time_out=1"]
    words += ["local_listen_port=12401", "tree_learner=data"]
    order = load_rankmap(ranks).order
    texts = ended({name: start(cluster, name, str(program), *words) for name in order})
    for rank, name in enumerate(order):
        assert f"Local rank: {rank}, total number of machines: 3" in texts[name]
        assert "trees 2" in texts[name]


@XGBOOST.mark
@pytest.mark.slow
def test_xgboost(
    cluster: labs.Lab, order: list[str], addresses: list[str], map_path: str
) -> None:
    """Tests that a tracker that sorts by task gives workers the map's ranks."""
    host, address = cluster.hosts[0].name, addresses[0]
    python = (sys.executable, "-c")
    with start(cluster, host, *python, TRACKER, address, "3") as tracker:
        assert tracker.stdout is not None
        assert tracker.stdout.readline() == "up\n"
        run = [*CLOUDCOLL, "exec", "--strict", "--map", map_path, *python, WORKER]
        texts = ended(
            {
                name: start(cluster, name, *run, address, DMLC_TASK_ID="w")
                for name in order
            }
        )
        tracker.kill()
    last = [texts[name].splitlines()[-1] for name in order]
    assert last == ["rank 0 of 3", "rank 1 of 3", "rank 2 of 3"]


def test_addresses_as_names(
    cluster: labs.Lab, addresses: list[str], tmp_path: Path
) -> None:
    """Tests that a host finds itself by its address in a map of addresses."""
    path = tmp_path / "map.json"
    RankMap(tuple(reversed(addresses)), (1, 1, 1)).save(path)
    run = [*CLOUDCOLL, "exec", "--map", str(path), "sh", "-c", "echo $NODE_RANK"]
    texts = ended(
        {
            host.name: start(cluster, host.name, *run, NODE_RANK="7")
            for host in cluster.hosts
        }
    )
    assert [*texts.values()] == ["2\n", "1\n", "0\n"]
