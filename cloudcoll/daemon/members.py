"""Which hosts there are: a host list that is read again when it changes, or Slurm."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from cloudcoll import units
from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host, parse_host_argument, read_hosts

ANSWER_S = 20.0
"""Slurm has this long to answer."""
DOWN = frozenset({"down", "drained", "fail", "unknown", "reboot", "powered_down"})
"""States of nodes that are no members (``sinfo -o %T``, its flags left off)."""

SELDOM_S = 15.0
"""Between two questions to Slurm."""

Answer = TypeVar("Answer")
Source = Callable[[], tuple[Host, ...]]
"""Returns the hosts of this moment."""


class Seldom(Generic[Answer]):
    """A question that is asked every `SELDOM_S` at most; the last answer stands.

    Slurm's controller has other things to do.
    """

    def __init__(
        self, ask: Callable[[], Answer], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._due = -math.inf

    def __call__(self) -> Answer:
        """Return what is known; what `ask` raises is not kept."""
        if self._clock() >= self._due:
            self._last = self._ask()
            self._due = self._clock() + SELDOM_S
        return self._last


class Hostfile:
    """The hosts of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._hosts: tuple[Host, ...] = ()

    def __call__(self) -> tuple[Host, ...]:
        """Return the hosts, read again if the file is not the one last seen."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror}") from error
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._seen:
            self._hosts = read_hosts(self._path)
            self._seen = stamp
        return self._hosts


def slurm_nodes(partition: str) -> tuple[Host, ...]:
    """Return the nodes of a partition that are up, with their CPUs as slots."""
    rows = _ask("sinfo", "-h", "-N", "-p", partition, "-o", "%N %c %T")
    hosts: dict[str, Host] = {}
    for row in rows:
        words = row.split()
        if len(words) != 3 or not re.fullmatch("[0-9]{1,9}", words[1]):
            raise UnusableError(f"sinfo says {row!r}: name, CPUs and state expected")
        name, cpus, state = words
        if state.rstrip("*~#!%$@^-+").lower() not in DOWN and "*" not in state:
            try:
                hosts[name] = Host(name, slots=int(cpus))
            except UsageError as error:
                raise UnusableError(f"sinfo says {row!r}: {error}") from None
    return tuple(hosts.values())


def slurm_busy() -> frozenset[str]:
    """Return the nodes on which Slurm runs jobs."""
    rows = _ask("squeue", "-h", "-t", "R,CG,CF", "-o", "%N")
    names = (host.name for row in rows if row for host in parse_host_argument(row))
    return frozenset(names)


def _ask(*argv: str) -> list[str]:
    if shutil.which(argv[0]) is None:
        raise UnusableError(f"no {argv[0]} here: --slurm needs Slurm's commands")
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ANSWER_S, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise UnusableError(
            f"{argv[0]} did not answer in {units.seconds(ANSWER_S)}"
        ) from error
    except (OSError, subprocess.CalledProcessError) as error:
        words = str(getattr(error, "stderr", None) or error).strip()
        raise UnusableError(f"{argv[0]} failed: {words}") from error
    return [line.strip() for line in done.stdout.splitlines()]
