"""Slurm: ``srun`` inside an allocation.

A file named by ``SLURM_HOSTFILE``, one node for each task, makes ``srun`` lay
tasks out in that order, whatever ``-m`` says (tried with 22.05.8); nothing
else does: nodes are sorted everywhere. What stays sorted is ``SLURM_NODEID``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import (
    Option,
    Syntax,
    deal,
    last_values,
    names_in,
    program_start,
    rank_count,
    scan_options,
    where,
    without,
)
from cloudcoll.launch.cray import CRAY, reordered
from cloudcoll.launch.hosts import slurm_hosts
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

SYNTAX = Syntax.of(
    """
    compress contiguous disable-status exact exclusive help hold immediate
    kill-on-bad-exit label multi-prog no-allocate no-kill overcommit overlap
    oversubscribe preserve-env propagate pty quiet quit-on-interrupt reboot
    resv-ports send-libs spread-job unbuffered usage use-min-nodes verbose version
    """,
    """
    account acctg-freq bb bbf bcast bcast-exclude begin cluster-constraint clusters
    comment constraint container core-spec cores-per-socket cpu-bind cpu-freq
    cpus-per-gpu cpus-per-task deadline delay-boot dependency chdir distribution
    epilog error export extra-node-info gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags het-group hint input jobid
    job-name licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu
    mem-per-gpu mincpus mpi nice nodefile nodelist nodes ntasks ntasks-per-core
    ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres output
    partition power priority profile prolog qos relative reservation signal
    slurmd-debug sockets-per-node switches task-epilog task-prolog tasks-per-node
    thread-spec threads threads-per-core time time-min tmp tres-bind tres-per-task
    wait wckey exclude
    """,
    """
    A account b begin B extra-node-info c cpus-per-task C constraint d dependency
    D chdir e error F nodefile G gpus i input J job-name L licenses M clusters
    m distribution n ntasks N nodes o output p partition q qos r relative
    S core-spec t time T threads w nodelist W wait x exclude
    E preserve-env h help H hold I immediate k no-kill K kill-on-bad-exit l label
    O overcommit Q quiet s oversubscribe u unbuffered v verbose V version
    X disable-status Z no-allocate
    """,
    attached=True,
)
"""What ``srun --help`` of 22.05 lists, and later versions added."""

UNSUPPORTED = names_in(
    """
    exclude het-group jobid multi-prog no-allocate nodefile nodelist ntasks-per-core
    ntasks-per-gpu ntasks-per-socket ntasks-per-tres overcommit relative spread-job
    use-min-nodes
    """
)
"""Options that decide placement in a way that whole hosts can't be moved in."""

PLACEMENT = frozenset({"distribution", "ntasks-per-node", "tasks-per-node"})
"""Options that a plan replaces: the host list says it all."""

FIXED_PMI2 = (24, 5)
"""First version that tells PMI2 which tasks of such a layout share a node."""

PMI2 = (
    "Slurm {version} tells PMI2 that every rank of such an order is alone on its node: "
    "use --mpi=pmix if ranks of a node share memory"
)
RANK = "SLURM_PROCID"

PREFIX = "SLURM_"
"""Variables that begin so reach the tasks whatever ``--export`` says (srun(1))."""

HIDDEN = ("SLURM_HOSTFILE", "SLURM_DISTRIBUTION")
"""Ranks inherit these from srun, and an srun of theirs would obey them."""


