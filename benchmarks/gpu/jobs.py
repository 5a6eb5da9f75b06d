"""Jobs on the hosts of a lab: what is set for NCCL, and how ranks are started."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from machine import shared_memory

import cloudcoll
from cloudcoll import lab as labs
from cloudcoll.launch.shim import NCCL, ORDER, TUNER
from cloudcoll.libraries.nccl import CHOICES
from cloudcoll.libraries.tell import PLUGIN, tell
from cloudcoll.tuning import TunedRange, Tuning

HERE = Path(__file__).parent
PROGRAM = HERE / "ranks.py"
PORTS = count(29500)
"""One for each job: that of the last one may not be free yet."""

OF_ALL = {
    "GLOO_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # Over the lab's wires, by sockets alone.
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "eth0",
    "NCCL_NET_PLUGIN": "none",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    # From 2.30 on GPUs are compared, not only hosts.
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    # The kernels of all ranks have to fit on the GPU at once. By one channel NCCL has
    # one tree, by two the two of which its schedule is.
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_DEBUG": "WARN",
}
SMALL = 65536
"""Bytes from which the tuner's table has a ring in place of a tree."""


@dataclass(frozen=True)
class Variant:
    """How NCCL is told to run.

    Attributes
    ----------
    name : str
    algorithm : str
        ``NCCL_ALGO``; empty for NCCL's own choice.
    orders : tuple of str
        That are timed.
    shim, tuner : bool
        Whether ranks have ours.
    whole : bool
        Whether more is run than allreduces.
    """

    name: str
    algorithm: str
    orders: tuple[str, ...]
    shim: bool = False
    tuner: bool = False
    whole: bool = False

    def environment(
        self, order: Sequence[str], version: str, choices: Path
    ) -> dict[str, str]:
        """Return what ranks have in their environment.

        Parameters
        ----------
        order : sequence of str
            Hosts in the order that the shim reorders to.
        version : str
            NCCL's.
        choices : Path
            File for what NCCL takes, where that is open.
        """
        found = {"NCCL_ALGO": self.algorithm} if self.algorithm else {}
        if not self.algorithm:
            # Without a table the plugin only looks on.
            found |= {PLUGIN: str(TUNER), CHOICES: str(choices)}
        if self.shim:
            found |= {"LD_PRELOAD": str(NCCL), ORDER: ",".join(order)}
        if self.tuner:
            found |= tell(table(len(order), version), nodes=len(order)).variables
        return found


def table(ranks: int, version: str) -> Tuning:
    """Return a tuning in which small allreduces run on a tree, all others on a ring."""
    ranges = (
        TunedRange("allreduce", 0, "nccl_tree"),
        TunedRange("allreduce", SMALL, "nccl_ring"),
    )
    return Tuning(f"nccl@{version}", ranks, 1, ranges)


EVERY = ("cloudcoll", "given", "random-1", "random-2", "random-3")
VARIANTS = (
    Variant("ring", "Ring", EVERY, whole=True),
    Variant("shim", "Ring", ("given",), shim=True, whole=True),
    Variant("tuner", "", ("cloudcoll",), tuner=True),
    Variant("tree", "Tree", EVERY),
    Variant("own", "", ("cloudcoll", "given")),
)


@dataclass(frozen=True)
class Ended:
    """What came of a job.

    Attributes
    ----------
    rows : list of dict
        Lines of rank 0.
    said : list of str
        Lines on stderr that are ours or tell of trouble, of all ranks.
    problem : str
        Empty where it ended well.
    """

    rows: list[dict[str, Any]]
    said: list[str]
    problem: str


def run(
    lab: labs.Lab,
    backend: str,
    job: Mapping[str, Any],
    environment: Mapping[str, str],
    limit_s: float,
    on_mps: bool = False,
) -> Ended:
    """Start a rank on each host and wait until all have ended, or the limit."""
    first = lab.hosts[0].name
    # torch wants an address, which the hosts' own names have.
    words = [sys.executable, str(PROGRAM), f"{first}:{next(PORTS)}", backend]
    with tempfile.TemporaryDirectory() as folder:
        started = [
            _start(lab, rank, [*words, json.dumps(job)], environment, on_mps, folder)
            for rank in range(len(lab.hosts))
        ]
        try:
            late = _await(started, limit_s)
        finally:
            for process in started:
                process.kill()
                process.wait()
        texts = [_read(folder, rank, "err") for rank in range(len(started))]
        out = _read(folder, 0, "out")
    rows = [json.loads(one) for one in out if one.startswith("{") and one[-1] == "}"]
    failed = [
        text for text, one in zip(texts, started, strict=True) if one.returncode > 0
    ]
    waited = f"ranks {late} had not ended after {limit_s:.0f} s" if late else ""
    return Ended(rows, _ours(texts), problem_of(rows, failed, waited))


def problem_of(
    rows: Sequence[Mapping[str, Any]], failed: Sequence[Sequence[str]], waited: str
) -> str:
    """Return why a job did not end well, empty if it did.

    `failed` has what ranks said that ended with a failure, `waited` who had not ended.
    """
    if failed:
        told = (line for text in failed for line in reversed(text) if line.strip())
        return next(told, "a rank ended early")
    done = any("done" in row for row in rows)
    return waited or ("" if done else "rank 0 did not come to its end")


def _await(started: list[subprocess.Popen[bytes]], limit_s: float) -> list[int]:
    """Wait until all have ended or one has failed; return who has not in time."""

    def well(process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            raise RuntimeError

    pool = ThreadPoolExecutor(len(started))
    waits = [pool.submit(well, process) for process in started]
    done, _ = wait(waits, limit_s, FIRST_EXCEPTION)
    failed = any(one.exception() for one in done)
    # A waiting thread ends with its process, which the caller kills.
    pool.shutdown(wait=False)
    return [] if failed else [i for i, one in enumerate(waits) if not one.done()]


def _start(
    lab: labs.Lab,
    rank: int,
    words: list[str],
    environment: Mapping[str, str],
    on_mps: bool,
    folder: str,
) -> subprocess.Popen[bytes]:
    host = lab.hosts[rank].name
    own = {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(lab.hosts)),
        "CLOUDCOLL_HOST": host,
        "NCCL_HOSTID": host,
        "PYTHONPATH": f"{Path(cloudcoll.__file__).parents[1]}:{HERE.parent}/byte_audit",
    }
    # Only here: what enters the lab is not to preload anything.
    settings = [f"{k}={v}" for k, v in {**OF_ALL, **environment, **own}.items()]
    command = ["env", *settings, *words]
    argv, env = labs.exec_argv(lab, host, shared_memory(command) if on_mps else command)
    with (
        open(Path(folder) / f"{rank}.out", "wb") as out,
        open(Path(folder) / f"{rank}.err", "wb") as err,
    ):
        return subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )


def _read(folder: str, rank: int, kind: str) -> list[str]:
    return (Path(folder) / f"{rank}.{kind}").read_text(errors="replace").splitlines()


def _ours(texts: list[list[str]]) -> list[str]:
    """Return lines of ours and warnings of NCCL, each once."""
    told = (line for text in texts for line in text)
    return list(
        dict.fromkeys(one for one in told if "cloudcoll" in one or "WARN" in one)
    )
