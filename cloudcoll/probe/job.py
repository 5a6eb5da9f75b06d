"""One job of the user's own launcher, with a rank of ours on each host.

`Mpi` measures the path that MPI takes, whatever card that is; `Torch` that of
torch.distributed: Gloo, or NCCL where there are GPUs.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudcoll.errors import CloudcollError, UnusableError
from cloudcoll.hosts import Host
from cloudcoll.measured.snapshot import NetworkSnapshot
from cloudcoll.probe import frames
from cloudcoll.probe.frames import FrameError
from cloudcoll.probe.plan import ProbePlan, plan_probes
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import KEPT, read_row, spooling
from cloudcoll.probe.transport import Conduct, Transport, origin
from cloudcoll.programs import rank_program, run_job

START_SECONDS = 300.0
"""How long a launcher may take to start the job, its queue included."""
SILENCE_SECONDS = 25.0
"""How much longer than planned a round may take; later than its ranks give up."""
SPARE = 4.0
"""How many times longer than planned the rounds may take: ranks wait for each
other, and a pair for its last message."""
ON_WAY = 4
"""Messages that a rank has on their way under load: one alone would wait for its
receiver between any two."""

CORES_PER_PAIR = 2
"""Ranks that wait for a message may keep a core busy."""


class JobTransport(Transport):
    """A transport that is a whole job: all ranks measure with one library.

    The `launcher`'s command line, without a program, starts at least one rank on each
    host. Every rank imports `module`.
    """

    module: str
    options = frozenset({"launcher", "resume"})

    def __init__(self, launcher: Sequence[str]) -> None:
        self.launcher = tuple(launcher)

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Transport:
        """Return the one of the words behind ``--``."""
        return cls(given.get("launcher", ()))

    @abstractmethod
    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program."""

    def available(self) -> str | None:
        """Return None, or that the library is not there."""
        if importlib.util.find_spec(self.module):
            return None
        return f"{self.module} is not installed here: it is in cloudcoll[{self.name}]"

    def plan(
        self, hosts: tuple[Host, ...], mode: str, seed: int, cores: int | None
    ) -> ProbePlan:
        """Return the plan; a job is asked once, before the groups are known."""
        at_once = max(1, cores // CORES_PER_PAIR) if cores else None
        plan = plan_probes(
            hosts, mode=mode, seed=seed, concurrency=at_once, duplex=False
        )
        return replace(plan, streams=ON_WAY, sure_s=0.0, uplink_s=0.0, uplink_flows=0)

    def describe(self, hosts: tuple[Host, ...], conduct: Conduct) -> list[str]:
        """Return the job's command line, and what would make it better."""
        lines = [f"started by: {shlex.join(self.command(hosts, conduct))}"]
        if Path(self.launcher[0]).name == "srun" and not any(
            word.startswith("--ntasks-per-node") for word in self.launcher
        ):
            lines.append(
                "srun --ntasks-per-node=1 starts one task on each host: more only wait"
            )
        return lines

    def measure(
        self, hosts: tuple[Host, ...], plan: ProbePlan, conduct: Conduct
    ) -> NetworkSnapshot:
        """Measure, and keep each row in the spool as it comes: see `Transport.measure`.

        A host without a rank is among the `failed` ones. If the job fails, what it
        reported is in the spool.
        """
        begin = time.monotonic()
        metadata = {**origin(plan, self.name), "troubles": []}
        if len(hosts) == 1:
            return NetworkSnapshot(hosts, metadata=metadata)
        if reason := self.available():
            raise UnusableError(f"cannot probe via {self.name}: {reason}")
        results = Results(plan, conduct.progress)
        with spooling(conduct.spool, hosts, plan, results, conduct.resume):
            try:
                if results.missing:
                    metadata |= self._run(hosts, plan, conduct, results)
            except (CloudcollError, FrameError) as error:
                done, _ = results.count
                what = "" if done else f"nothing was measured via {self.name}: "
                raise UnusableError(f"{what}{error}") from error
        metadata["seconds"] = time.monotonic() - begin
        metadata["sent_bytes"] = results.sent
        return _snapshot(hosts, results, metadata)

    def _run(
        self,
        hosts: tuple[Host, ...],
        plan: ProbePlan,
        conduct: Conduct,
        results: Results,
    ) -> dict[str, Any]:
        """Let a job measure what is missing; return what is worth knowing of it."""
        request = {
            "hosts": [[host.name, host.address] for host in hosts],
            "plan": plan.parameters(),
            "missing": results.missing,
        }
        seconds = START_SECONDS + SPARE * plan.seconds
        silence = SILENCE_SECONDS + plan.rtt_s + plan.load_s
        argv = self.command(hosts, conduct)
        with run_job(argv, request, conduct.env, seconds, silence) as lines:
            facts, present = _greeting(lines, hosts)
            for line in lines:
                results.add(*read_row(line, (*KEPT, "sent")))
        if results.missing_between(present):
            # mpirun may end in 0 even when a host went down under it.
            raise CloudcollError(f"{argv[0]} ended before the probe did")
        return facts


def _greeting(
    lines: Iterator[bytes], hosts: Sequence[Host]
) -> tuple[dict[str, Any], set[int]]:
    """Return facts about the job, and the positions of hosts that have ranks."""
    value = frames.parse(next(lines, b"{}"))
    names, positions = value.get("names"), value.get("hosts")
    if not _are(names, str) or not _are(positions, int):
        raise CloudcollError("the job did not start our program (see its words above)")
    present = set(positions) & set(range(len(hosts)))
    if len(present) < 2:
        listed = ", ".join(host.name for host in hosts[:3])
        # Ranks that know nothing of each other each begin as the only one.
        alone = "; one rank: is srun's --mpi right?" if len(names) == 1 else ""
        raise CloudcollError(
            f"ranks ran on {', '.join(sorted(set(names))[:3])}: two hosts of the list "
            f"are needed ({listed}{', ...' if len(hosts) > 3 else ''}){alone}"
        )
    return {"library": str(value.get("library"))[:80], "ranks": len(names)}, present


def _are(values: object, kind: type) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


def _snapshot(
    hosts: tuple[Host, ...], results: Results, metadata: dict[str, Any]
) -> NetworkSnapshot:
    silent = set(range(len(hosts))) - results.heard
    return NetworkSnapshot(
        hosts,
        rtt=results.rtt(silent),
        flows=results.flows(silent),
        failed={hosts[i].name: "no rank of the job ran there" for i in sorted(silent)},
        metadata=metadata,
    )


class Mpi(JobTransport):
    """A job of any MPI's launcher; needs mpi4py on every host."""

    name = "mpi"
    module = "mpi4py"

    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program."""
        return (*self.launcher, sys.executable, *rank_program("mpi_probe"))


PORT = "29500"
"""Where ranks meet, unless ``MASTER_PORT`` says otherwise; torch's own choice."""
TORCHRUN = frozenset({"torchrun", "torch.distributed.run"})


class Torch(JobTransport):
    """A job of torchrun, or of a launcher that starts one rank on each host.

    torchrun tells its ranks where to meet. Those of mpirun and srun meet at
    the first host of the list, or at ``MASTER_ADDR``.
    """

    name = "torch"
    module = "torch"
    starters = TORCHRUN
    options = JobTransport.options | {"backend"}

    def command(self, hosts: Sequence[Host], conduct: Conduct) -> tuple[str, ...]:
        """Return the launcher's command line completed by our program.

        torchrun takes a script and starts Python itself.
        """
        address = conduct.env.get("MASTER_ADDR", hosts[0].address)
        port = conduct.env.get("MASTER_PORT", PORT)
        ours = (*rank_program("torch_probe"), f"{address}:{port}")
        ours = (*ours, conduct.backend or "auto")
        if any(Path(word).name in TORCHRUN for word in self.launcher):
            return (*self.launcher, *ours)
        return (*self.launcher, sys.executable, *ours)
