"""Start a job as typed and reorder inside NCCL (C; README.md is its contract)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from cloudcoll.errors import CloudcollError
from cloudcoll.launch.own_host import HOST_VARIABLE, own_host
from cloudcoll.launch.plan import LaunchPlan, LaunchRequest
from cloudcoll.launch.shim import (
    BECOME,
    ORDER,
    check_library,
    check_request,
    order_text,
)
from cloudcoll.rankmap import RankMap

LIBRARY = Path(__file__).with_name("preload")
"""Built from the C files beside it when the package is installed."""

RANKS = "CLOUDCOLL_SHIM_RANKS"
"""The variable with the place of each rank's host: ``PLACE*COUNT,...``."""


def plan_ranks(request: LaunchRequest, rank_map: RankMap) -> LaunchPlan:
    """Return the plan that reorders inside the NCCL of ranks that MPI starts.

    The launcher's own placement goes with it, so that roots can be translated.

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
    check_library(LIBRARY)
    check_request(request, rank_map)
    if rank_map.order == request.used:
        return LaunchPlan(request.argv, request=request)
    addresses = {host.name: host.address for host in request.hosts}
    hosts = groupby(rank_map.order.index(name) for name in request.place(request.used))
    inside = (
        *("sh", "-c", BECOME, str(LIBRARY)),
        f"{ORDER}={order_text(rank_map, addresses)}",
        f"{RANKS}={','.join(f'{place}*{len(list(same))}' for place, same in hosts)}",
        "--",
    )
    argv = (*request.argv[: request.start], *request.led_by(inside))
    return LaunchPlan(argv, request=request)


def plan_here(
    argv: Sequence[str], path: Path | None, env: Mapping[str, str]
) -> LaunchPlan:
    """Return the plan for what is started on every host, such as torchrun.

    A host without the library would hang the job when it makes its first
    communicator, so what is wrong with the map leaves it preloaded: without an
    order it keeps all hosts from reordering.

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
    LaunchError
        The library is not installed.
    """
    check_library(LIBRARY)
    before = env.get("LD_PRELOAD", "")
    preload = f"{LIBRARY}:{before}" if before else str(LIBRARY)
    order, name, caution = "", env.get(HOST_VARIABLE, ""), ""
    try:
        host = own_host(path, env)
        name = host.rank_map.order[host.position]
        order = order_text(host.rank_map, {})
    except CloudcollError as error:
        caution = f"{error}; NCCL keeps the order given"
    variables = {"LD_PRELOAD": preload, ORDER: order, HOST_VARIABLE: name}
    return LaunchPlan(tuple(argv), env=variables, caution=caution)
