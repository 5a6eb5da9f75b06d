"""``cloudcoll run`` with constraints, and with a workload."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from prefixed import run

from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot, latest_path
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.rankmap import RankMap

ROOT = Path(__file__).parents[2]
LAUNCHER = (
    '#!/bin/sh\n[ "$*" = --version ] && echo "mpirun (Open MPI) 5.0.11" || echo "$@"\n'
)


@pytest.fixture
def launcher(tmp_path: Path) -> str:
    """A program that answers as Open MPI 5; a and c share an uplink, b and d, e and f.

    The card of c is slow.
    """
    path = tmp_path / "mpirun"
    path.write_text(LAUNCHER)
    path.chmod(0o755)
    (tmp_path / "hosts").write_text("".join(f"{name} slots=2\n" for name in "abcdef"))
    save_racks(uplink=50e6, rate={"c": 30e6})
    return str(path)


def save_racks(uplink: float, rate: dict[str, float]) -> None:
    """Keep a snapshot of the hosts, of cards at 50 MB/s but for those in `rate`."""
    racks = [
        Node(
            rack,
            tuple(Node(name, (), *[rate.get(name, 50e6)] * 2) for name in rack),
            *(uplink, uplink),
        )
        for rack in ("ac", "bd", "ef")
    ]
    measured = NetworkSnapshot(
        tuple(map(Host, "abcdef")),
        fabric=Fabric(Node("core", tuple(racks))),
        created=time.time(),
    )
    measured.save(latest_path(measured.hosts))


def planned(folder: Path, *argv: str) -> tuple[list[str], dict[str, str]]:
    """Return the host of each rank, and the comments of a dry run."""
    code, out, err = run(folder, "--dry-run", "--no-probe", *argv)
    assert code == 0, err
    _, *lines = out.splitlines()
    placed = [line[4:] for line in lines if line.startswith("#   ")]
    said = (line[2:].partition(": ") for line in lines if not line.startswith("#   "))
    return placed, {key: value for key, _, value in said}


def test_a_rank_stays_on_a_host(tmp_path: Path, launcher: str) -> None:
    """Tests pins of rank 0, which moves it, and of another."""
    job = (launcher, "--hostfile", "hosts", "app")
    placed, _ = planned(tmp_path, "--pin", "0=d", "--pin", "7=a", *job)
    assert placed[:2] == ["d", "d"]
    assert placed[6:8] == ["a", "a"]
    assert sorted(placed) == sorted("abcdef" * 2)
    assert planned(tmp_path, "--pin", "0=d", *job)[0][:2] == ["d", "d"]


def test_the_hosts_of_a_job_are_chosen(tmp_path: Path, launcher: str) -> None:
    """Tests that --take uses hosts that the command would not, and leaves out c."""
    job = (launcher, "-np", "8", "--hostfile", "hosts", "app")
    assert set(planned(tmp_path, *job)[0]) <= set("abcd")
    placed, said = planned(tmp_path, "--take", "--algorithm", "ring", *job)
    assert len(placed) == 8
    assert placed[:2] == ["a", "a"]
    assert "c" not in placed
    assert "c" in said["left out"].split()
    free, _ = planned(tmp_path, "--take", "--free-rank0", "--bytes", "1M", *job)
    assert "c" not in free
    lines = (tmp_path / "hosts").read_text().replace("e slots=2", "e slots=1")
    (tmp_path / "hosts").write_text(lines)
    assert set(planned(tmp_path, "--take", *job)[0]) == set("abdf")


def test_a_map_of_chosen_hosts_is_taken(tmp_path: Path, launcher: str) -> None:
    """Tests that a map that leaves hosts out moves the ranks to those it names."""
    RankMap(("a", "f", "e"), (2,) * 3, dropped=("b", "c", "d")).save(tmp_path / "m")
    job = (launcher, "-np", "6", "--hostfile", "hosts", "app")
    assert planned(tmp_path, "--map", "m", *job)[0] == list("aaffee")
    code, out, err = run(tmp_path, "--map", "m", *(launcher, "-np", "8", *job[3:]))
    assert (code, out) == (0, "-np 8 --hostfile hosts app\n")
    assert "the rank map is of other hosts than hosts" in err


def test_a_workload_decides_and_is_remembered(tmp_path: Path, launcher: str) -> None:
    """Tests groups in one rack each, the same again without NumPy, and a new file."""
    operation = {"collective": "allreduce", "groups": "tp", "bytes": "4M"}
    job = {"parallel": "tp=4,dp=3", "operations": [operation]}
    (tmp_path / "job.json").write_text(json.dumps(job))
    argv = ("-v", "--no-probe", "--workload", "job.json", "--same-rack", "tp")
    command = (*argv, launcher, "--hostfile", "hosts", "app")
    first = run(tmp_path, *command)
    said, order, bound, _ = first[2].splitlines()
    assert said == "cloudcoll: solved for workload job.json"
    assert bound == (
        "cloudcoll: no order is predicted to be faster than this, given these "
        "groups of hosts"
    )
    hosts = order.rpartition(": ")[2].replace(" ", "")
    assert {frozenset(hosts[at : at + 2]) for at in (0, 2, 4)} == {
        frozenset(rack) for rack in ("ac", "bd", "ef")
    }
    code, _, err = run(tmp_path, *command, python="-X importtime")
    assert code == 0
    assert order in err
    assert "numpy" not in err
    (tmp_path / "job.json").write_text(json.dumps({**job, "parallel": "tp=6,dp=2"}))
    code, out, err = run(tmp_path, *command)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert "need 3 hosts of one rack, the largest has 2" in err
    assert "running the command unchanged" in err


def test_a_small_gain_leaves_the_command(tmp_path: Path, launcher: str) -> None:
    """Tests that the job runs as typed, and that the reason is said."""
    argv = ("--no-probe", "--algorithm", "ring", "--keep-below", "99%")
    code, out, err = run(tmp_path, *argv, launcher, "--hostfile", "hosts", "app")
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert err == "cloudcoll: less than 99% to gain: order kept\n"


def test_a_gain_of_half_a_percent_is_none(tmp_path: Path, launcher: str) -> None:
    """Tests the least gain without an option, and that 0 % asks for any gain."""
    save_racks(uplink=2 * 50e6 * 0.995, rate={})
    argv = ("--no-probe", "--algorithm", "ring")
    command = (launcher, "--hostfile", "hosts", "app")
    code, out, err = run(tmp_path, *argv, *command)
    assert (code, out) == (0, "--hostfile hosts app\n")
    assert err == "cloudcoll: less than 1% to gain: order kept\n"
    placed, _ = planned(tmp_path, *argv[1:], "--keep-below", "0%", *command)
    assert placed[::2] == ["a", "c", "b", "d", "e", "f"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--map", "m", "--pin", "0=a"], "--map has an order already"),
        (["--map", "m", "--take"], "--map has an order already"),
        (["--parallel", "tp=2", "--bytes", "1M"], "--bytes is for one collective"),
        (["--pin", "a=0"], "'a=0' is not RANK=HOST"),
    ],
)
def test_options_that_contradict_each_other(
    tmp_path: Path, launcher: str, argv: list[str], said: str
) -> None:
    """Tests that nothing is started where the options alone make no sense."""
    code, out, err = run(tmp_path, *argv, launcher, "--hostfile", "hosts", "app")
    assert (code, out) == (125, "")
    assert said in err


@pytest.mark.parametrize(
    ("argv", "job", "said"),
    [
        (["--pin", "1=x"], [], "--pin 1=x: no such host (there are a, b, c, d, ...)"),
        (["--pin", "2=a"], [], "let it go with --free-rank0"),
        (["--pin", "1=a"], ["--map-by", "node"], "need them host by host"),
        (["--parallel", "tp=5"], [], "tp=5"),
        (
            ["--take"],
            ["-np", "7"],
            "--take needs the same number of ranks on every host",
        ),
    ],
)
def test_a_job_that_cannot_be_reordered_so_runs_as_typed(
    tmp_path: Path, launcher: str, argv: list[str], job: list[str], said: str
) -> None:
    """Tests one line for what does not fit the job, and --strict."""
    command = ["--no-probe", *argv, launcher, *job, "--hostfile", "hosts", "app"]
    code, out, err = run(tmp_path, *command)
    assert (code, out) == (0, " ".join([*job, "--hostfile", "hosts", "app\n"]))
    assert said in err
    assert err.count("\n") == 1
    assert run(tmp_path, "--strict", *command)[0] == 125
