"""What both generations of Open MPI's ``mpirun`` are told in the same way."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host, parse_host_argument, read_hosts
from cloudcoll.launch.words import Option, last_values, program_start

PROGRAMS = frozenset({"mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.openmpi"})
"""Names of the launcher; others share some of them."""

_PLACEMENT = """
bind-to bind-to-core bind-to-socket bycore bynode byslot default-hostfile host
hostfile machinefile map-by N nooversubscribe npernode pernode rank-by
"""

PLACEMENT = frozenset(_PLACEMENT.split())
"""Options that say which ranks go where."""

Reader = Callable[[str], tuple[Host, ...]]


def release(text: str) -> tuple[int, ...] | None:
    """Return the version of Open MPI in an answer to ``--version``."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in found.groups()) if found else None


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


def given_hosts(
    options: Sequence[Option], default: str, read: Reader
) -> tuple[tuple[Host, ...], str]:
    """Return the hosts in the order given and where they come from.

    Parameters
    ----------
    options : sequence of Option
    default : str
        Path of the hostfile that is used where no list is given; or empty.
    read : callable
        Path -> hosts.

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
        hosts, source = read(path), path
    for host in hosts:
        if host.user:
            raise LaunchError(
                f"{source} gives a login name for {host.name}: put it into the ssh "
                "configuration instead"
            )
    return hosts, source


def refuse(
    argv: Sequence[str],
    options: Sequence[Option],
    start: int,
    unsupported: frozenset[str],
) -> None:
    """Raise if whole hosts can't be moved in this command line."""
    if ":" in argv[program_start(argv, start) :]:
        raise LaunchError("several programs on one command line (':')")
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


def placement_ranges(options: Iterable[Option]) -> tuple[tuple[int, int], ...]:
    """Return where on the command line the placement is decided."""
    return tuple((o.start, o.end) for o in options if o.name in PLACEMENT)
