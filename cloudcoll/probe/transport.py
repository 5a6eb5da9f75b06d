"""What a transport is: a way to measure the network between hosts."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import cloudcoll
from cloudcoll.files import lab_origin
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.network.tree import Fabric
from cloudcoll.probe.agents import Start
from cloudcoll.probe.plan import ProbePlan
from cloudcoll.probe.results import Progress

Inference = Callable[[NetworkSnapshot], Fabric]


@dataclass(frozen=True)
class Conduct:
    """How a plan is carried out; each transport looks at what its `options` name.

    Attributes
    ----------
    force : bool
        Probe even where another probe is running.
    resume : bool
        Measure only what `spool` lacks.
    spool : Path, optional
        Keeps what was measured, until the caller has stored the snapshot and
        removes it; nothing does if not given.
    backend : str
        What carries torch's messages; empty for the best there is.
    env : mapping
        Environment of a launcher.
    progress : callable, optional
        Called with meetings reported and meetings planned.
    infer : callable, optional
        Finds the groups in what was measured so far; `groups_found` if not given.
    """

    force: bool = False
    resume: bool = False
    spool: Path | None = None
    backend: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    progress: Progress | None = None
    infer: Inference | None = None


class Transport(Protocol):
    """A way to measure the network between hosts.

    Attributes
    ----------
    name : str
        Key in `cloudcoll.probe.TRANSPORTS`.
    options : set of str
        Options of ``cloudcoll probe`` that mean something here: ``rsh``,
        ``lab`` and ``launcher`` say what it is made from and where hosts are
        found that nobody named, others are fields of `Conduct`.
    starters : set of str
        Programs that a launcher's words may end in: they start ours in turn.
    shares_cores : bool
        Whether all hosts live on this machine: few pairs can then be measured
        at the same time without measuring the machine's scheduler.
    """

    name: str
    options: frozenset[str]
    starters: frozenset[str] = frozenset()
    shares_cores: bool = False

    @abstractmethod
    def available(self) -> str | None:
        """Return None, or why this transport cannot work here."""

    @abstractmethod
    def plan(
        self, hosts: tuple[Host, ...], mode: str, seed: int, cores: int | None
    ) -> ProbePlan:
        """Return the plan; `cores` is how many all hosts share, if they do."""

    @abstractmethod
    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return lines for a reader: what would be started, and advice."""

    @abstractmethod
    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Carry the plan out; the snapshot has no fabric.

        UnusableError if it is not `available`, or fewer than two hosts were measured.
        """


def origin(plan: ProbePlan, name: str) -> dict[str, Any]:
    """Return what a snapshot says of how transport `name` measured it."""
    return {
        "version": cloudcoll.__version__,
        "transport": name,
        "mode": plan.mode,
        "seed": plan.seed,
        "concurrency": plan.concurrency,
        **lab_origin(),
    }


class RemoteShell(Protocol):
    """Starts an agent on a host, with its stdin and stdout joined to ours."""

    name: str

    def available(self) -> str | None:
        """Return None, or why it cannot work here."""
        ...

    def starts(
        self, hosts: tuple[Host, ...]
    ) -> AbstractContextManager[list[tuple[str, Start]]]:
        """Return each host's name and what starts its agent, until the context ends."""
        ...
