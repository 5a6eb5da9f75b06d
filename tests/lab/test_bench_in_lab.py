"""``cloudcoll bench`` and the demo: real Open MPI on the hosts of a lab."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from needs import TORCH

from cloudcoll import lab as labs
from cloudcoll.bench.result import OPERATIONS, BenchRun
from cloudcoll.cli import main
from cloudcoll.measured.snapshot import load_snapshot
from cloudcoll.rankmap import load_rankmap

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")
MPIRUN = str(Path(sys.executable).with_name("mpirun"))
HOSTFILE = ("mpirun", "--hostfile", "HOSTS")

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Two racks of two hosts."""
    return shared_lab(far_racks((2, 2), seed=1))


def bench(cluster: labs.Lab, inside: Run, *argv: str) -> tuple[int, str, str]:
    done = inside(cluster, labs.HEAD, *CLOUDCOLL, "bench", *argv)
    return done.returncode, done.stdout, "\n".join(own_lines(done.stderr))


def own_lines(errors: str) -> list[str]:
    """Return the lines on stderr but for those that may always come."""
    # Open MPI's own race, now and then, on any machine.
    # How long it may take is said of every bench: cli/test_searching.py.
    expected = ("setpgid", "cloudcoll: measuring, at most about ")
    return [
        line
        for line in errors.splitlines()
        if not any(words in line for words in expected)
    ]


def test_every_order_is_measured_and_right(
    cluster: labs.Lab, snapshot: Path, inside: Run, tmp_path: Path
) -> None:
    """Tests rows, correctness, ratios and the stored JSON of a real bench."""
    output = tmp_path / "result.json"
    hostfile = str(cluster.directory / "hosts")
    code, out, err = bench(
        *(cluster, inside, "--snapshot", str(snapshot), "--repeats", "2"),
        *("-b", "64K", "-e", "256K", "--orders", "given,grouped,random:2,cloudcoll"),
        *("-o", str(output), "--json", MPIRUN, "--hostfile", hostfile),
    )
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads(output.read_text())
    run = BenchRun.from_json(output.read_text())
    assert run.sizes == [1 << 16, 1 << 18]
    assert len(run.rows) == len(run.orders) * 2 * 2
    assert all(row["wrong"] == 0 and row["time_us"] > 0 for row in run.rows)
    assert {ratio.baseline for ratio in run.ratios()} == {"given", "grouped", "random"}
    assert run.metadata["lab"] == labs.character(cluster)
    assert list(run.metadata["placement"]) == [host.name for host in cluster.hosts]
    # What a message costs was measured before, and predicted with.
    kept = load_snapshot(snapshot)
    assert kept.digest == run.metadata["snapshot"]
    assert len(kept.metadata["message_costs"]["openmpi x 1"]["each"]) == 3


@pytest.mark.parametrize(
    ("backend", "collective"),
    [
        ("mpi4py", "alltoall"),
        ("c", "reduce"),
        pytest.param("gloo", "alltoall", marks=[TORCH.mark, pytest.mark.slow]),
        # In less time, on one machine: bench/test_bench_programs.py.
        *(
            pytest.param(backend, name, marks=pytest.mark.soak)
            for backend, name in product(["mpi4py", "c"], sorted(OPERATIONS))
            if (backend, name) not in {("mpi4py", "alltoall"), ("c", "reduce")}
        ),
    ],
)
def test_every_collective_is_right_in_every_order(
    cluster: labs.Lab,
    snapshot: Path,
    inside: Run,
    tmp_path: Path,
    backend: str,
    collective: str,
) -> None:
    """Tests that each library's ranks are where the order has them, and CSV."""
    via = ["--backend", backend]
    if backend == "gloo":
        via = ["--via", "torch"]
    output = tmp_path / "result.csv"
    code, out, err = bench(
        *(cluster, inside, "--snapshot", str(snapshot), "--repeats", "1", "--csv"),
        *("--collective", collective, *via, "-b", "1000", "-e", "100000"),
        *("-f", "100", "--orders", "given,random:2", "-o", str(output)),
        *(MPIRUN, "--hostfile", str(cluster.directory / "hosts")),
    )
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert out == output.read_text()
    assert len(rows) == 2 * len({row["order"] for row in rows})
    assert {(row["op"], row["wrong"]) for row in rows} == {(collective, "0")}


