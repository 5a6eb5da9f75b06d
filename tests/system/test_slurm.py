"""Probes and jobs in a real Slurm on the hosts of a lab.

Needs slurmctld, slurmd, slurm-client, munge, libpmix-dev, openmpi-bin and mpich
from apt.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from needs import ADMINISTRATORS as SBIN
from needs import DEBIAN_MPICH, DEBIAN_OPEN_MPI, ROOT, SLURM, SLURM_PROGRAMS

from cloudcoll import lab as labs
from cloudcoll.lab.link import SCRATCH
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.rankmap import RankMap

FOUND = {name: shutil.which(name, path=SBIN) or "" for name in SLURM_PROGRAMS}
pytestmark = [
    pytest.mark.lab,
    pytest.mark.system,
    SLURM.mark,
    ROOT.mark,
]

# An empty folder in place of control groups: nothing here is confined.
CONFIG = """
ClusterName=lab
SlurmctldHost={hosts[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=0
NodeName={names} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def configure(folder: Path, hosts: list[str], more: str = "") -> None:
    """Write what the daemons read, and make the folders they want."""
    for name in ("state", "groups", *(f"spool-{host}" for host in hosts)):
        (folder / name).mkdir()
    (folder / "key").write_bytes(bytes(range(256)) * 4)
    (folder / "key").chmod(0o600)
    text = CONFIG.format(folder=folder, hosts=hosts, names=",".join(hosts), user="root")
    (folder / "slurm.conf").write_text(text + more)
    groups = f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/groups\n"
    (folder / "cgroup.conf").write_text(groups)
    # Each host's own, where /tmp is one for all of the lab.
    (folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={SCRATCH}\n")


def daemons(folder: Path, hosts: list[str]) -> list[tuple[str, list[str]]]:
    """Return host and command line of each daemon."""
    files = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    key = [f"--key-file={folder}/key", f"--socket={folder}/munge"]
    munged = [FOUND["munged"], "--force", "--foreground", *key, *files]
    return [
        (labs.HEAD, munged),
        (hosts[0], [FOUND["slurmctld"], "-D"]),
        *((host, [FOUND["slurmd"], "-D", "-N", host]) for host in hosts),
    ]


def run(cluster: labs.Lab, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the first host."""
    command, env = labs.exec_argv(cluster, cluster.hosts[0].name, argv)
    return subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[labs.Lab, Path]]:
    """Racks of two hosts and of one, 4 ms apart, with Slurm; and its logs."""
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDCOLL_HOME", str(folder / "home"))
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        yield from running(folder)


@pytest.fixture(autouse=True)
def environment(
    cluster: tuple[labs.Lab, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let commands find the lab and Slurm."""
    folder = cluster[1].parent
    monkeypatch.setenv("CLOUDCOLL_HOME", str(folder / "home"))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))


def running(folder: Path, more: str = "") -> Iterator[tuple[labs.Lab, Path]]:
    """Yield the lab and its log while Slurm, configured so, runs in it."""
    spec = labs.quick(
        (2, 1), nic=50e6, uplink=50e6, rtt=4e-3, slots=1, seed=3, preset="tuned"
    )
    lab = labs.up(spec, "slurm")
    hosts = [host.name for host in lab.hosts]
    configure(folder, hosts, more)
    started = []
    try:
        with open(folder / "log", "wb") as log:
            for host, argv in daemons(folder, hosts):
                command, env = labs.exec_argv(lab, host, argv)
                started.append(
                    subprocess.Popen(command, env=env, stdout=log, stderr=log)
                )
        wait_for_nodes(lab, folder / "log")
        yield lab, folder / "log"
    finally:
        labs.down("slurm")
        for daemon in started:
            daemon.wait(timeout=120)


def wait_for_nodes(lab: labs.Lab, log: Path) -> None:
    """Return when all hosts take jobs."""
    deadline = time.monotonic() + 60
    idle = [FOUND["sinfo"], "-h", "-t", "idle", "-o", "%D"]
    while run(lab, *idle).stdout.strip() != "3":
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]


@pytest.mark.alone
def test_srun_starts_a_probe_on_each_node(
    cluster: tuple[labs.Lab, Path], tmp_path: Path
) -> None:
    """Tests an allocation's hosts, one rank on each, and what is measured."""
    lab, log = cluster
    output = str(tmp_path / "a.snap")
    probe = (sys.executable, "-m", "cloudcoll.cli", "probe", "--via", "mpi")
    srun = (FOUND["srun"], "--mpi=pmix", "--ntasks-per-node=1")
    salloc = (FOUND["salloc"], "-N", "3")
    done = run(lab, *salloc, *probe, "-o", output, "--quick", "--", *srun)
    assert done.returncode == 0, done.stderr + log.read_text(errors="replace")[-4000:]
    snapshot = load_snapshot(output)
    names = {host.name for host in lab.hosts}
    assert set(snapshot.names) == names
    assert (snapshot.metadata["ranks"], snapshot.failed) == (3, {})
    racks = {name: i for i, group in enumerate(lab.groups) for name in group}
    rack = np.array([racks[name] for name in snapshot.names])
    pairs = snapshot.rtt
    apart = rack[pairs.src] != rack[pairs.dst]
    least = np.minimum.reduceat(pairs.seconds, [0, *pairs.ends[:-1]])
    assert least[apart].min() > 3.6e-3 > least[~apart].max()


# Slurm's own variable is the daemon's where a launcher starts its ranks by srun.
RANK = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$SLURM_PROCID}}"
SHOW = f"echo {RANK} $(uname -n); sleep 0.3"
OPEN_MPI_5 = str(Path(sys.executable).with_name("mpirun"))


