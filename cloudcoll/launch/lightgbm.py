"""The ``lightgbm`` program, started once on every machine of its list.

A machine's rank is its index in the list (``src/network/linkers_socket.cpp`` of
4.6), so the list is written anew in the order of the map. Parameters are
``key=value`` words, which win over those in a file given as ``config=``; names and
aliases are those of ``config_auto.cpp``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cloudcoll.errors import LaunchError
from cloudcoll.launch.command_line import read_named
from cloudcoll.launch.own_host import OwnHost, ipv4_addresses_of
from cloudcoll.launch.plan import LaunchPlan

ALIASES = {
    **dict.fromkeys(("config", "config_file"), "config"),
    **dict.fromkeys(("machines", "workers", "nodes"), "machines"),
    **dict.fromkeys(
        ("machine_list_filename", "machine_list_file", "machine_list", "mlist"),
        "machine_list_filename",
    ),
}
"""Name as typed -> the parameter's own name."""


@dataclass(frozen=True)
class LightGbm:
    """LightGBM's program.

    Attributes
    ----------
    read_text : callable
        Path -> text of a file.
    look_up : callable
        Name of a host -> its IPv4 addresses, none if nobody knows it: the list has
        it by this name, or not at all.
    """

    read_text: Callable[[str], str] = read_named
    look_up: Callable[[str], set[str]] = ipv4_addresses_of

    title = "lightgbm"
    mechanism = "its list of machines, by one map on all hosts"
    source = "pip install lightgbm, or its command line program"
    package = "lightgbm"

    def recognises(self, argv: Sequence[str]) -> bool:
        """Return whether this is LightGBM's program."""
        return os.path.basename(argv[0]) == "lightgbm"

    def plan(
        self, argv: Sequence[str], env: Mapping[str, str], host: OwnHost
    ) -> LaunchPlan:
        """Return the plan with a machine list in the order of the map."""
        given = _parameters(argv[1:])
        if "config" in given:
            lines = self.read_text(given["config"]).splitlines()
            given = {**_parameters(lines), **given}
        machines = self._machines(given)
        if len(machines) < 2:
            return LaunchPlan(tuple(argv))
        ordered = self._ordered(machines, host)
        kept = [word for word in argv if _key(word) not in LISTS]
        # It wins over a file, whoever names that.
        listed = ",".join(f"{address}:{port}" for address, port in ordered)
        return LaunchPlan((*kept, f"machines={listed}"), placement=host.rank_map.order)

    def store(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[str, int]:
        """Raise LaunchError: its machines meet nowhere, and call no NCCL."""
        raise LaunchError("lightgbm has collectives of its own: there is no shim")

    def _machines(self, given: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return address and port of each machine, in the order given."""
        listed = given.get("machines", "").replace(",", "\n").replace(":", " ")
        if not listed and (path := given.get("machine_list_filename")):
            listed = self.read_text(path).replace(":", " ")
        machines = []
        for line in filter(str.strip, listed.splitlines()):
            words = line.split()
            if "rank" in line or len(words) != 2:
                raise LaunchError(f"a machine list with {line!r} can't be reordered")
            machines.append((words[0], words[1]))
        return machines

    def _ordered(
        self, machines: Sequence[tuple[str, str]], host: OwnHost
    ) -> list[tuple[str, str]]:
        """Return the machines by the place of their host, ports as they stand."""
        place: dict[str, int] = {}
        for at, name in enumerate(host.rank_map.order):
            known = {name, host.rank_map.addresses.get(name, name)}
            place |= dict.fromkeys(known | self.look_up(name), at)
        for address, _ in machines:
            if address not in place:
                raise LaunchError(
                    f"{address} of the machine list is not in {host.path}"
                )
        found = {place[address] for address, _ in machines}
        host.check_count(len(found), "the machine list")
        first = machines[0][0]
        if place[first] and not host.free_rank0:
            raise LaunchError(
                f"{host.path} moves rank 0 from {first} to {host.first}: solve again, "
                "or allow it with --free-rank0"
            )
        return sorted(machines, key=lambda machine: place[machine[0]])


LISTS = frozenset({"machines", "machine_list_filename"})


def _key(word: str) -> str:
    name = word.partition("=")[0].strip()
    return ALIASES.get(name, name)


def _parameters(words: Sequence[str]) -> dict[str, str]:
    """Return parameters of the command line or of a file, by their own names."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("#")[0].partition("=")
        if equals:
            # Of a parameter given twice, LightGBM keeps the first.
            found.setdefault(_key(name), value.strip())
    return found
