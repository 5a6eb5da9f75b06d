"""Real ranks of torch.distributed, which meet on a loopback address."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from needs import TORCH
from ports import own_port

from cloudcoll.errors import UnusableError
from cloudcoll.hosts import Host
from cloudcoll.probe import Conduct, plan_probes
from cloudcoll.probe.job import Torch
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import KEPT, read_row
from probes.ranks import ROUND_LIFE

pytestmark = TORCH.mark

ROOT = Path(__file__).parents[2]
HOSTS = tuple(Host(f"vm-{i}") for i in range(3))
PLAN = plan_probes(HOSTS, concurrency=1, duplex=False)
# Hosts of a lab have names of their own; here the processes only say so.
PROGRAM = """
import socket, sys
name = sys.argv.pop()
socket.gethostname = lambda: name
from probes import torch_probe
torch_probe.main()
"""


@pytest.fixture(scope="module")
def torch_probe() -> ModuleType:
    """Import it late: torch takes a second, in each process that runs tests."""
    return importlib.import_module("probes.torch_probe")


@pytest.fixture
def meeting_point() -> str:
    return f"127.0.0.1:{own_port()}"


@pytest.fixture
def ranks(meeting_point: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start one rank for each host; rank 2 is on ``vm-0``."""
    started = []
    for rank in range(3):
        # Only a host's first rank reads, and keeps the meeting point.
        place = {"RANK": rank, "SIZE": 3, "LOCAL_RANK": rank}
        own = {f"OMPI_COMM_WORLD_{name}": str(n) for name, n in place.items()}
        words = (meeting_point, "auto", f"vm-{2 - rank}")
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                env={**os.environ, **own, "GLOO_SOCKET_IFNAME": "lo"},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    yield started
    for process in started:
        process.kill()
        process.communicate(timeout=120)


def request(plan: ProbePlan, missing: dict[int, list[int]]) -> bytes:
    hosts = [[host.name, host.address] for host in HOSTS]
    value = {"hosts": hosts, "plan": plan.parameters(), "missing": missing}
    return json.dumps(value).encode() + b"\n"


@pytest.mark.slow
def test_gloo_measures_all_that_is_missing(
    ranks: list[subprocess.Popen[bytes]],
) -> None:
    """Tests that real ranks report what the driver asked for, and nothing else."""
    results = Results(PLAN)
    missing = results.missing
    resting = min(missing)
    asked = {number: who for number, who in missing.items() if number != resting}
    output, error = ranks[0].communicate(request(PLAN, asked), timeout=120)
    assert ranks[0].returncode == 0, error
    hello, *lines = output.splitlines()
    told = json.loads(hello)
    assert told["names"] == ["vm-2", "vm-1", "vm-0"]
    assert told["hosts"] == [2, 1, 0]
    assert told["library"].startswith("torch ")
    assert told["library"].endswith(" gloo")
    for line in lines:
        results.add(*read_row(line, (*KEPT, "sent")))
    assert list(results.missing) == [resting]
    assert results.sent > results.flows(set()).window_bytes.sum()
    rtt, flows = results.rtt(set()), results.flows(set())
    assert (rtt.seconds > 0).all()
    assert (rtt.seconds < 1).all()
    assert (flows.window_bytes > 0).any()
    for process in ranks[1:]:
        assert process.wait(timeout=120) == 0


def test_a_dead_rank_ends_the_others(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Tests that nobody waits for a rank that was killed."""
    stdin, stdout = ranks[0].stdin, ranks[0].stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(request(PLAN, Results(PLAN).missing))
    stdin.flush()
    assert stdout.readline().startswith(b'{"library"')
    assert stdout.readline().startswith(b'{"host"')
    ranks[2].kill()
    limit = ROUND_LIFE + 60
    assert [process.wait(timeout=limit) != 0 for process in ranks] == [True] * 3


def test_no_gpu_is_a_clear_answer(meeting_point: str) -> None:
    """Tests that all ranks end, with one line, where NCCL is to run without a GPU."""
    start = str(ROOT / "probes" / "start.py")
    hidden = {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "PMI_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, start, "torch_bench", meeting_point, "nccl"],
            env={**os.environ, **hidden, "PMI_RANK": rank, "MPI_LOCALRANKID": rank},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        ends = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [1, 1]
    line = (
        "cloudcoll: NCCL needs a GPU for each rank, and a torch with NCCL: 2 of 2 "
        "ranks have not both; leave --backend out\n"
    )
    assert ends == [("", line), ("", "")]


@pytest.mark.slow
def test_torchrun_starts_our_module(tmp_path: Path) -> None:
    """Tests a command line of torchrun, whose two ranks are on one host here."""
    words = [sys.executable, "-m", "torch.distributed.run"]
    launcher = Torch([*words, "--standalone", "--nproc-per-node", "2"])
    conduct = Conduct(
        spool=tmp_path / "spool",
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )
    here = socket.gethostname()
    with pytest.raises(UnusableError, match=rf"ranks ran on {here}: two hosts"):
        launcher.measure(HOSTS, PLAN, conduct)


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, (1, 4, 0)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"}, (2, 4, 1)),
        (
            {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"},
            (3, 4, 0),
        ),
        (
            {
                "SLURM_PROCID": "0",
                "SLURM_NTASKS": "1",
                "SLURM_LOCALID": "0",
                "OMPI_COMM_WORLD_RANK": "5",
                "OMPI_COMM_WORLD_SIZE": "6",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            (5, 6, 1),
        ),
    ],
)
def test_a_rank_finds_its_place(
    torch_probe: ModuleType, env: dict[str, str], place: tuple[int, int, int]
) -> None:
    """Tests each launcher's variables; those of an allocation come last."""
    assert torch_probe.find_place(env) == place


@pytest.mark.parametrize("env", [{}, {"RANK": "1"}, {"PMI_RANK": "0", "RANK": "0"}])
def test_no_place_is_a_clear_answer(
    torch_probe: ModuleType, env: dict[str, Any]
) -> None:
    """Tests that a program that nobody launched says what is missing."""
    with pytest.raises(ValueError, match="no launcher told this process"):
        torch_probe.find_place(env)
