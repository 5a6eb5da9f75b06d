"""Everybody who asks which host of a list this one is gets one answer."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from cloudcoll.errors import LaunchError
from cloudcoll.hosts import Host
from cloudcoll.launch import shim
from cloudcoll.launch.environment import write_environment
from cloudcoll.launch.openmpi import OpenMpi4
from cloudcoll.launch.own_host import find_host, own_host
from cloudcoll.launch.readback import planned_names
from cloudcoll.rankmap import RankMap

HERE, HERE6 = "HERE", "HERE6"
"""Stand for addresses of this machine."""

VERSION = "mpirun (Open MPI) 4.1.8\n"

TABLE = Path(__file__).parents[1] / "data" / "own_host.json"


@dataclass(frozen=True)
class Case:
    """A list of hosts, and which of them this host is.

    Attributes
    ----------
    about : str
    names : list of str
    own : str
        What this host calls itself.
    expected : int or str
        Place in the list, "absent", or "several" that it could be.
    given : bool
        The user said so, by ``CLOUDCOLL_HOST``.
    addresses : mapping of str to str
    """

    about: str
    names: list[str]
    own: str
    expected: int | str
    given: bool = False
    addresses: Mapping[str, str] = field(default_factory=dict)

    def at(self, known: Mapping[str, str]) -> Case:
        """Return the case with the addresses that this machine has."""
        names = [known.get(name, name) for name in self.names]
        places = {name: known.get(at, at) for name, at in self.addresses.items()}
        return Case(self.about, names, self.own, self.expected, self.given, places)

    @property
    def places(self) -> set[str]:
        """Names and addresses in the list."""
        return {*self.names, *self.addresses.values()}

    def lines(self, form: str) -> list[str]:
        """Return the list as a file has it, one host a line."""
        places = self.addresses
        return [form.format(name, places.get(name, "")) for name in self.names]


CASES = [Case(**case) for case in json.loads(TABLE.read_text())]


def own_addresses() -> dict[str, str]:
    """Return an address of each kind, the second as nobody writes it by itself."""
    every = [one for card in psutil.net_if_addrs().values() for one in card]
    four = [one.address for one in every if one.family == socket.AF_INET]
    six = [one.address for one in every if one.family == socket.AF_INET6]
    usable = [ipaddress.ip_address(one.partition("%")[0]) for one in four + six]
    usable = [one for one in usable if not (one.is_loopback or one.is_link_local)]
    found = {}
    for one in usable:
        if one.version == 4:
            found[HERE] = str(one)
        else:
            found[HERE6] = one.exploded.upper()
    return found


KNOWN = own_addresses()


def cases(keep: Callable[[Case], bool] = lambda case: True) -> pytest.MarkDecorator:
    """Give a test the rows that are for it, and that this machine has addresses for."""
    rows = [case.at(KNOWN) for case in CASES if keep(case)]
    rows = [case for case in rows if not case.places & {HERE, HERE6}]
    ids = [case.about.replace(" ", "_") for case in rows]
    return pytest.mark.parametrize("case", rows, ids=ids)


@cases()
def test_python(case: Case) -> None:
    """Tests where a host finds itself that has the rank map."""
    asked = case.names, case.own, "the map", case.addresses
    if isinstance(case.expected, int):
        assert find_host(*asked, given=case.given) == case.expected
        return
    said = {"absent": "is not one of", "several": "could be"}
    with pytest.raises(LaunchError, match=said[case.expected]):
        find_host(*asked, given=case.given)


@cases(lambda case: bool(case.addresses))
def test_addresses_come_with_the_map(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a map's addresses count, and are in the table for the library."""
    one_each = (1,) * len(case.names)
    ranks = RankMap(tuple(case.names), one_each, addresses=case.addresses)
    ranks.save(tmp_path / "map")
    monkeypatch.setattr(socket, "gethostname", lambda: case.own)
    host = own_host(tmp_path / "map", {})
    if isinstance(case.expected, int):
        assert host.position == case.expected
    else:
        with pytest.raises(LaunchError, match="CLOUDCOLL_HOST"):
            _ = host.position
    lines = [line.rstrip() for line in case.lines("host {} 1 {}")]
    assert write_environment(ranks).splitlines()[-len(lines) :] == lines


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program of the shims' own sources."""
    folder = shim.LIBRARY.parent
    program = tmp_path_factory.mktemp("own_host") / "own_host"
    common = [folder / "order.c", folder / "own_host.c"]
    sources = [Path(__file__).with_name("own_host.c"), *common]
    sources += sorted((folder / "environment").glob("*.c"))
    words = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    build: list[str | Path] = [*words, f"-I{folder}", "-o", program, *sources]
    subprocess.run(build, check=True, timeout=120)
    return program


@cases()
def test_c(case: Case, program: Path, tmp_path: Path) -> None:
    """Tests where the three preloaded libraries find their host."""
    table = tmp_path / "table"
    table.write_text("mark x\n" + "\n".join(case.lines("host {} 1 {}")))
    given = {"CLOUDCOLL_HOST": case.own} if case.given else {}
    ended = subprocess.run(
        [program, table],
        env={
            "PATH": os.environ["PATH"],
            "POSE": "elsewhere" if case.given else case.own,
            "CLOUDCOLL_SHIM_ORDER": ",".join(case.lines("{} {}")),
            **given,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for said, refusals in (
        (ended.stdout, {"absent": "does not name", "several": "twice"}),
        (ended.stderr, {"absent": "is not in", "several": "could be several"}),
    ):
        if isinstance(case.expected, int):
            assert said == f"{case.expected}\n"
        else:
            assert refusals[case.expected] in said


def is_for_mpirun(case: Case) -> bool:
    """Return whether a hostfile can be so: mpirun knows where it is, as 127.0.0.1."""
    alone = len(set(case.names)) == len(case.names)
    return alone and not case.given and "127.0.0.1" not in case.names


@cases(is_for_mpirun)
def test_mpirun_of_open_mpi_4(case: Case) -> None:
    """Tests that mpirun's own machine is the first, if it is in the list."""
    hosts = tuple(
        Host(name, case.addresses.get(name, ""), slots=1) for name in case.names
    )
    launcher = OpenMpi4(lambda _path, _default: hosts, lambda: case.own)
    line = ["mpirun", "--hostfile", "F", "--bind-to", "none", "app"]
    if case.expected == "several":
        with pytest.raises(LaunchError, match="could be"):
            launcher.parse(line, {}, lambda: VERSION)
        return
    found = launcher.parse(line, {}, lambda: VERSION).hosts
    if isinstance(case.expected, int):
        assert found[0].name == case.names[case.expected]
    else:
        assert [host.name for host in found] == case.names


@cases(lambda case: not case.places & {HERE, HERE6})
def test_what_ranks_report(case: Case) -> None:
    """Tests that a rank's host is the planned one that it would find itself."""
    planned = case.own
    if isinstance(case.expected, int):
        planned = case.names[case.expected]
    assert planned_names({0: case.own}, case.names) == {0: planned}