@pytest.mark.many
@pytest.mark.parametrize(
    "launcher",
    [
        "srun",
        OPEN_MPI_5,
        pytest.param("mpirun.openmpi --bind-to none", marks=DEBIAN_OPEN_MPI.mark),
        pytest.param(
            "mpirun.openmpi --map-by slot --bind-to core", marks=DEBIAN_OPEN_MPI.mark
        ),
        pytest.param("mpiexec.mpich", marks=DEBIAN_MPICH.mark),
    ],
)
def test_order_survives_slurm(
    cluster: tuple[labs.Lab, Path], tmp_path: Path, launcher: str
) -> None:
    """Tests that ranks start as the map says, where Slurm sorts its nodes."""
    lab, _ = cluster
    first, second, third = sorted(host.name for host in lab.hosts)
    order = (first, third, second)
    path = tmp_path / "map.json"
    RankMap(order, (1, 1, 1)).save(path)
    words = launcher.split()
    cloudcoll = (sys.executable, "-m", "cloudcoll.cli", "run", "--strict")
    salloc = (FOUND["salloc"], "-Q", "-N", "3", "--ntasks-per-node=2")
    job = (*cloudcoll, "--map", str(path), *words, "sh", "-c", SHOW)
    done = run(lab, *salloc, *job)
    assert done.returncode == 0, done.stderr
    rows = sorted(line.split() for line in done.stdout.splitlines())
    planned = [(str(i), host) for i, host in enumerate(h for h in order for _ in "12")]
    assert [tuple(row) for row in rows] == planned


@pytest.mark.many
@pytest.mark.parametrize("export", ["ALL", "NONE", "NIL", "PATH", "ALL,A=1", ""])
def test_tasks_report_whatever_they_are_handed(
    cluster: tuple[labs.Lab, Path], tmp_path: Path, export: str
) -> None:
    """Tests that the secret reaches all tasks, by no command line, and stops there."""
    lab, _ = cluster
    first, second, third = sorted(host.name for host in lab.hosts)
    path = tmp_path / "map.json"
    RankMap((first, third, second), (1, 1, 1)).save(path)
    cloudcoll = (sys.executable, "-m", "cloudcoll.cli", "run", "--strict", "--map")
    srun = (FOUND["srun"], *([f"--export={export}"] if export else []))
    look = (
        "/usr/bin/env | /bin/grep CLOUDCOLL; "
        "/bin/cat /proc/[0-9]*/cmdline 2>/dev/null | /usr/bin/tr -c '0-9a-f' '\\n' | "
        "/bin/grep -xE '[0-9a-f]{48}'; /bin/sleep 0.3"
    )
    salloc = (FOUND["salloc"], "-Q", "-N", "3", "--ntasks-per-node=1")
    job = (*cloudcoll, str(path), *srun, "/bin/sh", "-c", look)
    environment = ("env", "SLURM_EXPORT_ENV=NIL") if not export else ()
    done = run(lab, *salloc, *environment, *job)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("all 3 ranks are in place\n"), done.stderr
    assert "KEY" not in done.stdout
    assert not re.search("^[0-9a-f]{48}$", done.stdout, re.MULTILINE)


