"""Hosts on each of which we start an agent, one by one."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence

from cloudcoll.fabric.infer import infer_fabric
from cloudcoll.hosts import Host
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.runner import run_probe
from cloudcoll.probe.transport import Conduct
from cloudcoll.snapshot import NetworkSnapshot


class Shell(ABC):
    """A transport that can run a program on a host: what `run_probe` needs."""

    name: str
    options = frozenset({"force"})
    starters: frozenset[str] = frozenset()
    shares_cores = False

    @abstractmethod
    def command(self, host: Host, argv: Sequence[str]) -> list[str]:
        """Return the local command line that runs `argv` on `host`."""

    @abstractmethod
    def available(self) -> str | None:
        """Return None, or why this transport cannot work here."""

    def plan(
        self, hosts: tuple[Host, ...], mode: str, seed: int, cores: int | None
    ) -> ProbePlan:
        """Return the plan, with no more pairs at once than `cores`."""
        return plan_probes(hosts, mode=mode, seed=seed, concurrency=cores)

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return how the first host's agent would be started."""
        words = self.command(hosts[0], ["python3", "..."])
        return [f"started by: {shlex.join(words)}"]

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Measure as `run_probe` does, uplinks of the groups found included."""
        return run_probe(
            hosts,
            plan,
            self,
            progress=conduct.progress,
            force=conduct.force,
            infer=infer_fabric,
        )
