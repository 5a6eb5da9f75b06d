"""Start a job as typed and reorder inside its MPI library.

For jobs whose ranks nobody can move: a rankfile, a site's wrapper, a fixed
number per pod. The library beside this module (C; README.md is its contract)
is preloaded into every rank. It never renumbers the ranks: collectives whose
result does not depend on the order of ranks run on a communicator in the order
of the map.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch.deepspeed import DeepSpeed
from cloudcoll.launch.horovod import Horovod
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest
from cloudcoll.rankmap import RankMap

LIBRARY = Path(__file__).with_name("preload")
"""Built from the C files beside it when the package is installed."""

ORDER = "CLOUDCOLL_SHIM_ORDER"
"""The variable with the order of hosts."""

# The launcher itself is not preloaded, and what it forwards does not matter.
# The last but one command finds a program in the working directory.
BECOME = (
    f'export {ORDER}="$1" LD_PRELOAD="$0${{LD_PRELOAD:+:$LD_PRELOAD}}"; shift; '
    'command -v "$1" >/dev/null || set -- "./$@"; exec "$@"'
)


def plan_shim(request: LaunchRequest, rank_map: RankMap) -> LaunchPlan:
    """Return the plan that reorders inside the ranks of `request`.

    Parameters
    ----------
    request : LaunchRequest
        Its command line stays, but for a line of shell before the program.
    rank_map : RankMap
        Of the hosts of the request. Its order is the one given: then nothing
        is preloaded.

    Raises
    ------
    LaunchError
        The map is of other hosts, the launcher starts more than the program on
        its command line, or the library is not installed.
    """
    _check_library()
    if isinstance(request.launcher, (DeepSpeed, Horovod)):
        raise LaunchError(f"{request.launcher.title} starts no MPI program as typed")
    if missing := sorted(set(request.used) - set(rank_map.order)):
        raise LaunchError(
            f"the rank map does not name {', '.join(missing[:3])} of {request.source}: "
            "solve again"
        )
    if rank_map.order == request.used:
        return LaunchPlan(request.argv, request=request)
    addresses = {host.name: host.address for host in request.hosts}
    inside = ("sh", "-c", BECOME, str(LIBRARY), order_text(rank_map, addresses))
    options = request.argv[: request.start]
    return LaunchPlan((*options, *request.led_by(inside)), request=request)


def plan_shim_unread(
    argv: tuple[str, ...], rank_map: RankMap, env: Mapping[str, str]
) -> LaunchPlan:
    """Return the plan for a command line that nobody here understands.

    It only sets variables: whether these reach the ranks is the launcher's.

    Raises
    ------
    LaunchError
        The library is not installed.
    """
    _check_library()
    before = env.get("LD_PRELOAD", "")
    preload = f"{LIBRARY}:{before}" if before else str(LIBRARY)
    plan = LaunchPlan(
        argv, env={ORDER: order_text(rank_map, {}), "LD_PRELOAD": preload}
    )
    return replace(plan, caution="the order is in force if variables reach the ranks")


def order_text(rank_map: RankMap, addresses: Mapping[str, str | None]) -> str:
    """Return the order as the library reads it: ``HOST [ADDRESS],...``."""
    pairs = ((name, addresses.get(name)) for name in rank_map.order)
    return ",".join(
        f"{name} {address}" if address and address != name else name
        for name, address in pairs
    )


def _check_library() -> None:
    if not os.access(LIBRARY, os.R_OK):
        raise LaunchError(f"{LIBRARY} is missing: install the package again")
