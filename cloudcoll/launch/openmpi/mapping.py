"""How many ranks Open MPI 5 puts on each host, and what it binds them to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch.command_line import Option, deal, fill

OBJECTS = {"core": "core", "package": "package", "socket": "package", "numa": "numa"}
"""Objects of ``--map-by`` -> what a rank is then bound to."""

IF_SUPPORTED_SINCE = (5, 0, 11)
"""First version in which ``seq`` honours ``:if-supported``."""


@dataclass(frozen=True)
class Mapping:
    """The layout that a command line asks for.

    Attributes
    ----------
    policy : str
        Of ``--map-by``: ``slot``, ``node``, ``ppr`` or a key of `OBJECTS`.
    per_host : int or None
        Ranks on each host, for ``ppr``.
    cyclic : bool
        Ranks are numbered over the hosts in turn.
    """

    policy: str = "core"
    per_host: int | None = None
    cyclic: bool = False


def read_mapping(options: Sequence[Option]) -> Mapping:
    """Return the layout that the options ask for.

    Raises
    ------
    LaunchError
        One in which whole hosts can't be moved.
    """
    given = [text for option in options if (text := _as_map_by(option))]
    if len(given) > 1:
        raise LaunchError(f"two mappings are given: {' and '.join(given)}")
    text = given[0].lower() if given else "core"
    per_host = re.fullmatch(r"ppr:(\d+):node", text)
    policy = "ppr" if per_host else text
    if policy not in {"ppr", "slot", "node", *OBJECTS}:
        raise LaunchError(f"--map-by {given[0]} is not one that whole hosts move in")
    rank_by = next((o.values[0].lower() for o in options if o.name == "rank-by"), "")
    if rank_by not in {"", "slot", "node"}:
        raise LaunchError(f"--rank-by {rank_by} is not one that whole hosts move in")
    return Mapping(
        policy,
        int(per_host[1]) if per_host else None,
        (rank_by or policy) == "node",
    )


def _as_map_by(option: Option) -> str:
    """Return what `option` means as a value of ``--map-by``, empty if nothing."""
    if option.name == "map-by":
        return option.values[0]
    if option.name in {"N", "npernode"}:
        return f"ppr:{option.values[0]}:node"
    short = {"pernode": "ppr:1:node", "bynode": "node", "bycore": "core"}
    return (short | {"byslot": "slot"}).get(option.name, "")


def count_ranks(
    hosts: Sequence[Host], source: str, ranks: int | None, mapping: Mapping
) -> tuple[int, ...]:
    """Return how many ranks each host gets from the unmodified command.

    Parameters
    ----------
    hosts : sequence of Host
    source : str
        Where they come from, for messages.
    ranks : int or None
        Of ``-n``; None fills every slot.
    mapping : Mapping

    Raises
    ------
    LaunchError
        The host list leaves the slots open, or there are too few.
    """
    if mapping.per_host is not None:
        room = [mapping.per_host] * len(hosts)
    else:
        room = [_slots(host, source) for host in hosts]
    total = sum(room) if ranks is None else ranks
    if not 1 <= total <= sum(room):
        raise LaunchError(f"{total} ranks for the {sum(room)} slots of {source}")
    return (deal if mapping.policy == "node" else fill)(room, total)


def _slots(host: Host, source: str) -> int:
    if host.slots is None:
        raise LaunchError(f"{source} gives no slots for {host.name}: add slots=N")
    return host.slots


def read_binding(
    options: Sequence[Option],
    mapping: Mapping,
    counts: Sequence[int],
    version: tuple[int, ...],
) -> str:
    """Return the ``--bind-to`` that equals what the unmodified command does.

    Raises
    ------
    LaunchError
        Ranks may share cores in a way that ``seq`` can't express.
    """
    names = {"bind-to-core": "core", "bind-to-socket": "package"}
    for option in options:
        binding = names.get(option.name, "")
        if option.name == "bind-to":
            binding = option.values[0]
        if "overload" in binding.lower():
            raise LaunchError(f"--bind-to {binding} can't be kept in another order")
        if binding:
            return binding
    if mapping.policy in OBJECTS:
        return f"{OBJECTS[mapping.policy]}:if-supported"
    if max(counts) > 1 and version < IF_SUPPORTED_SINCE:
        raise LaunchError(
            f"Open MPI {'.'.join(map(str, version))} can't keep the default binding of "
            f"--map-by {mapping.policy}: add --bind-to"
        )
    return f"{'core' if sum(counts) <= 2 else 'numa'}:if-supported"
