"""Which host of a rank map is this one? For what is started once on every host.

There no launcher knows the list of hosts: each start works out its own place,
and they agree because all of them read the same map. `own_places` is the rule. The
preloaded libraries have it in C (``shim/own_host.c``), and one table of cases holds
all to it (``tests/data/own_host.json``).
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from cloudcoll.errors import LaunchError
from cloudcoll.files import snapshot_file
from cloudcoll.hosts import Host, host_set_key
from cloudcoll.rankmap import RankMap, load_rankmap

HOST_VARIABLE = "CLOUDCOLL_HOST"
"""Says which host of the map this is, where its own name does not."""

MAP_VARIABLE = "CLOUDCOLL_MAP"
"""Path of the rank map, the same map on every host."""

LOOPBACK_V6 = socket.inet_pton(socket.AF_INET6, "::1")


@dataclass(frozen=True)
class OwnHost:
    """What this host knows of a job whose hosts all read one rank map.

    Attributes
    ----------
    path : Path
        Of the map, absolute.
    name : str
        What this host calls itself.
    free_rank0 : bool
        Allow the host of rank 0 to change.
    given : bool
        The user said what this host is called.
    """

    rank_map: RankMap
    path: Path
    name: str
    free_rank0: bool = False
    given: bool = False

    @property
    def first(self) -> str:
        """The host of rank 0."""
        return self.rank_map.order[0]

    @cached_property
    def position(self) -> int:
        """Index of this host in the order: its node rank, by `find_host`."""
        return find_host(
            *(self.rank_map.order, self.name, str(self.path), self.rank_map.addresses),
            given=self.given,
        )

    def check_count(self, hosts: int, source: str) -> None:
        """Refuse a map for another number of hosts, by a LaunchError.

        Every host sees the same two numbers, so all of them refuse or none.
        """
        known = len(self.rank_map.order)
        if hosts != known:
            raise LaunchError(
                f"{self.path} is of {known} hosts and {source} says {hosts}: solve "
                f"for the hosts of this job{self._solving(hosts)}"
            )

    def _solving(self, hosts: int) -> str:
        """Return how to make a map of so many of this map's hosts, as a clause."""
        if not 1 < hosts < len(self.rank_map.order):
            return ""
        from cloudcoll.libraries import LIBRARIES

        # Where the network was measured, its snapshot lies under this name.
        every = map(Host, (*self.rank_map.order, *self.rank_map.dropped))
        latest = snapshot_file(host_set_key(every))
        snapshot = str(latest) if latest.exists() else "SNAPSHOT"
        library = self.rank_map.schedule.get("run_by")
        options = ["--library", library] if library in LIBRARIES else []
        output = str(self.path.with_name(f"{self.path.stem}-{hosts}.json"))
        words = ["cloudcoll", "solve", snapshot, "-w", f"HOST1,...,HOST{hosts}"]
        command = shlex.join([*words, *options, "-o", output])
        return f', as in "{command}", and give all of them that map'

    def master(self, current: str) -> str:
        """Return where the store of rank 0 is: `current`, or the map's first host.

        Parameters
        ----------
        current : str
            The address that the job was given; the loopback address stands
            for this host.

        Raises
        ------
        LaunchError
            Rank 0 would move without being allowed, or to a name that nobody
            can look up.
        """
        if _is_loopback(current):
            stays = self.position == 0
        else:
            stays = same_name(self.first, current)
        if stays or (found := addresses_of(self.first)) & addresses_of(current):
            return current
        if not self.free_rank0:
            raise LaunchError(
                f"{self.path} moves rank 0 from {current} to {self.first}: solve "
                "again, or allow it with --free-rank0"
            )
        if not found:
            raise LaunchError(
                f"rank 0 would move to {self.first}, a name that has no address here"
            )
        return self.first


def own_host(
    path: Path | None, env: Mapping[str, str], *, free_rank0: bool = False
) -> OwnHost:
    """Read the map that all hosts of the job share.

    It is at `path`, else at what ``CLOUDCOLL_MAP`` in `env` says; the name of this host
    that ``CLOUDCOLL_HOST`` has is believed. CloudcollError if it can't be read.
    """
    where = path or env.get(MAP_VARIABLE)
    if not where:
        raise LaunchError(
            "this is started on every host, and all need the same rank map: name it "
            f"with --map or {MAP_VARIABLE}"
        )
    name, given = own_name(env)
    file = Path(os.path.abspath(where))
    return OwnHost(load_rankmap(file), file, name, free_rank0, given)