PASSED = """
import json, signal, subprocess, sys
commands = json.loads(sys.argv[1])
codes = []
for name in ("SIGTERM", "SIGINT"):
    for command in commands:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            assert process.stdout.readline() == "up\\n"
        process.send_signal(signal.Signals[name])
        process.communicate(timeout=120)
        codes.append(process.returncode)
print(json.dumps(codes))
"""


@pytest.mark.slow
def test_srun_is_not_disturbed(cluster: tuple[labs.Lab, Path], tmp_path: Path) -> None:
    """Tests that stdin, 10 MB of output, exit codes and signals come through."""
    lab, _ = cluster
    names = sorted(host.name for host in lab.hosts)
    path = tmp_path / "map.json"
    RankMap((names[0], names[2], names[1]), (1, 1, 1)).save(path)
    cloudcoll = [sys.executable, "-m", "cloudcoll.cli", "run", "--strict"]
    ours = [*cloudcoll, "--map", str(path), "srun"]
    salloc = (FOUND["salloc"], "-Q", "-N", "3", "--ntasks-per-node=1")
    line = "0123456789abcde\n"
    (tmp_path / "in").write_text(line * 10)
    script = (
        "[ $SLURM_PROCID = 0 ] || { cat >/dev/null; sleep 3; exit 0; }; "
        f"cat; yes {line.strip()} | head -c 10485760; sleep 2; exit 7"
    )
    fed = f'exec "$@" <{tmp_path}/in'
    done = run(lab, *salloc, "sh", "-c", fed, "sh", *ours, "sh", "-c", script)
    assert (done.returncode, done.stdout) == (7, line * (10 + 10485760 // 16))
    waiting = ["--quit-on-interrupt", "sh", "-c", "echo up; exec sleep 60"]
    jobs = json.dumps([["srun", *waiting], [*ours, *waiting]])
    done = run(lab, *salloc, sys.executable, "-c", PASSED, jobs)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert codes[::2] == codes[1::2]
    assert 0 not in codes


def test_ranks_can_start_steps_of_their_own(
    cluster: tuple[labs.Lab, Path], tmp_path: Path
) -> None:
    """Tests that an srun in a rank does not find the job's host list, and works."""
    lab, _ = cluster
    names = sorted(host.name for host in lab.hosts)
    path = tmp_path / "map.json"
    RankMap((names[0], names[2], names[1]), (1, 1, 1)).save(path)
    ours = [sys.executable, "-m", "cloudcoll.cli", "run", "--strict", "--map"]
    salloc = (FOUND["salloc"], "-Q", "-N", "3", "--ntasks-per-node=1")
    show = (
        "[ $SLURM_PROCID = 2 ] || exit 0; env | grep -E '^SLURM_(HOST|DIST.*=arb)'; "
        "srun --overlap -N1 -n1 -w $(uname -n) uname -n"
    )
    plain = run(lab, *salloc, "srun", "sh", "-c", show)
    assert (plain.returncode, plain.stdout) == (0, f"{names[2]}\n"), plain.stderr
    done = run(lab, *salloc, *ours, str(path), "srun", "sh", "-c", show)
    assert (done.returncode, done.stdout) == (0, f"{names[1]}\n"), done.stderr
