"""MPICH and what is made of it: MVAPICH, Intel MPI.

All but MVAPICH 2 start by ``mpiexec`` with the Hydra process manager.

Hydra takes hosts in the order of its machine file, ``host:ranks`` a line, and
numbers ranks in it; what was found out by trying 4.0.2, 4.3.2 and 5.0.2, and
Intel MPI 2021.18:

- ``-ppn`` overrides the counts of MPICH's ``-f``; Intel MPI's ``-f`` ignores
  them, its ``-machinefile`` does not.
- All variables reach the ranks, in no command line, unless options say which.
- Under Slurm Hydra starts its proxies by ``srun``, which sorts the nodes: the
  order is lost without a word, but not with ``-launcher ssh``, nor with the
  ``-rankmap`` of version 5, which earlier ones accept and ignore.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, natural_key, parse_host_argument
from cloudcoll.launch.command_line import (
    Option,
    Part,
    Syntax,
    fill,
    last_values,
    names_in,
    program_start,
    rank_count,
    read_parts,
    scan_options,
    total_ranks,
    where,
    without,
)
from cloudcoll.launch.hosts import ListLauncher, refuse_others, slurm_hosts
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

PROGRAMS = names_in(
    "mpiexec mpirun mpiexec.hydra mpirun.hydra mpiexec.mpich mpirun.mpich"
)
"""Names of the launcher; others share some of them."""

SYNTAX = Syntax.of(
    """
    aps disable-auto-cleanup disable-hostname-propagation disable-x enable-x envall
    envnone genvall genvnone help hybrid-hosts info l mps nolocal pmi-port
    prepend-rank prepend-timestamp print-all-exitcodes print-rank-map profile prot
    silent-abort skip-launch-node verbose version
    """,
    """
    bind-to configfile cpu-bind demux envlist errfile-pattern f genvlist gpus-per-proc
    grr gtool gtoolfile host hosts hosts-group iface launcher launcher-exec localhost
    machinefile map-by membind memory-alloc-kinds n nameserver order-nodes
    outfile-pattern ppn prepend-pattern rankmap rmk rr s topolib tune usize wdir
    """,
    """
    np n v verbose h help wd wdir perhost ppn hostfile f bootstrap launcher
    machine machinefile bootstrap-exec launcher-exec hostlist hosts dir wdir
    """,
    pairs="env genv",
)
"""What ``mpiexec --help`` of the versions above lists."""

PLACEMENT = frozenset({"f", "hosts", "machinefile", "ppn"})
"""Options that a plan replaces."""

UNSUPPORTED = names_in(
    """
    configfile grr host hosts-group nolocal order-nodes rankmap rr skip-launch-node
    """
)
"""Options that decide placement in a way that whole hosts can't be moved in."""

NO_VARIABLES = frozenset({"envnone", "genvnone"})
LISTED = frozenset({"envlist", "genvlist"})
"""Options by which ranks get no variables of the command's own, or only some."""


RANK = "PMI_RANK"
BY_SRUN = "srun"
"""What starts the proxies where the order has to survive Slurm."""

SSH = "Slurm sorts the hosts of this mpiexec: it starts the job by ssh instead"
MAPPED = 5
"""First version of MPICH with a ``-rankmap`` that works."""


