from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from cloudcoll.errors import CloudcollError, LaunchError
from cloudcoll.files import snapshot_file
from cloudcoll.hosts import Host, host_set_key
from cloudcoll.launch.own_host import (
    OwnHost,
    address_elsewhere,
    find_host,
    own_host,
    same_name,
)
from cloudcoll.rankmap import RankMap

ORDER = ("vm-1", "vm-10.zone.example", "10.0.0.7", "vm-2")
MAP = RankMap(ORDER, (1, 1, 1, 1))


def host(name: str, *, free_rank0: bool = False) -> OwnHost:
    return OwnHost(MAP, Path("/shared/map.json"), name, free_rank0)


@pytest.mark.parametrize(
    ("name", "position"),
    [
        *(("vm-1", 0), ("vm-1.zone.example", 0), ("VM-1", 0)),
        *(("vm-10", 1), ("vm-10.zone", 1), ("10.0.0.7", 2), ("vm-2", 3)),
    ],
)
def test_position(name: str, position: int) -> None:
    """Tests that a host finds itself, with or without a domain."""
    assert host(name).position == position


@pytest.mark.parametrize("name", ["vm", "vm-3", "vm-10.other", "10", "10.0.0.8", ""])
def test_not_in_the_map(name: str) -> None:
    """Tests that a host that is not in the map is told so, with a way out."""
    with pytest.raises(LaunchError, match=r"not one of vm-1, .* CLOUDCOLL_HOST"):
        _ = host(name).position


def test_several_fit() -> None:
    """Tests that a name that fits two hosts is not guessed, an exact one is."""
    order = ("vm.a", "vm.b", "vm")
    assert find_host(order, "vm", "map") == 2
    with pytest.raises(LaunchError, match=r"could be vm\.a, vm\.b of map"):
        find_host(order[:2], "vm", "map")


def test_the_loopback_address_is_nobodys() -> None:
    """Tests that an address that every machine has tells no host from another."""
    with pytest.raises(LaunchError, match="is not one of"):
        find_host(("127.0.0.1", "198.51.100.1"), "elsewhere", "map")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("a", "a.b", True),
        ("a.b.c", "a.b", True),
        ("a", "ab.c", False),
        ("a.b", "a.c", False),
        ("10.0.0.1", "10", False),
        ("10.0.0.1", "10.0.0.1", True),
    ],
)
def test_same_name(one: str, other: str, same: bool) -> None:
    """Tests that a domain may be missing, and that addresses have none."""
    assert same_name(one, other) == same_name(other, one) == same


def test_master_that_is_the_first_host() -> None:
    """Tests that the master stays where rank 0 does not move, as it is written."""
    assert host("vm-2").master("vm-1.zone.example") == "vm-1.zone.example"
    assert host("vm-1").master("127.0.0.1") == "127.0.0.1"


def test_master_that_moves() -> None:
    """Tests that rank 0 moves only with leave, and only to where it is found."""
    with pytest.raises(LaunchError, match=r"rank 0 from vm-2 to vm-1: .*--free-rank0"):
        host("vm-2").master("vm-2")
    with pytest.raises(LaunchError, match="vm-1, a name that has no address here"):
        host("vm-2", free_rank0=True).master("vm-2")
    here = RankMap(("localhost", "vm-2"), (1, 1))
    moved = OwnHost(here, Path("map"), "vm-2", free_rank0=True)
    assert moved.master("vm-2") == "localhost"


def test_count() -> None:
    """Tests that a map for another number of hosts is refused with both numbers."""
    host("vm-1").check_count(4, "--nnodes")
    with pytest.raises(LaunchError, match="of 4 hosts and --nnodes says 5"):
        host("vm-1").check_count(5, "--nnodes")


def test_fewer_hosts_than_the_map_has() -> None:
    """Tests that the message has the command to run next, as a shell takes it."""
    schedule = {"library": "Gloo 2026-04; torch 2.13", "run_by": "gloo"}
    mine = OwnHost(replace(MAP, schedule=schedule), Path("/s/map.json"), "vm-1")
    solving = "cloudcoll solve {} -w HOST1,...,HOST3 --library gloo -o /s/map-3.json"
    with pytest.raises(LaunchError) as caught:
        mine.check_count(3, "--nnodes 3")
    assert f'as in "{solving.format("SNAPSHOT")}", and give all' in str(caught.value)
    latest = snapshot_file(host_set_key(map(Host, MAP.order)))
    latest.parent.mkdir(parents=True)
    latest.touch()
    with pytest.raises(LaunchError) as caught:
        mine.check_count(3, "--nnodes 3")
    assert solving.format(latest) in str(caught.value)
    for hosts in (1, 5):
        with pytest.raises(LaunchError) as caught:
            host("vm-1").check_count(hosts, f"--nnodes {hosts}")
        assert "cloudcoll solve" not in str(caught.value)


def test_reading_the_map(tmp_path: Path) -> None:
    """Tests where the map and this host's name come from."""
    path = tmp_path / "map.json"
    MAP.save(path)
    found = own_host(None, {"CLOUDCOLL_MAP": str(path), "CLOUDCOLL_HOST": "vm-2"})
    assert (found.position, found.path, found.first) == (3, path, "vm-1")
    assert own_host(path, {}).name == socket.gethostname()
    with pytest.raises(LaunchError, match="--map or CLOUDCOLL_MAP"):
        own_host(None, {})
    with pytest.raises(CloudcollError, match="cannot read the rank map"):
        own_host(tmp_path / "none", {})


@pytest.mark.parametrize("name", ["a" * 64, "\u202e", "\udc80", "a..b"])
def test_names_that_dns_cannot_have(name: str) -> None:
    """Tests that nobody has such a name, and that asking for it ends nothing."""
    assert address_elsewhere(name) == ""