@dataclass(frozen=True)
class Srun:
    """``srun`` inside the allocation of ``sbatch`` or ``salloc``."""

    title = "Slurm (srun)"
    mechanism = (
        "SLURM_HOSTFILE and --distribution=arbitrary, MPICH_RANK_REORDER_FILE "
        "for Cray MPICH; each rank reports"
    )
    source = "apt install slurm-client"
    package = ""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is an ``srun``."""
        return os.path.basename(argv[0]) == "srun"

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        options, start = scan_options(argv, SYNTAX)
        for option in options:
            if option.name in UNSUPPORTED:
                raise LaunchError(f"--{option.name} decides the placement")
        if "SLURM_HOSTFILE" in env:
            raise LaunchError("SLURM_HOSTFILE is set already: it decides the placement")
        if "MPICH_RANK_REORDER_METHOD" in env:
            raise LaunchError("MPICH_RANK_REORDER_METHOD is set already")
        hosts = slurm_hosts(env, "SLURM_JOB_CPUS_PER_NODE")
        _same_nodes(options, env, hosts)
        counts = _counts(hosts, options, env)
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=program_start(argv, start),
            hosts=hosts,
            source="the Slurm allocation",
            counts=counts,
            cyclic=_cyclic(options, env) and max(counts) > 1,
            placement_options=where(options, PLACEMENT),
            settings={name: env[name] for name in (CRAY,) if name in env},
            binding=_caution(options, env, version()) if max(counts) > 1 else "",
            prefix=PREFIX,
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        if CRAY in request.settings:
            # Its PMI takes no other layout than one host after the other.
            return reordered(request, placement, directory)
        path = str(directory / "hosts")
        kept = without(request.argv, request.placement_options, request.start)
        tasks = ("--distribution=arbitrary", f"--ntasks={len(placement)}")
        return LaunchPlan(
            argv=(kept[0], *tasks, *kept[1:], *request.reporting(RANK, HIDDEN)),
            files={path: "".join(f"{host}\n" for host in placement)},
            env={"SLURM_HOSTFILE": path},
            inbox=request.inbox,
            caution=request.binding,
        )


def _asked(
    options: Sequence[Option], env: Mapping[str, str], name: str, *variables: str
) -> int | None:
    """Return the number of an option, else of the job's own variable."""
    number = rank_count((o for o in options if o.name == name), name)
    for variable in variables:
        text = env.get(variable, "")
        if number is None and text.isdecimal():
            number = int(text)
    return number


def _same_nodes(
    options: Sequence[Option], env: Mapping[str, str], hosts: Sequence[Host]
) -> None:
    for nodes in last_values(options, "nodes"):
        if nodes != str(len(hosts)):
            raise LaunchError(
                f"--nodes={nodes} of the {len(hosts)} nodes of the allocation: leave "
                "it out"
            )


def _counts(
    hosts: Sequence[Host], options: Sequence[Option], env: Mapping[str, str]
) -> tuple[int, ...]:
    """Return how many tasks Slurm starts on each node.

    They are dealt over the nodes in turn, as far as there are CPUs, even where
    ranks are then numbered node by node (``_task_layout_block`` of Slurm).
    """
    each = _asked(options, env, "ntasks-per-node", "SLURM_NTASKS_PER_NODE")
    each = each or _asked(options, env, "tasks-per-node")
    total = _asked(options, env, "ntasks", "SLURM_NTASKS", "SLURM_NPROCS")
    cpus = _asked(options, env, "cpus-per-task", "SLURM_CPUS_PER_TASK") or 1
    if total is None:
        total = (each or 1) * len(hosts)
    room = [min((host.slots or 1) // cpus, each or total) for host in hosts]
    if not len(hosts) <= total <= sum(room):
        raise LaunchError(
            f"{total} tasks for {len(hosts)} nodes with room for {sum(room)}"
        )
    return deal(room, total)


def _cyclic(options: Sequence[Option], env: Mapping[str, str]) -> bool:
    named = last_values(options, "distribution") or [env.get("SLURM_DISTRIBUTION", "")]
    first = re.split("[:,]", named[-1].lower())[0]
    if first not in {"", "*", "block", "cyclic"}:
        raise LaunchError(f"--distribution={named[-1]} decides the placement")
    return first == "cyclic"


def _caution(options: Sequence[Option], env: Mapping[str, str], version: str) -> str:
    """Return a warning where this version misleads PMI2."""
    found = re.search(r"(\d+)\.(\d+)\.\S+", version)
    plugin = (last_values(options, "mpi") or [env.get("SLURM_MPI_TYPE", "")])[-1]
    if not found or (int(found[1]), int(found[2])) >= FIXED_PMI2:
        return ""
    return "" if plugin.startswith("pmix") else PMI2.format(version=found[0])
