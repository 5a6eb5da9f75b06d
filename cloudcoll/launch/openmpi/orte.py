"""Open MPI 4.1: ``mpirun`` with the ORTE runtime.

What was found out by trying versions 4.1.4 and 4.1.8:

- Ranks follow a hostfile's lines, except that the machine of ``mpirun`` itself
  comes first; inside a Slurm allocation the lines' order is ignored.
- The sequential mapper and rankfiles are obeyed everywhere. The first never
  binds, the second always does: ``--bind-to none`` is ignored and ``slot=*``
  puts all ranks of a host on core 0.
- The sequential mapper fails with several programs (``:``).

So ranks that are not to be bound go in by a sequential host list, and ranks
that fill cores one by one by a rankfile. Any other binding depends on the
hosts' sockets: there the hostfile is reordered, and mapping and binding stay
``mpirun``'s own.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import allocation, hostfile
from cloudcoll.launch.command_line import Option, last_values, where, without
from cloudcoll.launch.openmpi import mpirun
from cloudcoll.launch.openmpi.mapping import count_ranks, read_mapping
from cloudcoll.launch.openmpi.options import ORTE, ORTE_MCA
from cloudcoll.launch.own_host import own_places
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version
from cloudcoll.launch.programs import read_parts

_UNSUPPORTED = """
app cf cpu-list cpu-set cpus-per-proc cpus-per-rank dvm hnp nolocal novm
npersocket oversubscribe personality ppr rankfile use-hwthread-cpus
"""

UNSUPPORTED = frozenset(_UNSUPPORTED.split())
"""Options that decide placement in a way that whole hosts can't be moved in."""

MCA_PREFIXES = ("OMPI_MCA_",)
DECIDING = ("rmaps", "hwloc_base", "orte_rankfile", "orte_set_default_slots", "ras")
RANK = "OMPI_COMM_WORLD_RANK"

MAPPINGS = {"map-by", "N", "npernode", "pernode", "bynode", "byslot", "bycore"}
"""Without one of these, ranks are dealt over a host's sockets."""

SEQUENTIAL, RANKFILE, HOSTFILE = "seq", "rankfile", "hostfile"
"""Ways to put an order in force."""