def own_name(env: Mapping[str, str]) -> tuple[str, bool]:
    """Return what this host is called, and whether ``CLOUDCOLL_HOST`` says so."""
    given = env.get(HOST_VARIABLE)
    return given or socket.gethostname(), bool(given)


def find_host(
    order: Sequence[str],
    name: str,
    source: str,
    addresses: Mapping[str, str] = MappingProxyType({}),
    *,
    given: bool = False,
) -> int:
    """Return the index of this host in `order`, which comes from `source`.

    LaunchError where none of `own_places` is it, or several could be.
    """
    found = own_places(order, name, addresses, given=given)
    if len(found) == 1:
        return found[0]
    known = ", ".join([order[index] for index in found] or order[:3])
    which = f"could be {known} of" if found else f"is not one of {known} ... in"
    raise LaunchError(
        f"this host, {name}, {which} {source}: say which it is with {HOST_VARIABLE}"
    )


def own_places(
    order: Sequence[str],
    name: str,
    addresses: Mapping[str, str] = MappingProxyType({}),
    *,
    given: bool = False,
) -> list[int]:
    """Return the indices of the hosts that this one could be.

    The host of exactly its name is, before those of the same name in other case, or
    with or without a domain. If there is none, the one with an address of this
    machine is; loopback addresses are every machine's and tell nothing. More than one
    is returned wherever that leaves a choice, which is the user's to make. So they
    are if the name is one host's and the address is another's: machines cloned from
    one image may all have one name.

    Parameters
    ----------
    order : sequence of str
        Names or addresses of hosts.
    name : str
        Name of this host, with or without its domain.
    addresses : mapping of str to str
        Where some of them are reached.
    given : bool
        The user gave the name: addresses say nothing against it.
    """
    named = hosts_named(order, name)
    own = _own_addresses()

    def is_here(address: str) -> bool:
        return not _is_loopback(address) and packed(address) in own

    here = [
        index
        for index, host in enumerate(order)
        if is_here(host) or is_here(addresses.get(host, ""))
    ]
    if len(named) == 1 and (given or not here or named[0] in here):
        return named
    return sorted({*named, *here})


def hosts_named(order: Iterable[str], name: str) -> list[int]:
    """Return the indices of the hosts of exactly this name, or else of the same one."""
    hosts = list(enumerate(order))
    return [index for index, host in hosts if host == name] or [
        index for index, host in hosts if same_name(host, name)
    ]


def same_name(one: str, other: str) -> bool:
    """Return whether two names are of one host, with or without a domain."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return short == long or (
        long.startswith(f"{short}.") and not (packed(short) or packed(long))
    )


def packed(address: str) -> bytes:
    """Return an address as it is sent, nothing for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, address)
        except (OSError, ValueError):  # names may have any character
            continue
    return b""


def _is_loopback(text: str) -> bool:
    own = packed(text)
    return text == "localhost" or own == LOOPBACK_V6 or own[:1] == b"\x7f"


def is_own_address(address: str) -> bool:
    """Return whether an address is one of this machine's, the loopback included."""
    return _is_loopback(address) or packed(address) in _own_addresses()


def _own_addresses() -> set[bytes]:
    """Return the addresses of this machine's cards, none where they can't be listed."""
    import psutil

    try:
        every = [one for card in psutil.net_if_addrs().values() for one in card]
    except OSError:
        return set()  # names are still names
    ip = (socket.AF_INET, socket.AF_INET6)
    own = (one.address.partition("%")[0] for one in every if one.family in ip)
    return {packed(address) for address in own} - {b""}


def address_elsewhere(name: str) -> str:
    """Return the IPv4 address by which other hosts reach a name, empty if unknown.

    Many systems give their own name the loopback address 127.0.1.1.
    """
    found = ipv4_addresses_of(name)
    return min((one for one in found if not _is_loopback(one)), default="")


def ipv4_addresses_of(name: str) -> set[str]:
    """Return the IPv4 addresses of a name, none if nobody knows it."""
    return addresses_of(name, socket.AF_INET)


def addresses_of(name: str, family: int = socket.AF_UNSPEC) -> set[str]:
    """Return the addresses of a name, none if nobody knows it."""
    try:
        found = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # DNS has no names of such characters, or so long
        return set()
    return {str(address[0]) for *_, address in found}
