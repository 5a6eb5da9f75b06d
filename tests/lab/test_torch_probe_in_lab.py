"""``cloudcoll probe --via torch``: real Gloo on the hosts of a lab."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from needs import TORCH

from cloudcoll import lab as labs
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot

pytestmark = [
    pytest.mark.lab,
    pytest.mark.alone,
    TORCH.mark,
]

CLOUDCOLL = (sys.executable, "-m", "cloudcoll.cli")
BIN = Path(sys.executable).parent
MBIT_400 = 50e6

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(
    shared_lab: Callable[..., labs.Lab], far_racks: Callable[..., labs.LabSpec]
) -> labs.Lab:
    """Racks of two hosts and of one, 4 ms apart."""
    return shared_lab(far_racks((2, 1), rtt=4e-3, seed=3))


@pytest.fixture(autouse=True)
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch, which every rank imports, start no thread for each core."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def check_measurements(cluster: labs.Lab, snapshot: NetworkSnapshot) -> None:
    """Check every pair's RTT, and rates that no card exceeds."""
    assert snapshot.metadata["transport"] == "torch"
    assert snapshot.metadata["library"].endswith(" gloo")
    assert snapshot.failed == {}
    racks = {name: i for i, group in enumerate(cluster.groups) for name in group}
    rack = np.array([racks[host.name] for host in cluster.hosts])
    pairs = snapshot.rtt
    apart = rack[pairs.src] != rack[pairs.dst]
    measured = np.isfinite(snapshot.latency.values).sum()
    assert measured == len(rack) * (len(rack) - 1)
    # The fastest of each pair: the machine has other things to do.
    least = np.minimum.reduceat(pairs.seconds, [0, *pairs.ends[:-1]])
    assert least[apart].min() > 3.6e-3 > least[~apart].max()
    assert 0 < np.nanmax(snapshot.bandwidth.values) < 1.2 * MBIT_400


def mpirun(cluster: labs.Lab) -> tuple[str, ...]:
    return (str(BIN / "mpirun"), "--hostfile", str(cluster.directory / "hosts"))


@pytest.mark.soak  # of MPI's ranks: test_mpi_probe_in_lab.py
def test_what_died_is_resumed(
    cluster: labs.Lab,
    inside: Run,
    kill_a_rank: Callable[[labs.Lab, int], None],
    tmp_path: Path,
) -> None:
    """Tests that a rank's death costs what is missing, and --resume measures it."""
    output = tmp_path / "a.snap"
    command = (*CLOUDCOLL, "probe", "--via", "torch", "-o", str(output))
    job = ("--", *mpirun(cluster))
    argv, env = labs.exec_argv(cluster, labs.HEAD, (*command, *job))
    spool = Path(f"{output}.partial")
    driver = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    wait_for_rows(driver, spool)
    kill_a_rank(cluster, 1)
    _, error = driver.communicate(timeout=120)
    assert driver.returncode == 3, error
    assert "--resume" in error.splitlines()[-1]
    kept = spool.read_bytes().splitlines()[1:]
    done = inside(cluster, labs.HEAD, *command, "--resume", *job)
    assert done.returncode == 0, done.stderr
    check_measurements(cluster, load_snapshot(output))
    assert kept
    assert not spool.exists()


def wait_for_rows(driver: subprocess.Popen[str], spool: Path) -> None:
    """Return when a row has been spooled, as long as the driver lives."""
    while not (spool.exists() and spool.read_bytes().count(b"\n") > 1):
        # Ranks that import torch need both cores.
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(0.02)
            raise AssertionError(driver.communicate()[1])


@pytest.mark.soak  # starts of torchrun: probes/test_torch_program.py
def test_torchrun_on_each_host(cluster: labs.Lab, inside: Run, tmp_path: Path) -> None:
    """Tests that mpirun may start torchrun, which brings its own meeting point."""
    output = tmp_path / "a.snap"
    first = cluster.hosts[0].address
    torchrun = (
        *(str(BIN / "torchrun"), "--nnodes", "3", "--nproc-per-node", "1"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{first}:29400"),
    )
    done = inside(
        *(cluster, labs.HEAD, *CLOUDCOLL, "probe", "--via", "torch", "--json"),
        *("-o", str(output), "--", *mpirun(cluster), *torchrun),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metadata"]["ranks"] == 3
    check_measurements(cluster, load_snapshot(output))