@dataclass(frozen=True)
class OpenMpi4:
    """``mpirun`` and ``mpiexec`` of Open MPI 4.1.

    Attributes
    ----------
    read_hostfile : callable
        See `cloudcoll.launch.hostfile`.
    own_name : callable
        Returns the name of this machine.
    """

    read_hostfile: hostfile.Reader = hostfile.read
    own_name: Callable[[], str] = socket.gethostname

    title = "Open MPI 4.1 (mpirun, mpiexec)"
    mechanism = (
        "a rankfile, sequential host list or hostfile, whichever keeps the "
        "binding; each rank reports"
    )
    source = "apt install openmpi-bin"
    package = ""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is an ``mpirun`` of version 4.1."""
        if os.path.basename(argv[0]) not in mpirun.PROGRAMS:
            return False
        return (mpirun.release(version()) or ())[:2] == (4, 1)

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        Raises
        ------
        CloudcollError
            As for Open MPI 5; and inside a Slurm allocation a host list, or a
            binding that no rankfile can express.
        """
        parts = read_parts(argv, ORTE)
        options = parts[0].options
        every = [option for part in parts for option in part.options]
        mpirun.refuse(options, UNSUPPORTED)
        settings = mpirun.parameters(every, env, MCA_PREFIXES, ORTE_MCA, DECIDING)
        in_slurm = bool(allocation.refuse_others(env, "Slurm"))
        way = _way(options, in_slurm, several=len(parts) > 1)
        hosts, source = self._hosts(options, settings, env if in_slurm else {})
        mapping = read_mapping(options)
        counts = count_ranks(hosts, source, mpirun.asked_ranks(parts, mapping), mapping)
        release = ".".join(map(str, mpirun.release(version()) or ()))
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=parts[0].options_end,
            programs=tuple(part.program for part in parts),
            hosts=hosts,
            source=source,
            counts=counts,
            cyclic=mapping.cyclic and max(counts) > 1,
            placement_options=where(
                options, mpirun.LISTS if way == HOSTFILE else mpirun.PLACEMENT
            ),
            binding=way,
            library=f"openmpi@{release}",
            settings=settings,
        )

    def _hosts(
        self,
        options: Sequence[Option],
        settings: Mapping[str, str],
        slurm: Mapping[str, str],
    ) -> tuple[tuple[Host, ...], str]:
        """Return the hosts in the order that ``mpirun`` would use."""
        if slurm:
            if last_values(options, "host", "hostfile", "machinefile"):
                raise LaunchError("a host list inside a Slurm allocation: leave it out")
            hosts = allocation.slurm_hosts(slurm, "SLURM_TASKS_PER_NODE")
            return hosts, "the Slurm allocation"
        default = settings.get("orte_default_hostfile", "")
        hosts, source = mpirun.given_hosts(options, default, self.read_hostfile)
        own = self._own(hosts)
        return tuple(sorted(hosts, key=lambda host: host.name not in own)), source

    def _own(self, hosts: Sequence[Host]) -> set[str]:
        """Return the names in the list that mean the machine of ``mpirun``.

        Raises
        ------
        LaunchError
            There could be several: ``mpirun`` would cut off their domains.
        """
        names = [host.name for host in hosts]
        addresses = {host.name: host.address for host in hosts}
        found = [names[i] for i in own_places(names, self.own_name(), addresses)]
        if len(found) > 1:
            raise LaunchError(
                f"the machine of mpirun, {self.own_name()}, could be "
                f"{' or '.join(found)} of the host list: Open MPI 4.1 would not tell "
                "them apart"
            )
        return {*found, "localhost", "127.0.0.1"}

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``.

        Raises
        ------
        LaunchError
            It would move the machine of ``mpirun`` behind another host.
        """
        path = str(directory / "hosts")
        way = request.binding
        if way == SEQUENTIAL:
            text = "".join(f"{host}\n" for host in placement)
            added = ["--hostfile", path, "--mca", "rmaps", "seq", "--bind-to", "none"]
        elif way == RANKFILE:
            text, added = _rankfile(placement), ["--rankfile", path]
        else:
            text, added = self._hostfile(request, placement), ["--hostfile", path]
        kept = without(request.argv, request.placement_options, request.start)
        program, job = kept[0], (*kept[1:], *added, *request.reporting(RANK))
        return LaunchPlan(
            argv=(program, *job),
            maps_only=(program, mpirun.MAPS_ONLY, *job),
            files={path: text},
            inbox=request.inbox,
            caution=mpirun.caution(request.settings),
        )

    def _hostfile(self, request: LaunchRequest, placement: Sequence[str]) -> str:
        names = self._own(request.hosts)
        own = next((host.name for host in request.hosts if host.name in names), "")
        if own not in {"", placement[0]}:
            raise LaunchError(
                f"Open MPI 4.1 starts its first rank on {own}, where mpirun runs: add "
                "--bind-to none, or start it elsewhere"
            )
        return mpirun.hostfile_text(request, placement)


def _way(options: Sequence[Option], in_slurm: bool, several: bool) -> str:
    """Return how an order can go in without changing what ranks are bound to.

    Raises
    ------
    LaunchError
        It can't.
    """
    names = {"bind-to-core": "core", "bind-to-socket": "socket"}
    short = [names[option.name] for option in options if option.name in names]
    binding = (last_values(options, "bind-to") or short or [""])[0].lower()
    # The sequential mapper takes one program alone.
    if binding == "none" and not several:
        return SEQUENTIAL
    mapped = any(option.name in MAPPINGS for option in options)
    filled = mapped and read_mapping(options).policy in {"slot", "node", "core", "ppr"}
    if binding == "core" and filled:
        return RANKFILE
    if in_slurm:
        raise LaunchError(
            "inside a Slurm allocation Open MPI 4.1 keeps another order only with "
            "--bind-to none, or with --map-by slot --bind-to core"
        )
    return HOSTFILE


def _rankfile(placement: Sequence[str]) -> str:
    """Return a rankfile that gives each host's ranks its cores one by one."""
    used: Counter[str] = Counter()
    lines = []
    for rank, host in enumerate(placement):
        lines.append(f"rank {rank}={host} slot={used[host]}\n")
        used[host] += 1
    return "".join(lines)
