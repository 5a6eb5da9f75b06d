"""``deepspeed``, which starts node after node in the order of its hostfile.

By ``deepspeed/launcher/runner.py`` and ``multinode_runner.py`` of 0.17 the hostfile
becomes an ordered mapping, ``--include`` and ``--exclude`` choose from it in its
order, and pdsh numbers nodes as ``-w`` lists them; with 0.19 and pdsh it was tried.
``--launcher openmpi``, ``mvapich`` and ``slurm`` hand the file to an mpirun or srun
that is free to sort it: they are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import CommandLine, Syntax
from cloudcoll.launch.hosts import ListLauncher
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

DEFAULT_HOSTFILE = "/job/hostfile"

ORDERLY = frozenset({"pdsh", "mpich", "impi"})
"""Values of ``--launcher`` that keep the order of the hostfile."""

SYNTAX = Syntax.of(
    """
    bind-cores-to-rank elastic-training force-multi module no-local-rank no-python
    no-ssh no-ssh-check save-pid
    """,
    """
    account autotuning bind-core-list comment enable-each-rank-log exclude hostfile
    include launcher launcher-args master-addr master-port max-elastic-nodes
    min-elastic-nodes node-rank num-gpus num-nodes ssh-port venv-script
    """,
    "H hostfile i include e exclude num-accelerators num-gpus",
)


@dataclass(frozen=True)
class DeepSpeed(ListLauncher):
    """The launcher of DeepSpeed."""

    programs = frozenset({"deepspeed"})
    title = "deepspeed"
    mechanism = "its hostfile, in order; not read back"
    source = "pip install deepspeed"
    package = "deepspeed"

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        line = CommandLine.read(argv, 1, SYNTAX)
        given = line.values
        for name in ("no-ssh", "elastic-training", "autotuning"):
            if name in given:
                raise LaunchError(f"deepspeed --{name} has no fixed order of hosts")
        if (launcher := given.get("launcher", "pdsh").lower()) not in ORDERLY:
            raise LaunchError(f"deepspeed --launcher {launcher} may sort the hosts")
        source = given.get("hostfile", DEFAULT_HOSTFILE)
        hosts = self.read_hostfile(source, "deepspeed")
        counts = _chosen(hosts, given)
        nodes = _number(given, "num-nodes", len(hosts))
        gpus = _number(given, "num-gpus", max(counts, default=0))
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=line.end,
            hosts=hosts,
            source=source,
            counts=tuple(
                min(count, gpus) if at < nodes else 0 for at, count in enumerate(counts)
            ),
            read_back=False,
            library="nccl",
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan with a hostfile in the new order.

        Hosts that get no rank stand last: ``--exclude`` wants to find them.
        """
        line = CommandLine.read(request.argv, 1, SYNTAX)
        order = dict.fromkeys((*placement, *(host.name for host in request.hosts)))
        slots = {host.name: host.slots for host in request.hosts}
        path = str(directory / "hostfile")
        options = [f"--hostfile={path}"]
        if line.values.get("master-addr") and placement[0] != request.used[0]:
            options.append(f"--master_addr={placement[0]}")
        return LaunchPlan(
            argv=line.replaced(*options),
            files={path: "".join(f"{name} slots={slots[name]}\n" for name in order)},
        )


def _chosen(hosts: Sequence[Host], given: Mapping[str, str]) -> list[int]:
    """Return how many slots of each host ``--include`` and ``--exclude`` leave."""
    slots = {host.name: set(range(host.slots or 0)) for host in hosts}
    named = given.get("include") or given.get("exclude")
    if not named:
        return [len(left) for left in slots.values()]
    chosen: dict[str, set[int]] = {name: set() for name in slots}
    for node in named.split("@"):
        name, colon, numbers = node.partition(":")
        if name not in slots:
            raise LaunchError(f"host {name!r} of {named!r} is not in the hostfile")
        picked = {int(n) for n in numbers.split(",") if n.isdecimal()}
        chosen[name] |= picked if colon else slots[name]
    if given.get("include"):
        return [len(chosen[name]) for name in slots]
    return [len(slots[name] - chosen[name]) for name in slots]


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, "-1")
    if text == "-1":
        return default
    if not text.isdecimal() or int(text) < 1:
        raise LaunchError(f"--{name} {text!r} is not a number, 1 or more")
    return int(text)
