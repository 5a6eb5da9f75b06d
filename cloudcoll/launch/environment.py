"""Ranks that stand in the environment, rewritten to follow a rank map.

For ``cloudcoll exec``: pods and job arrays whose ranks nobody can choose with
a flag. The place of a host in the map gives its numbers, not what it had
before, so rewriting twice is the same as once.
"""

from __future__ import annotations

from collections.abc import Mapping

from cloudcoll.errors import LaunchError
from cloudcoll.launch.own_host import OwnHost
from cloudcoll.rankmap import RankMap

HOST_NUMBERS = ("NODE_RANK", "GROUP_RANK", "PET_NODE_RANK")
"""Variables with the number of a host, as torch, Lightning and Kubeflow set them."""

HOST_COUNTS = ("NNODES", "GROUP_WORLD_SIZE", "PET_NNODES")
"""Variables with the number of hosts."""

MASTERS = ("MASTER_ADDR", "PET_MASTER_ADDR")
"""Variables with the host of rank 0, where its store listens."""

TASK = "DMLC_TASK_ID"
"""By it XGBoost's tracker sorts, as text, where it is told to."""

MARK = "CLOUDCOLL_PLACED"
"""Set for a program whose environment was rewritten: not to be done again."""


def placed_environment(host: OwnHost, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set so that this host's ranks follow the map.

    ``RANK`` counts the ranks of the hosts before this one and adds
    ``LOCAL_RANK``, which stays, as ``LOCAL_WORLD_SIZE`` does; without a local
    rank it is the number of the host. ``MASTER_ADDR`` follows rank 0, unless
    the store belongs to torchrun's agent, which stays where it is.

    Parameters
    ----------
    env : mapping of str to str
        What the program would see.

    Raises
    ------
    CloudcollError
        There is no rank in `env`, it is of another job than the map, or this
        host is not in the map.
    """
    for name in HOST_COUNTS:
        if name in env:
            host.check_count(_number(env, name), name)
    placed = {name: str(host.position) for name in HOST_NUMBERS if name in env}
    if "RANK" in env:
        placed["RANK"] = str(_rank(host, env))
    if TASK in env:
        # Sorted as text, hence the zeros.
        placed[TASK] = f"{host.position:06}-{env[TASK]}"
    if not placed:
        known = ", ".join((*HOST_NUMBERS, "RANK", TASK))
        raise LaunchError(f"no rank is set here to be rewritten (known: {known})")
    if env.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        placed |= {name: host.master(env[name]) for name in MASTERS if name in env}
    return {**placed, MARK: _mark(host.rank_map)}


def write_environment(ranks: RankMap) -> str:
    """Return the table by which ``shim/environment/`` does the same.

    The names of variables come with it, so that they stand here alone.
    """
    named = {"numbers": HOST_NUMBERS, "counts": HOST_COUNTS, "masters": MASTERS}
    hosts = [
        f"{name} {slots} {ranks.addresses.get(name, '')}".rstrip()
        for name, slots in zip(ranks.order, ranks.slots, strict=True)
    ]
    lines = [
        f"mark {_mark(ranks)}",
        *(f"{kind} {' '.join(names)}" for kind, names in named.items()),
        f"task {TASK}",
        *(f"host {host}" for host in hosts),
    ]
    return "".join(f"{line}\n" for line in lines)


def _mark(ranks: RankMap) -> str:
    return ranks.snapshot[:12] or "map"


def _rank(host: OwnHost, env: Mapping[str, str]) -> int:
    """Return the rank of this process, or of its host where it has no local one."""
    slots, here = host.rank_map.slots, host.position
    world = _number(env, "WORLD_SIZE") if "WORLD_SIZE" in env else sum(slots)
    even = world // len(slots)
    fits = world in (sum(slots), even * len(slots))
    if "LOCAL_RANK" not in env and fits:
        return here
    local = _number(env, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in env else even
    if (sum(slots), slots[here]) == (world, local):
        return sum(slots[:here]) + _number(env, "LOCAL_RANK")
    if fits and local == even:
        return here * local + _number(env, "LOCAL_RANK")
    raise LaunchError(
        f"{host.path} is of {len(slots)} hosts and this job has {world} ranks, {local} "
        "of them here: solve for the hosts of this job"
    )


def _number(env: Mapping[str, str], name: str) -> int:
    """Return a variable's number, of a range such as ``2:4`` the upper end."""
    text = env[name].rpartition(":")[2]
    if not text.isdecimal():
        raise LaunchError(f"{name} is {env[name]!r}, not a number")
    return int(text)