def test_the_table_is_nccl_tests(
    cluster: labs.Lab, snapshot: Path, inside: Run
) -> None:
    """Tests the columns of the long table, and the table of ratios."""
    hostfile = str(cluster.directory / "hosts")
    code, out, err = bench(
        *(cluster, inside, "--snapshot", str(snapshot), "--repeats", "1", "-v"),
        *("-b", "64K", "-e", "64K", MPIRUN, "--hostfile", hostfile),
    )
    assert (code, err) == (0, "")
    assert "size        count    type  redop   root" in out
    assert "time over that of cloudcoll's order" in out


@pytest.mark.slow
def test_a_bench_ends_in_time_with_a_verdict(
    cluster: labs.Lab, snapshot: Path, inside: Run
) -> None:
    """Tests a time too short for all: a few lines, each size five times or not."""
    hostfile = str(cluster.directory / "hosts")
    begun = time.monotonic()
    code, out, err = bench(
        *(cluster, inside, "--snapshot", str(snapshot), "--seconds", "15"),
        *("-b", "64K", "-e", "64M", MPIRUN, "--hostfile", hostfile),
    )
    # Twice as long, for a machine that has other things to do.
    assert time.monotonic() - begun < 30
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) < 16
    assert "64 MiB" in next(line for line in lines if line.startswith("left out, to"))
    assert "too seldom" not in out
    assert lines[-2].startswith(("In CloudColl's", "No gain could", "CloudColl would"))
    assert lines[-1].startswith("Next: ")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-b", "2", "mpirun", "--hostfile", "HOSTS"], 2, "sizes go from -b"),
        (["--algorithm", "x", "mpirun", "--hostfile", "HOSTS"], 2, "known: "),
        (["--collective", "scan", "mpirun"], 2, "no collective 'scan'"),
        (["--via", "torch", "--algorithm", "ring", *HOSTFILE], 2, "leave out --alg"),
        (["--backend", "nccl", *HOSTFILE], 2, "'nccl' (known: mpi4py, c)"),
        (["--orders", "best", "mpirun", "--hostfile", "HOSTS"], 2, "unknown order"),
        (["mpirun", "--hostfile", "HOSTS", "./app"], 2, "leave out './app'"),
        (["true", "-n", "4"], 125, "unknown launcher 'true'"),
        (["mpirun", "--hostfile", "/nowhere"], 2, "/nowhere"),
    ],
)
def test_bad_input_is_one_line(
    cluster: labs.Lab,
    snapshot: Path,
    words: list[str],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests that a wrong command line ends in one line that says what is wrong."""
    # As on a host of the lab: nothing gets as far as starting a rank there.
    monkeypatch.setenv("CLOUDCOLL_LAB", str(cluster.directory))
    hostfile = str(cluster.directory / "hosts")
    argv = [hostfile if word == "HOSTS" else word for word in words]
    argv = [MPIRUN if word == "mpirun" else word for word in argv]
    assert main(["bench", "--snapshot", str(snapshot), *argv]) == code
    (line,) = own_lines(capsys.readouterr().err)
    assert message in line


@pytest.mark.alone
@pytest.mark.slow
def test_the_demo_leaves_its_results(tmp_path: Path) -> None:
    """Tests the demo on three hosts: summary, snapshot, map, result and report."""
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "benchmarks" / "demo.py")),
            *("--output", str(tmp_path), "--racks", "2,1", "--repeats", "1", "--small"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "64 KiB against CloudColl's" in done.stdout
    assert len(load_snapshot(tmp_path / "network.snap").hosts) == 3
    assert load_rankmap(tmp_path / "map.json").size == 3
    assert BenchRun.from_json((tmp_path / "result.json").read_text()).ranks == 3
    assert "allreduce (ring)" in (tmp_path / "report.html").read_text()
