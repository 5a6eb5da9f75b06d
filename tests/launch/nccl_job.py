"""Processes that pose as hosts and call the stand-in for NCCL."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cloudcoll.launch import choose_inbox, shim
from cloudcoll.launch.roll import calling_roll, variable

HERE = Path(__file__).parent
CHECKS = HERE / "nccl_checks.py"
DEADLINE_S = 120
CC = shutil.which("cc")
SHARED = ["-shared", "-fPIC", "-fvisibility=hidden"]


def build(target: Path, *arguments: str | Path) -> Path:
    """Compile what the tests load; return `target`."""
    assert CC
    flags = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run([CC, *flags, "-o", target, *arguments], check=True, timeout=120)
    return target


def build_standin(folder: Path, *flags: str) -> Path:
    """Compile the stand-in for NCCL, under the name that programs ask for."""
    sources = sorted((HERE / "standin").glob("*.c"))
    soname = "-Wl,-soname,libnccl.so.2"
    return build(folder / "libnccl.so.2", *SHARED, soname, *flags, *sources)


class Job:
    """Processes that pose as hosts, one rank on each, or several."""

    def __init__(self, library: Path, processes: int, local: int = 1) -> None:
        self.processes = processes
        self.facts = {
            "JOB": f"/standin-{uuid.uuid4().hex[:12]}",
            "LOCAL": str(local),
            "SIZE": str(processes * local),
            "STANDIN": str(library),
            "LD_PRELOAD": str(shim.NCCL),
        }

    def start(self, process: int, *names: str, **env: str) -> subprocess.Popen[str]:
        """Start one process; `names` are of checks, all of them by default."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("CLOUDCOLL")}
        first = str(process * int(self.facts["LOCAL"]))
        own = {"FIRST": first, "RANK": first, "CLOUDCOLL_HOST": f"h{process}"}
        return subprocess.Popen(
            [sys.executable, CHECKS, *names],
            env={**kept, **self.facts, **own, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start_all(self, *names: str, **env: str) -> list[subprocess.Popen[str]]:
        """Start all processes alike."""
        return [self.start(i, *names, **env) for i in range(self.processes)]


def ended(started: list[subprocess.Popen[str]]) -> list[str]:
    """Wait for the processes; return what each wrote to stderr. All succeed."""
    errors = []
    try:
        for process in started:
            out, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, out + err
            assert out.endswith(", 0 failed\n"), out + err
            errors.append(err)
    finally:
        for process in started:
            process.kill()
            process.wait()
    return errors


TURNED = {"CLOUDCOLL_SHIM_ORDER": "h1,h0", "PLACES": "[1, 0]"}


@contextlib.contextmanager
def counted(*told: str) -> Iterator[dict[str, str]]:
    """Call the roll, which has to tell one of these; yields the ranks' variables."""
    inbox = replace(choose_inbox(key=shim.ROLL_KEY), addresses=("127.0.0.1",))
    said = list[str]()
    with calling_roll(inbox, said.append) as outcome:
        yield {shim.ROLL: variable(inbox), inbox.variable: inbox.secret}
    assert said == []
    assert (outcome() or "") in (told or [""])
