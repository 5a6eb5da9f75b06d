"""Start a job as typed and reorder inside NCCL (C; README.md is its contract)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.launch.own_host import HOST_VARIABLE, own_host
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.launch.shim import ORDER, order_text

LIBRARY = Path(__file__).with_name("preload")
"""Built from the C files beside it when the package is installed."""


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
    if not LIBRARY.is_file():
        raise LaunchError(f"{LIBRARY} is missing: install the package again")
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
