"""The scripts of deploy/slurm in a real Slurm, from submission to the epilog."""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import ADMINISTRATORS as SBIN

from cloudcoll import lab as labs
from cloudcoll.hosts import Host
from cloudcoll.launch.shim import LIBRARY
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.forms import topology_conf
from cloudcoll.network.tree import Fabric, Node

from .test_slurm import FOUND, pytestmark, run, running

__all__ = ["pytestmark"]

ROOT = Path(__file__).parents[2]
END = 240.0
"""A job of these has as many seconds."""

SBATCH, SCONTROL = (
    shutil.which(name, path=SBIN) or "" for name in ("sbatch", "scontrol")
)
RACK = Node("rack", (Node("vm-01"), Node("vm-03")), 50e6, 50e6)
FABRIC = Fabric(Node("core", (RACK, Node("vm-02"))))
"""Of the three hosts of the lab."""
MORE = """
PartitionName=mpi Nodes=ALL State=UP
PrologSlurmctld={scripts}/prolog-slurmctld.sh
EpilogSlurmctld={scripts}/epilog-slurmctld.sh
TaskProlog={scripts}/task-prolog.sh
JobSubmitPlugins=lua
TopologyPlugin=topology/tree
"""

# Open MPI 5 can't receive before its MPI_Init is over, and with Slurm a rank may be
# done before another (open-mpi/ompi#13559): nobody sends until all are done.
JOB = f"""#!/bin/sh
export CLOUDCOLL_DEBUG=1
{FOUND["srun"]} --mpi=pmix -n 3 {sys.executable} - <<'END' 2>&1
import glob, os, time
from mpi4py import MPI
begun = os.environ["BEGUN"]
open(f"{{begun}}.{{MPI.COMM_WORLD.rank}}", "w").close()
while len(glob.glob(f"{{begun}}.*")) < MPI.COMM_WORLD.size:
    time.sleep(0.01)
found = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
maps = os.environ.get("CLOUDCOLL_MAP", "none"), "LD_PRELOAD" in os.environ
print("rank", MPI.COMM_WORLD.rank, found, *maps)
END
"""


def install(folder: Path) -> Path:
    """Copy the scripts as an administrator would, with this machine's places."""
    scripts = folder / "scripts"
    shutil.copytree(ROOT / "deploy" / "slurm", scripts)
    program = folder / "bin" / "cloudcoll"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m cloudcoll.cli "$@"\n'
    )
    program.chmod(0o755)
    with (scripts / "cloudcoll.env").open("a") as file:
        file.write(f"PREFIX={folder}\nSHIM={LIBRARY}\n")
        file.write(f"SNAPSHOT={folder}/cluster.snap\nMAPS={folder}/maps\n")
        file.write("SOLVE='--pin 1=vm-03'\n")  # an order that Slurm never has
    (folder / "maps").mkdir()
    hosts = tuple(map(Host, FABRIC.hosts))
    NetworkSnapshot(hosts, fabric=FABRIC).save(folder / "cluster.snap")
    submit = (scripts / "job_submit.lua").read_text()
    submit = submit.replace("/shared/cloudcoll", str(folder))
    (folder / "job_submit.lua").write_text(submit)
    return scripts


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[labs.Lab, Path]]:
    """Three hosts with Slurm that runs the scripts; and the folder of it all."""
    folder = tmp_path_factory.mktemp("slurm")
    more = MORE.format(scripts=install(folder))
    (folder / "topology.conf").write_text(topology_conf(FABRIC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(folder / "home"))
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        for lab, _ in running(folder, more):
            yield lab, folder


@pytest.fixture(autouse=True)
def environment(
    cluster: tuple[labs.Lab, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let commands find the lab and Slurm."""
    monkeypatch.setenv("CLOUDCOLL_HOME", str(cluster[1] / "home"))
    monkeypatch.setenv("SLURM_CONF", str(cluster[1] / "slurm.conf"))


def submit(cluster: tuple[labs.Lab, Path], folder: Path, *options: str) -> list[str]:
    """Return what a job of three hosts printed, after its end."""
    lab, home = cluster
    # sbatch --wait asks every so many seconds.
    output, ended = folder / "output", folder / "ended"
    os.mkfifo(ended)
    begun = JOB.replace("export", f"export BEGUN={folder}/begun", 1)
    (folder / "job").write_text(f"{begun}echo $? >{ended}\n")
    with open(os.open(ended, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as code:
        sbatch = (SBATCH, "-N", "3", f"--output={output}", *options)
        done = run(lab, *sbatch, str(folder / "job"))
        assert done.returncode == 0, done.stderr
        select.select([code], [], [], END)
        told = code.read()
    text = output.read_text() if output.exists() else "no output"
    log = (home / "log").read_text(errors="replace")[-3000:]
    assert told == b"0\n", f"{told!r}\n{text}\n{log}"
    return text.splitlines()


def test_a_job_runs_in_the_order_of_its_map(
    cluster: tuple[labs.Lab, Path], tmp_path: Path
) -> None:
    """Tests all of it: asked for by the plug-in, solved, in force, cleaned up."""
    folder = cluster[1]
    lines = submit(cluster, tmp_path, "-p", "mpi")
    ranks = sorted(line.split() for line in lines if line.startswith("rank "))
    assert [row[:3] for row in ranks] == [["rank", str(i), "3"] for i in range(3)]
    (map_file,) = {row[3] for row in ranks}
    assert Path(map_file).parent == folder / "maps"
    order = f"{map_file.removesuffix('.json')}.order"
    for place, host in enumerate(("vm-01", "vm-03", "vm-02")):
        said = f"{host} has place {place} in the first order of 1 in {order}"
        assert [line for line in lines if said in line], lines
    assert [line for line in lines if "1 shadow communicators were made" in line]
    deadline = time.monotonic() + 60
    while os.listdir(folder / "maps"):
        assert time.monotonic() < deadline, "the epilog removed nothing"


def test_a_job_that_asks_for_nothing_is_left_alone(
    cluster: tuple[labs.Lab, Path], tmp_path: Path
) -> None:
    """Tests another partition: no map, no library."""
    lines = submit(cluster, tmp_path, "-p", "all")
    assert sorted(lines) == [f"rank {rank} 3 none False" for rank in range(3)]


def test_a_job_without_a_map_runs_in_the_order_given(
    cluster: tuple[labs.Lab, Path], tmp_path: Path
) -> None:
    """Tests a map that nobody made: the job ends well, and one line says why."""
    named = f"--export=ALL,CLOUDCOLL_MAP={tmp_path}/%j.json"
    lines = submit(cluster, tmp_path, "-p", "all", named)
    assert sum(line.startswith("rank ") for line in lines) == 3
    assert [line for line in lines if "running in the order given" in line]


def test_slurm_takes_the_topology(cluster: tuple[labs.Lab, Path]) -> None:
    """Tests that Slurm, told of a group and of a host beside it, knows both."""
    shown = run(cluster[0], SCONTROL, "show", "topology").stdout
    assert "SwitchName=rack Level=0 LinkSpeed=400 Nodes=vm-01,vm-03" in shown
    assert "SwitchName=switch.1 Level=0 LinkSpeed=1 Nodes=vm-02" in shown
    assert "SwitchName=core Level=1" in shown
