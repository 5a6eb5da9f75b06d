"""Open MPI 5: ``mpirun`` with the PRRTE runtime.

The order goes in as a sequential host list (``--map-by seq``, one line for
each rank): the order of a plain hostfile is not a promise of PRRTE's
(open-mpi/ompi#13199). What was found out by trying versions 5.0.8 to 5.0.11:

- Without ``--map-by``, ranks fill the slots of host after host and are bound
  to a core each. ``--map-by slot|node|ppr:N:node`` bind to a core up to two
  ranks, else to the NUMA node, and not at all on a host with more ranks than
  cores.
- ``seq`` fails on a host with more ranks than cores, unless the binding is
  ``none`` or, from 5.0.11 on, carries ``:if-supported``.
- ``--output-proctable=FILE`` lists (rank, host, program, pid) once all ranks
  are started, and prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument, read_hosts
from cloudcoll.launch.openmpi.mapping import count_ranks, read_binding, read_mapping
from cloudcoll.launch.openmpi.options import MCA, Option, scan_options
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, Version

_UNSUPPORTED = """
add-host add-hostfile app cpu-list cpu-set cpus-per-proc cpus-per-rank dvm
nolocal npersocket oversubscribe personality ppr pset rankfile use-hwthread-cpus
"""

UNSUPPORTED = frozenset(_UNSUPPORTED.split())
"""Options that decide placement in a way that whole hosts can't be moved in."""

_PLACEMENT = """
bind-to bind-to-core bind-to-socket bycore bynode byslot default-hostfile host
hostfile machinefile map-by N nooversubscribe npernode pernode rank-by
"""

PLACEMENT = frozenset(_PLACEMENT.split())
"""Options that a plan replaces."""

RESOURCE_MANAGERS = {
    "SLURM_JOB_ID": "Slurm",
    "SLURM_JOBID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "PE_HOSTFILE": "Grid Engine",
    "FLUX_JOB_ID": "Flux",
}

DEFAULT_HOSTFILE = "prte_default_hostfile"
MCA_PREFIXES = ("OMPI_MCA_", "PRTE_MCA_")
PLACEMENT_PARAMETERS = ("rmaps_", "hwloc_", "prte_set_default_slots", "ras_")

ROW = re.compile(r"\(rank, host, exe, pid\) = \((\d+), ([^,]+), .*, \d+\)")


