"""``horovodrun``, whose ranks fill its hosts in the order they are listed.

Read from ``horovod/runner/launch.py`` and ``common/util/hosts.py`` of 0.28, not
tried here. With the MPI controller the list goes on to ``mpirun -H``, which Open
MPI 4.1 need not follow: ``--mpi`` is left alone, ``--gloo`` is a contract. The
words of the program are quoted on their way (``gloo_run.py``, ``get_run_command``).
All variables stand in the command lines of its ssh (``slot_info_to_command_fn``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument
from cloudcoll.launch.command_line import CommandLine, Syntax, fill
from cloudcoll.launch.hosts import ListLauncher
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

SYNTAX = Syntax.of(
    """
    autotune check-build disable-cache gloo hierarchical-allgather
    hierarchical-allreduce jsrun log-hide-timestamp log-with-timestamp
    log-without-timestamp mpi mpi-threads-disable no-autotune
    no-hierarchical-allgather no-hierarchical-allreduce no-log-hide-timestamp
    no-mpi-threads-disable no-stall-check no-timeline-mark-cycles
    prefix-output-with-timestamp stall-check tcp timeline-mark-cycles verbose
    """,
    """
    autotune-bayes-opt-max-samples autotune-gaussian-process-noise
    autotune-log-file autotune-steps-per-sample autotune-warmup-samples
    binding-args cache-capacity config-file cycle-time-ms elastic-timeout
    fusion-threshold-mb gloo-timeout-seconds host-discovery-script hostfile hosts
    log-level max-np min-np mpi-args network-interface network-interfaces np
    num-nccl-streams output-filename reset-limit slots-per-host ssh-identity-file
    ssh-port stall-check-shutdown-time-seconds stall-check-warning-time-seconds
    start-timeout thread-affinity timeline-filename
    """,
    """
    H hosts num-proc np p ssh-port i ssh-identity-file min-num-proc min-np
    max-num-proc max-np cb check-build prefix-timestamp prefix-output-with-timestamp
    """,
)

RANK = "HOROVOD_RANK"
"""Set for the ranks of the Gloo controller; those of the other do not report."""

ELSEWHERE = ("host-discovery-script", "min-np", "max-np", "jsrun", "mpi", "check-build")
"""Options with which the order is not horovodrun's, or not fixed."""


@dataclass(frozen=True)
class Horovod(ListLauncher):
    """The launcher of Horovod."""

    programs = frozenset({"horovodrun"})
    title = "horovodrun"
    mechanism = "its list of hosts, in order; each rank reports; not tried"
    source = "pip install horovod"
    package = "horovod"

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        line = CommandLine.read(argv, 1, SYNTAX)
        given = line.values
        for name in ELSEWHERE:
            if name in given:
                raise LaunchError(f"horovodrun --{name} settles the order elsewhere")
        if "hosts" in given:
            source = f"--hosts {given['hosts']}"
            hosts = parse_host_argument(given["hosts"])
        elif "hostfile" in given:
            source = given["hostfile"]
            hosts = self.read_hostfile(source, "horovod")
        else:
            raise LaunchError("no host list is given (--hosts or --hostfile)")
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=line.end,
            hosts=hosts,
            source=source,
            counts=_filled(hosts, given.get("np", "")),
            shows_variables=True,
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan with the hosts that get ranks, in the new order."""
        argv = (*request.argv[: request.start], *request.reporting(RANK))
        line = CommandLine.read(argv, 1, SYNTAX)
        listed = ",".join(f"{name}:{n}" for name, n in Counter(placement).items())
        return LaunchPlan(
            argv=line.replaced(f"--hosts={listed}", drop=["hostfile"]),
            inbox=request.inbox,
        )


def _filled(hosts: Sequence[Host], ranks: str) -> tuple[int, ...]:
    """Return the ranks of each host when slots are filled one after the other."""
    slots = [host.slots or 1 for host in hosts]
    if not ranks.isdecimal() or not 0 < int(ranks) <= sum(slots):
        raise LaunchError(f"-np {ranks!r} is not a number of ranks up to {sum(slots)}")
    return fill(slots, int(ranks))
