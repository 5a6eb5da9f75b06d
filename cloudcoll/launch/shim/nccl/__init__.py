"""Reorder inside NCCL what is started on every host (C; README.md is its contract)."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloudcoll.errors import LaunchError
from cloudcoll.launch.launcher import HostLauncher
from cloudcoll.launch.own_host import HOST_VARIABLE, is_own_address, own_host
from cloudcoll.launch.plan import LaunchPlan
from cloudcoll.launch.seal import PUBLIC
from cloudcoll.launch.shim import NCCL, plan_shim_unread
from cloudcoll.launch.wrapper import Inbox


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
    launcher : HostLauncher
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