@dataclass(frozen=True)
class Hydra(ListLauncher):
    """``mpiexec`` of MPICH, and of MVAPICH from version 3 on."""

    programs = PROGRAMS
    title = "MPICH (mpiexec, mpirun)"
    mechanism = (
        "a machine file with counts (-f), under Slurm -rankmap or ssh; each "
        "rank reports"
    )
    source = "pip install mpich"
    says: ClassVar[str] = "HYDRA build details"
    host_file: ClassVar[str] = "f"
    tells: ClassVar[tuple[str, ...]] = ("MPIR_CVAR_",)
    host_variables: ClassVar[tuple[str, ...]] = ("HYDRA_HOST_FILE",)
    launcher_variables: ClassVar[tuple[str, ...]] = (
        *("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"),
    )

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is such a Hydra, by how its version begins."""
        ours = super().recognises(argv, version)
        return ours and version().startswith(self.says)

    def library(self, version: str) -> str:
        """Return whose collectives the jobs run, from the answer to --version."""
        found = re.search(r"Version:\s+(\d+(?:\.\d+)*)", version)
        ours = found and "mvapich" not in version.lower()
        return f"mpich@{found[1]}" if found and ours else ""

    def counted(self, hosts: tuple[Host, ...], name: str) -> tuple[Host, ...]:
        """Return `hosts` of option `name` with what the launcher puts on each."""
        return tuple(Host(h.name, h.address, h.slots or 1, h.user) for h in hosts)

    def per_host(self, options: Sequence[Option], env: Mapping[str, str]) -> int | None:
        """Return the ranks for every host, None where its list says it."""
        return rank_count((o for o in options if o.name == "ppn"), "ppn")

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        parts = read_parts(argv, SYNTAX)
        options = parts[0].options
        in_slurm = bool(refuse_others(env, "Slurm"))
        for option in options:
            if option.name in UNSUPPORTED:
                raise LaunchError(f"-{option.name} decides the placement")
        hosts, source = self._hosts(options, env, in_slurm)
        by_srun = in_slurm and not self._other_launcher(options, env)
        if by_srun:
            # Its proxies are numbered in this order, whatever the list says.
            hosts = tuple(sorted(hosts, key=lambda host: natural_key(host.name)))
        ranks = total_ranks(parts, "n", PLACEMENT | UNSUPPORTED)
        counts = fill_hosts(hosts, source, ranks)
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=parts[0].options_end,
            programs=tuple(part.program for part in parts),
            hosts=hosts,
            source=source,
            counts=counts,
            placement_options=where(
                options, PLACEMENT | ({"launcher"} if by_srun else set())
            ),
            binding=BY_SRUN if by_srun else "",
            library=self.library(version()),
            withholding=_withholding(argv, parts),
            settings=_settings(options, env, self.tells),
        )

    def _other_launcher(self, options: Sequence[Option], env: Mapping[str, str]) -> str:
        """Return what starts the proxies in place of ``srun``, empty if nothing."""
        named = last_values(options, "launcher")
        named += [env[name] for name in self.launcher_variables if name in env]
        return named[0] if named and named[0] not in {"slurm", "srun"} else ""

    def _hosts(
        self, options: Sequence[Option], env: Mapping[str, str], in_slurm: bool
    ) -> tuple[tuple[Host, ...], str]:
        """Return the hosts with the ranks each takes, and where they come from."""
        given = [o for o in options if o.name in PLACEMENT and o.name != "ppn"]
        default = [env[name] for name in self.host_variables if name in env]
        if len(given) > 1:
            raise LaunchError("more than one host list is given: give one")
        if given and given[0].name == "hosts":
            text = given[0].values[0]
            hosts = self.counted(parse_host_argument(text), "hosts")
            source = f"-hosts {text}"
        elif given or default:
            source = given[0].values[0] if given else default[0]
            name = given[0].name if given else "f"
            hosts = self.counted(self.read_hostfile(source, "mpich"), name)
        elif in_slurm:
            source = "the Slurm allocation"
            hosts = slurm_hosts(env, "SLURM_TASKS_PER_NODE")
        else:
            raise LaunchError(f"no host list is given (-{self.host_file} or -hosts)")
        each = self.per_host(options, env)
        for host in hosts:
            if host.user or ":" in host.name:
                raise LaunchError(
                    f"{source}: {host.user}@{host.name} can't be written as host:ranks"
                )
        return tuple(Host(h.name, slots=each or h.slots) for h in hosts), source

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path = str(directory / "hosts")
        by_srun = request.binding == BY_SRUN
        added: tuple[str, ...] = (f"-{self.host_file}", path)
        files = {path: machinefile(placement)}
        kept = without(request.argv, request.placement_options, request.start)
        if by_srun and self._mapped(request.library):
            nodes = {host.name: str(node) for node, host in enumerate(request.hosts)}
            added = ("-rankmap", ",".join(nodes[host] for host in placement))
            kept, files = request.argv[: request.start], {}
        elif by_srun:
            added = (*added, "-launcher", "ssh")
        return LaunchPlan(
            argv=(kept[0], *added, *kept[1:], *request.reporting(RANK)),
            files=files,
            inbox=request.inbox,
            caution=SSH if "ssh" in added else "",
        )

    def _mapped(self, library: str) -> bool:
        found = re.match(r"mpich@(\d+)", library)
        return found is not None and int(found[1]) >= MAPPED


def fill_hosts(
    hosts: Sequence[Host], source: str, ranks: int | None
) -> tuple[int, ...]:
    """Return how many ranks each host gets: one host is filled after the other.

    No `ranks` fill every place. LaunchError, which names `source`, where the list
    leaves the places open, or there are too few.
    """
    for host in hosts:
        if host.slots is None:
            raise LaunchError(f"{source} gives no ranks for {host.name}: add -ppn N")
    room = [host.slots or 0 for host in hosts]
    total = sum(room) if ranks is None else ranks
    if total > sum(room):
        raise LaunchError(f"{total} ranks for the {sum(room)} places of {source}")
    return fill(room, total)


def machinefile(placement: Sequence[str]) -> str:
    """Return a host file whose lines give `placement`: ``host:ranks``."""
    counts = Counter(placement).items()
    return "".join(f"{host}:{count}\n" for host, count in counts)


def _withholding(argv: Sequence[str], parts: Sequence[Part]) -> dict[int, str]:
    """Return what keeps variables from ranks: `LaunchRequest.withholding`."""
    every = [option for part in parts for option in part.options]
    none = {o.start: f"-{o.name[:-4]}list=" for o in every if o.name in NO_VARIABLES}
    return none | {o.end - 1: f"{argv[o.end - 1]}," for o in every if o.name in LISTED}


def _settings(
    options: Sequence[Option], env: Mapping[str, str], begin: tuple[str, ...]
) -> dict[str, str]:
    """Return what MPI is told: its variables, the command line's over others."""
    pairs = {o.values[0]: o.values[1] for o in options if o.name in {"env", "genv"}}
    return {k: v for k, v in {**env, **pairs}.items() if k.startswith(begin)}


