"""Which orders a bench compares, from a list such as ``given,random:5``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudcoll.errors import UsageError
from cloudcoll.hosts import read_hosts
from cloudcoll.network.tree import Fabric
from cloudcoll.rankmap import RankMap
from cloudcoll.solve.orders import baseline_orders, random_orders

MAX_RANDOM = 100
KNOWN = ("given", "sorted", "natural", "grouped", "random[:COUNT]", "cloudcoll", "FILE")


@dataclass(frozen=True)
class NamedOrder:
    """One order of hosts under comparison.

    Attributes
    ----------
    name : str
        ``given``, ``sorted``, ``random-1``, ``cloudcoll``, ....
    hosts : tuple of str
        The first host takes the first ranks.
    same_as : tuple of str
        Other names whose order is the same one; measured once.
    """

    name: str
    hosts: tuple[str, ...]
    same_as: tuple[str, ...] = ()


def named_orders(
    text: str, given: Sequence[str], fabric: Fabric, rank_map: RankMap, seed: int
) -> tuple[NamedOrder, ...]:
    """Return the orders of a comma-separated list, equal ones merged.

    Parameters
    ----------
    text : str
        Names from `KNOWN`; a FILE is any host list of exactly these hosts.
    given : sequence of str
        Hosts as the user listed them.
    fabric : Fabric
        Of exactly these hosts.
    rank_map : RankMap
        CloudColl's answer.
    seed : int
        Of the random orders.

    Raises
    ------
    UsageError
        An unknown name, or no name at all.
    """
    known = {**baseline_orders(given, fabric), "cloudcoll": rank_map.order}
    wanted: dict[str, tuple[str, ...]] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        head, _, count = name.partition(":")
        if head == "random":
            orders = random_orders(given, _count(name, count), seed)
            wanted |= {f"random-{i}": order for i, order in enumerate(orders, 1)}
        elif name in known:
            wanted[name] = known[name]
        elif Path(name).is_file():
            stem = Path(name).stem
            taken = stem in {*known, *wanted} or stem.startswith("random-")
            wanted[name if taken else stem] = _from_file(name, given)
        else:
            raise UsageError(f"unknown order {name!r} (known: {', '.join(KNOWN)})")
    if not wanted:
        raise UsageError(f"no orders to compare (known: {', '.join(KNOWN)})")
    return _merged(wanted)


def _from_file(path: str, given: Sequence[str]) -> tuple[str, ...]:
    order = tuple(host.name for host in read_hosts(path))
    if strangers := set(order) ^ set(given):
        raise UsageError(
            f"{path} must name exactly the job's hosts, in another order: "
            f"{sorted(strangers)[0]!r} is only in one of the two"
        )
    return order


def _count(name: str, text: str) -> int:
    if not text:
        return 5
    if not text.isdecimal() or not 1 <= int(text) <= MAX_RANDOM:
        raise UsageError(f"{name!r}: the count must be a number from 1 to {MAX_RANDOM}")
    return int(text)


def _merged(orders: Mapping[str, tuple[str, ...]]) -> tuple[NamedOrder, ...]:
    names: dict[tuple[str, ...], list[str]] = {}
    for name, hosts in orders.items():
        names.setdefault(hosts, []).append(name)
    return tuple(
        NamedOrder(same[0], hosts, tuple(same[1:])) for hosts, same in names.items()
    )
