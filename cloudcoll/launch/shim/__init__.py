"""Start a job as typed and reorder inside MPI or NCCL, or count MPI's calls.

For jobs whose ranks nobody can move: a rankfile, a site's wrapper, a fixed
number per pod. A library (C; the contracts are in docs/no-prefix.md) is preloaded
into every rank. It never renumbers the ranks: collectives whose
result does not depend on the order of ranks run on a communicator in the order
of the map.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.files import is_stream
from cloudcoll.launch import parse_launch
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.own_host import HOST_VARIABLE, is_own_address, own_host
from cloudcoll.launch.plan import HostLauncher, LaunchPlan, LaunchRequest
from cloudcoll.launch.roll import variable
from cloudcoll.launch.seal import PUBLIC
from cloudcoll.launch.wrapper import Inbox
from cloudcoll.libraries import LIBRARIES, library_key
from cloudcoll.rankmap import RankMap

LIBRARY = Path(__file__).with_name("preload")
"""For MPI; built from the C files beside it when the package is installed."""

NCCL = Path(__file__).parent / "nccl" / "preload"
"""The same for NCCL."""

TUNER = Path(__file__).parent / "nccl" / "tuner" / "plugin"
"""What NCCL loads to ask for algorithms."""

RANKS = Path(__file__).parent / "environment" / "preload"
"""The same for ranks in the environment."""

RANKS_TABLE = "CLOUDCOLL_RANKS"
"""The variable with the path of its table, see `cloudcoll.launch.environment`."""

ORDER = "CLOUDCOLL_SHIM_ORDER"
"""The variable with the order of hosts."""

AS_GIVEN = "-"
"""The order of hosts that nothing is reordered for."""

PROFILE = "CLOUDCOLL_PROFILE"
"""The variable with the path of the profile to write."""

ROLL = "CLOUDCOLL_SHIM_ROLL"
"""The variable that says where ranks call: see `cloudcoll.launch.roll`."""

ROLL_KEY = "CLOUDCOLL_SHIM_KEY"
"""How the name ends of the variable by which calls are sealed."""

# The launcher itself is not preloaded, and what it forwards does not matter. A
# host without the library starts the program alone. What is set already stays:
# an order stands in front of what only counts. The last but one command finds a
# program in the working directory.
BECOME = (
    '[ ! -r "$0" ] || export LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}"; '
    'while [ "$1" != -- ]; do '
    'eval ": \\"\\${${1%%=*}=\\${1#*=}}\\"; export ${1%%=*}"; shift; done; shift; '
    'command -v "$1" >/dev/null || set -- "./$@"; exec "$@"'
)


def shim_of(library: str) -> tuple[str, Path]:
    """Return what a shim reorders in, and its file, by whose collectives a job runs."""
    key = library_key(library)
    inside = LIBRARIES[key].inside if key in LIBRARIES else "MPI"
    return inside, NCCL if key == "nccl" else LIBRARY


def plan_shim(
    request: LaunchRequest, rank_map: RankMap, inbox: Inbox, shim: Path = LIBRARY
) -> LaunchPlan:
    """Return the plan that reorders inside the ranks of `request`.

    Parameters
    ----------
    request : LaunchRequest
        Its command line stays, but for a line of shell before the program.
    rank_map : RankMap
        Of the hosts of the request. Its order is the one given: then nothing
        is preloaded.
    inbox : Inbox
        Where the ranks call before any of them reorders.
    shim : Path
        The library to preload.

    Raises
    ------
    LaunchError
        The map is of other hosts, the launcher starts more than the program on
        its command line, or the library is not installed.
    """
    check_library(shim)
    check_launcher(request)
    if missing := sorted(set(request.used) - set(rank_map.order)):
        raise LaunchError(
            f"the rank map does not name {', '.join(missing[:3])} of {request.source}: "
            "solve again"
        )
    if rank_map.order == request.used and not rank_map.calls:
        return LaunchPlan(request.argv, request=request)
    addresses = {host.name: host.address for host in request.hosts}
    variables = {ORDER: _order_text(rank_map, addresses), ROLL: variable(inbox)}
    argv = _preloaded(request, variables, inbox, shim)
    return LaunchPlan(argv, request=request, roll=inbox)


def check_launcher(request: LaunchRequest) -> None:
    """Raise LaunchError if no line of shell can stand in front of the program.

    Or if the secret that ranks call by would be in a command line.
    """
    if isinstance(request.launcher, DeepSpeed) or request.shows_variables:
        raise LaunchError(f"{request.launcher.title} starts no program as typed")


def plan_shim_unread(
    argv: tuple[str, ...],
    rank_map: RankMap,
    env: Mapping[str, str],
    inbox: Inbox,
    shim: Path = LIBRARY,
) -> LaunchPlan:
    """Return the plan for a command line that stays, understood or not.

    It only sets variables: whether these reach the ranks is the launcher's.
    """
    variables = {ORDER: _order_text(rank_map, {}), ROLL: variable(inbox)}
    return _with_variables(argv, variables, env, inbox, shim)


def plan_here(
    launcher: HostLauncher,
    argv: Sequence[str],
    path: Path | None,
    env: Mapping[str, str],
) -> LaunchPlan:
    """Return the plan for what is started on every host, such as torchrun.

    The roll is called on the host of the job's store, at the UDP port of the same
    number: all hosts know both, and no other job has them. They share no secret, so
    that datagrams are sealed by what everybody knows.

    Parameters
    ----------
    argv : sequence of str
        The command line, which stays.
    path : Path or None
        Of the rank map; ``CLOUDCOLL_MAP`` by default.
    env : mapping of str to str
        The environment.

    Raises
    ------
    CloudcollError
        The library is not installed, or this host is not in the map. Then it
        starts without, and the others do not reorder.
    """
    host = own_host(path, env)
    store, port = launcher.store(argv, env)
    inbox = Inbox((_ipv4(store),), port, PUBLIC, variable="")
    plan = plan_shim_unread(tuple(argv), host.rank_map, env, inbox, NCCL)
    own = {HOST_VARIABLE: host.rank_map.order[host.position]}
    here = is_own_address(inbox.addresses[0])
    # What other hosts make of a name is theirs: only an address is the same for all.
    heard = inbox if store == inbox.addresses[0] else replace(inbox, addresses=("",))
    return replace(plan, env={**plan.env, **own}, roll=heard if here else None)


def plan_profile(
    argv: tuple[str, ...], env: Mapping[str, str], path: Path, inbox: Inbox
) -> LaunchPlan:
    """Return the plan that runs a command as typed and has its calls counted.

    Rank 0 writes the profile to `path`; ranks call at `inbox` before any counts.
    LaunchError where the library is not installed, or no profile can be there.
    """
    if is_stream(path):
        raise LaunchError(f"{path} is no file: rank 0 writes it on its own host")
    variables = {ORDER: AS_GIVEN, PROFILE: str(path.absolute()), ROLL: variable(inbox)}
    try:
        request = parse_launch(argv, env)
    except CloudcollError:
        return _with_variables(argv, variables, env, inbox, LIBRARY)
    check_launcher(request)
    check_library(LIBRARY)
    inbox = replace(inbox, variable=request.prefix + ROLL_KEY)
    variables[ROLL] = variable(inbox)
    return LaunchPlan(_preloaded(request, variables, inbox, LIBRARY), roll=inbox)


def setting(
    variables: Mapping[str, str], shell: Sequence[str], shim: Path | str = ""
) -> tuple[str, ...]:
    """Return the words in front of a program that set its variables.

    What is set already stays; without a library nothing is preloaded.
    """
    settings = [f"{name}={value}" for name, value in variables.items()]
    return (*shell, BECOME, str(shim), *settings, "--")


def _preloaded(
    request: LaunchRequest, variables: Mapping[str, str], inbox: Inbox, shim: Path
) -> tuple[str, ...]:
    """Return the command line whose program has the library and variables."""
    inside = setting(variables, inbox.shell, shim)
    return request.handing_on(inbox).behind(inside).argv


def _with_variables(
    argv: tuple[str, ...],
    variables: Mapping[str, str],
    env: Mapping[str, str],
    inbox: Inbox,
    shim: Path,
) -> LaunchPlan:
    """Return the plan that sets them for all that the command starts."""
    check_library(shim)
    before = env.get("LD_PRELOAD", "")
    # What is set already stays.
    preload = f"{shim}:{before}" if before else str(shim)
    return LaunchPlan(argv, env={**variables, "LD_PRELOAD": preload}, roll=inbox)


def _order_text(rank_map: RankMap, addresses: Mapping[str, str | None]) -> str:
    """Return the orders as the library reads them: ``HOST [ADDRESS],...``.

    Each that is for some calls only follows ``@COLLECTIVE LEAST MOST``.
    """

    def words(order: Sequence[str]) -> list[str]:
        pairs = ((name, addresses.get(name)) for name in order)
        return [f"{n} {a}" if a and a != n else n for n, a in pairs]

    found = words(rank_map.order)
    for call in rank_map.calls:
        found += [f"@{call.collective} {call.least} {call.most}", *words(call.order)]
    return ",".join(found)


def check_library(shim: Path) -> None:
    """Raise LaunchError if a library to preload is not installed."""
    if not os.access(shim, os.R_OK):
        raise LaunchError(f"{shim} is missing: install the package again")


def _ipv4(name: str) -> str:
    """Return the address that ranks call, as they write it themselves."""
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise LaunchError(
            f"{name}, where the job's store is, has no IPv4 address here: ranks have "
            "nobody to tell that they have the library"
        ) from error
    return str(found[0][4][0])
