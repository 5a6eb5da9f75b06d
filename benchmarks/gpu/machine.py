"""What this machine has: driver, torch, lab, shims, MPS, and what is missing."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cloudcoll import lab as labs
from cloudcoll.errors import CloudcollError
from cloudcoll.lab.link import WIRE
from cloudcoll.launch.shim import NCCL, TUNER

MPS = "nvidia-cuda-mps-control"
DEADLINE_S = 60
ASKED = """
import json
found = {}
try:
    import torch
    found["torch"] = torch.__version__
    import torch.distributed as dist
    found["gloo"] = dist.is_available() and dist.is_gloo_available()
    found["nccl_built"] = dist.is_available() and dist.is_nccl_available()
    found["cuda"] = torch.version.cuda or ""
    found["gpus"] = torch.cuda.device_count()
    if found["gpus"] and found["nccl_built"]:
        found["gpu"] = torch.cuda.get_device_properties(0).name
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


def versions() -> dict[str, Any]:
    """Return what torch says of itself, and the driver's version, where there is one.

    In a process of its own, so that this one never holds the GPU.
    """
    asked = [sys.executable, "-c", ASKED]
    # torch may warn on stdout: the answer is the last line.
    found: dict[str, Any] = json.loads(_said(asked).splitlines()[-1])
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = _said(query).split() if shutil.which(query[0]) else []
    return {
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "driver": driver[0] if driver else "",
        **found,
    }


def commit() -> str:
    """Return the commit of this script, with a mark where files differ from it."""
    packed = Path(__file__).with_name("commit")
    if packed.exists():
        return packed.read_text().strip()
    here = str(packed.parent)
    words = ["git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12"]
    return _said(words).strip() if shutil.which("git") else ""


def missing(backend: str, found: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each thing without which nothing can be run.

    Parameters
    ----------
    backend : str
        ``nccl`` or ``gloo``.
    found : dict
        Of `versions`.
    """
    try:
        if labs.latency_backend() == "wire" and not os.access(WIRE, os.X_OK):
            yield f"{WIRE} is not built: install the wheel, or run 'make install'"
    except CloudcollError as error:
        yield str(error)
    if "torch" not in found:
        yield f"no torch in {sys.executable} ({found.get('error', 'it says nothing')})"
    elif not found.get("gloo"):
        yield f"torch {found['torch']} has no Gloo, which the ranks talk by"
    for path in (NCCL, TUNER):
        if not path.exists():
            yield f"{path} is not built: install the wheel, or run 'make install'"
    if backend != "nccl":
        return
    if not shutil.which("nvidia-smi"):
        yield "no NVIDIA driver: nvidia-smi is not on the PATH"
    elif not found["driver"]:
        yield "no NVIDIA driver: nvidia-smi names none"
    if "torch" in found:
        if not found.get("nccl_built"):
            yield f"torch {found['torch']} is built without NCCL: install one for CUDA"
        if not found.get("gpus"):
            yield f"torch {found['torch']} sees no GPU"


def without_mps() -> str:
    """Return why there can be no MPS, empty if it can be tried.

    Without it processes take turns on the GPU, milliseconds each: results are right,
    times of small calls are not the network's.
    """
    if shutil.which(MPS):
        return ""
    return f"no MPS: {MPS} is not on the PATH; ranks take turns on the GPU"


def shared_memory(words: list[str]) -> list[str]:
    """Return a command that sees the machine's /dev/shm, not its host's own.

    MPS and its clients meet there.
    """
    see = 'umount /dev/shm 2>/dev/null; exec "$@"'
    return ["unshare", "--mount", "sh", "-c", see, "sh", *words]


@contextlib.contextmanager
def mps(lab: labs.Lab, folder: Path) -> Iterator[dict[str, str]]:
    """Run MPS in a lab; yields what its clients have in their environment.

    It ends with the lab's processes, if not before. Nothing is yielded where it does
    not start, or no program can use the GPU by it.
    """
    # The last one may still be ending in its own.
    own = tempfile.mkdtemp(prefix="mps-", dir=folder)
    variables = {"CUDA_MPS_PIPE_DIRECTORY": own, "CUDA_MPS_LOG_DIRECTORY": own}
    trial = [sys.executable, "-c", "import torch; torch.zeros(1).cuda().item()"]
    first = lab.hosts[0].name
    usable = (
        not without_mps()
        and _inside(lab, labs.HEAD, [MPS, "-d"], variables)
        and _inside(lab, first, trial, variables)
    )
    try:
        yield variables if usable else {}
    finally:
        if not without_mps():
            _inside(lab, labs.HEAD, ["sh", "-c", f"echo quit | {MPS}"], variables)


def _inside(lab: labs.Lab, host: str, words: list[str], env: dict[str, str]) -> bool:
    """Return whether a command on a host of the lab ends well, and in time."""
    argv, given = labs.exec_argv(lab, host, shared_memory(words))
    try:
        done = subprocess.run(
            argv,
            env={**given, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _said(argv: list[str]) -> str:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
    )
    return done.stdout or "{}"
