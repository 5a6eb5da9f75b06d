"""What both generations of Open MPI's ``mpirun`` have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument
from cloudcoll.launch import hostfile
from cloudcoll.launch.command_line import Option, last_values
from cloudcoll.launch.openmpi.mapping import Mapping as Layout
from cloudcoll.launch.plan import LaunchRequest
from cloudcoll.launch.programs import Part, total_ranks

PROGRAMS = frozenset({"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi"})
"""Names of the launcher; others share some of them."""

_PLACEMENT = """
bind-to bind-to-core bind-to-socket bycore bynode byslot default-hostfile host
hostfile machinefile map-by N nooversubscribe npernode pernode rank-by
"""

PLACEMENT = frozenset(_PLACEMENT.split())
"""Options that say which ranks go where."""

LISTS = frozenset({"host", "hostfile", "machinefile", "default-hostfile"})
"""Those of them that name hosts."""

MAPS_ONLY = "--do-not-launch"
"""Places ranks, with the same errors, and starts none (tried with 4.1.8, 5.0.11)."""

UCC = (
    "UCC before 1.3 puts hosts into an order of its own for allgather and allreduce: "
    "set UCC_TL_UCP_RANKS_REORDERING=n on all hosts"
)


def release(text: str) -> tuple[int, ...] | None:
    """Return the version of Open MPI in an answer to ``--version``."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


def given_hosts(
    options: Sequence[Option], default: str, read: hostfile.Reader
) -> tuple[tuple[Host, ...], str]:
    """Return the hosts in the order given and where they come from.

    Parameters
    ----------
    options : sequence of Option
    default : str
        Path of the hostfile that is used where no list is given; or empty.
    read : callable
        See `cloudcoll.launch.hostfile`.

    Raises
    ------
    CloudcollError
        There is no list, more than one, or one with login names.
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
        hosts, source = read(path, "hostfile"), path
    for host in hosts:
        if host.user:
            raise LaunchError(
                f"{source} gives a login name for {host.name}: put it into the ssh "
                "configuration instead"
            )
    return hosts, source


def refuse(options: Sequence[Option], unsupported: frozenset[str]) -> None:
    """Raise if whole hosts can't be moved with these options."""
    for option in options:
        if option.name in unsupported:
            raise LaunchError(f"--{option.name} decides the placement")
    placement = [option.name for option in options if option.name in PLACEMENT | {"np"}]
    for name in placement:
        if placement.count(name) > 1:
            raise LaunchError(f"--{name} is given twice")


def parameters(
    options: Iterable[Option],
    env: Mapping[str, str],
    prefixes: Sequence[str],
    names: frozenset[str],
    deciding: tuple[str, ...],
) -> dict[str, str]:
    """Return the MCA parameters in force: command line over environment.

    Parameters
    ----------
    options : iterable of Option
    env : mapping of str to str
    prefixes : sequence of str
        Of variables that set parameters.
    names : frozenset of str
        Options that set parameters.
    deciding : tuple of str
        How the names of parameters begin that decide the placement.

    Raises
    ------
    LaunchError
        One of them decides the placement.
    """
    found = {
        name.removeprefix(prefix): value
        for prefix in prefixes
        for name, value in env.items()
        if name.startswith(prefix)
    }
    for option in options:
        if option.name in names:
            found[option.values[0]] = option.values[1]
    for name in found:
        if name.startswith(deciding):
            raise LaunchError(f"the MCA parameter {name} decides the placement")
    return found


def asked_ranks(parts: Sequence[Part], layout: Layout) -> int | None:
    """Return the number of ranks of all programs, None to fill every slot.

    Raises
    ------
    LaunchError
        It can't be told, or `layout` starts anew with each of several programs.
    """
    if len(parts) > 1 and (layout.policy not in {"core", "slot"} or layout.cyclic):
        raise LaunchError(
            "ranks of several programs (':') are kept only where they fill the slots "
            "of one host after the other (--map-by slot)"
        )
    return total_ranks(parts, "np", PLACEMENT)


def caution(settings: Mapping[str, str]) -> str:
    """Return what can undo an order where no rank shows it, empty if nothing.

    Which UCC it is can't be seen from here; read from ``ucc_sbgp.c`` (openucx/ucc
    pull requests 698 and 904), not tried.
    """
    off = {"", "0", "f", "false", "n", "no"}
    return "" if settings.get("coll_ucc_enable", "").lower() in off else UCC


def hostfile_text(request: LaunchRequest, placement: Sequence[str]) -> str:
    """Return the hostfile whose slots, filled in turn, give `placement`.

    A host that is only half full has to stay so before the last one, too.
    """
    slots = {host.name: host.slots for host in request.hosts}
    ranks = Counter(placement)
    return "".join(
        f"{name} slots={ranks[name] or slots[name] or 1}\n"
        for name in dict.fromkeys((*placement, *slots))
    )