@dataclass(frozen=True)
class IntelMpi(Hydra):
    """``mpiexec`` and ``mpirun`` of Intel MPI."""

    title = "Intel MPI (mpiexec, mpirun)"
    mechanism = "a machine file (-machinefile), under Slurm with ssh; each rank reports"
    source = "pip install impi-rt"
    says: ClassVar[str] = "Intel(R) MPI Library"
    host_file: ClassVar[str] = "machinefile"
    tells: ClassVar[tuple[str, ...]] = ("MPIR_CVAR_", "I_MPI_ADJUST_")
    host_variables: ClassVar[tuple[str, ...]] = (
        "I_MPI_HYDRA_HOST_FILE",
        "HYDRA_HOST_FILE",
    )
    launcher_variables: ClassVar[tuple[str, ...]] = (
        *("I_MPI_HYDRA_BOOTSTRAP", "HYDRA_BOOTSTRAP", "HYDRA_LAUNCHER"),
    )

    def library(self, version: str) -> str:
        """Return that its rules are not known."""
        return ""

    def counted(self, hosts: tuple[Host, ...], name: str) -> tuple[Host, ...]:
        """Return `hosts`; only a machine file's counts are obeyed."""
        if name == "machinefile":
            return super().counted(hosts, name)
        return tuple(Host(h.name, h.address, None, h.user) for h in hosts)

    def per_host(self, options: Sequence[Option], env: Mapping[str, str]) -> int | None:
        """Return the ranks for every host, None where its list says it."""
        if any(option.name == "machinefile" for option in options):
            return None
        variable = env.get("I_MPI_PERHOST", "")
        each = super().per_host(options, env)
        return each or (int(variable) if variable.isdecimal() else None)


RSH_SYNTAX = Syntax.of(
    "debug export export-all fastssh help legacy rsh show ssh tv v xterm",
    "hostfile launcher np sg",
)
"""The options that leave ranks where the host file has them."""


@dataclass(frozen=True)
class MpirunRsh(ListLauncher):
    """``mpirun_rsh`` of MVAPICH 2, whose ranks follow the lines of its host file.

    Read from its user guide (2.3, "Run MPI applications using mpirun_rsh") and
    ``src/pm/mpirun/mpirun_params.c``; not tried here. What follows the options is
    put into double quotes on its way, so no line of shell can stand there: ranks do
    not report. With ``-export-all``, variables stand in the command lines of its ssh.
    """

    programs = frozenset({"mpirun_rsh"})
    title = "MVAPICH 2 (mpirun_rsh)"
    mechanism = "its host file (-hostfile), in order; not read back; not tried"
    source = "MVAPICH's own packages"

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for: see `Launcher.parse`."""
        options, start = scan_options(argv, RSH_SYNTAX)
        files = last_values(options, "hostfile")
        if not files:
            raise LaunchError("no host list is given (-hostfile)")
        ranks = rank_count(options, "np")
        if ranks is None:
            raise LaunchError("the number of ranks is not given (-np)")
        listed = self.read_hostfile(files[-1], "mpich")
        hosts = tuple(replace(host, slots=host.slots or 1) for host in listed)
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=program_start(argv, start),
            hosts=hosts,
            source=files[-1],
            counts=fill_hosts(hosts, files[-1], ranks),
            placement_options=where(options, {"hostfile"}),
            shows_variables=True,
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path = str(directory / "hosts")
        kept = without(request.argv, request.placement_options, request.start)
        return LaunchPlan(
            argv=(kept[0], "-hostfile", path, *kept[1:], *request.led_by(())),
            files={path: machinefile(placement)},
        )