@dataclass(frozen=True)
class OpenMpi:
    """``mpirun`` and ``mpiexec`` of Open MPI 5.

    Attributes
    ----------
    read_hostfile : callable
        Path -> hosts.
    """

    read_hostfile: Callable[[str], tuple[Host, ...]] = field(
        default_factory=lambda: read_hostfile
    )

    title = "Open MPI 5 (mpirun, mpiexec)"

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is a program of Open MPI's name."""
        return os.path.basename(argv[0]) in {"mpirun", "mpiexec"}

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        Raises
        ------
        CloudcollError
            Not Open MPI 5, inside a resource manager's allocation, several
            programs, a mapping that whole hosts can't be moved in, a bad
            hostfile: the message says which.
        """
        number = _version(version())
        for variable, manager in RESOURCE_MANAGERS.items():
            if variable in env:
                raise LaunchError(f"inside a {manager} allocation ({variable} is set)")
        options, start = scan_options(argv)
        _refuse(argv, options, start)
        parameters = _parameters(options, env)
        hosts, source = self._hosts(options, parameters)
        mapping = read_mapping(options)
        counts = count_ranks(hosts, source, _ranks(options), mapping)
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=start,
            hosts=hosts,
            source=source,
            counts=counts,
            cyclic=mapping.cyclic and max(counts) > 1,
            placement_options=tuple(
                (option.start, option.end)
                for option in options
                if option.name in PLACEMENT
            ),
            binding=read_binding(options, mapping, counts, number),
            read_back=all(option.name != "output-proctable" for option in options),
            library=f"openmpi@{'.'.join(map(str, number))}",
            settings=parameters,
        )

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        seq, table = str(directory / "hosts.seq"), str(directory / "ranks")
        argv, start = request.argv, request.start
        dropped = {i for a, b in request.placement_options for i in range(a, b)}
        kept = [argv[i] for i in range(start) if i not in dropped]
        added = ["--hostfile", seq, "--map-by", "seq", "--bind-to", request.binding]
        if request.read_back:
            added.append(f"--output-proctable={table}")
        return LaunchPlan(
            argv=(*kept, *added, *argv[start:]),
            files={seq: "".join(f"{host}\n" for host in placement)},
            placement=tuple(placement),
            table=table if request.read_back else "",
            request=request,
        )

    def read_table(self, text: str) -> dict[int, str]:
        """Return rank -> host from the text of ``--output-proctable``."""
        rows = (ROW.fullmatch(line) for line in text.splitlines())
        return {int(row[1]): row[2] for row in rows if row}

    def _hosts(
        self, options: Sequence[Option], parameters: Mapping[str, str]
    ) -> tuple[tuple[Host, ...], str]:
        """Return the hosts in the order given and where they come from."""
        files = _values(options, "hostfile", "machinefile", "default-hostfile")
        lists = _values(options, "host")
        if len(files) + len(lists) > 1:
            raise LaunchError("more than one host list is given: give one")
        if lists:
            hosts, source = parse_host_argument(lists[0]), f"--host {lists[0]}"
            # Here a name without a count stands for one slot.
            hosts = tuple(Host(h.name, h.address, h.slots or 1, h.user) for h in hosts)
        else:
            path = files[0] if files else parameters.get(DEFAULT_HOSTFILE, "")
            if not path:
                raise LaunchError("no host list is given (--hostfile or --host)")
            hosts, source = self.read_hostfile(path), path
        for host in hosts:
            if host.user:
                raise LaunchError(
                    f"{source} gives a login name for {host.name}: put it into the ssh "
                    "configuration instead"
                )
        return hosts, source


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Return the hosts of an Open MPI hostfile.

    Raises
    ------
    CloudcollError
        It does not parse, or is a pipe: reading would take it from ``mpirun``.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise LaunchError(f"{path} is not a regular file: give the hosts in one")
    return read_hosts(path, format="hostfile")


def _version(text: str) -> tuple[int, ...]:
    found = re.search(r"\(Open MPI\) (\d+)\.(\d+)\.(\d+)", text)
    if not found:
        first = text.strip().partition("\n")[0] or "no answer to --version"
        raise LaunchError(f"not Open MPI 5 but {first!r}")
    version = tuple(int(part) for part in found.groups())
    if version[0] != 5:
        raise LaunchError(
            f"Open MPI {found[1]}.{found[2]}: only version 5 is supported"
        )
    return version


def _refuse(argv: Sequence[str], options: Sequence[Option], start: int) -> None:
    """Raise if whole hosts can't be moved in this command line."""
    if start == len(argv):
        raise LaunchError("the command line names no program")
    if ":" in argv[start:]:
        raise LaunchError("several programs on one command line (':')")
    for option in options:
        if option.name in UNSUPPORTED:
            raise LaunchError(f"--{option.name} decides the placement")
    placement = [option.name for option in options if option.name in PLACEMENT | {"np"}]
    for name in placement:
        if placement.count(name) > 1:
            raise LaunchError(f"--{name} is given twice")


def _values(options: Iterable[Option], *names: str) -> list[str]:
    return [option.values[-1] for option in options if option.name in names]


def _parameters(options: Iterable[Option], env: Mapping[str, str]) -> dict[str, str]:
    """Return the MCA parameters in force: command line over environment.

    Raises
    ------
    LaunchError
        One of them decides the placement.
    """
    parameters = {
        name.removeprefix(prefix): value
        for prefix in MCA_PREFIXES
        for name, value in env.items()
        if name.startswith(prefix)
    }
    for option in options:
        if option.name in MCA:
            parameters[option.values[0]] = option.values[1]
    for name in parameters:
        if name.startswith(PLACEMENT_PARAMETERS):
            raise LaunchError(f"the MCA parameter {name} decides the placement")
    return parameters


def _ranks(options: Iterable[Option]) -> int | None:
    for text in _values(options, "np"):
        if not text.isdecimal() or int(text) < 1:
            raise LaunchError(f"-n {text!r} is not a number of ranks")
        return int(text)
    return None
