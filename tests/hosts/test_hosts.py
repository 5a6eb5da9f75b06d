from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UsageError
from cloudcoll.hosts import (
    Host,
    first_clash,
    host_set_key,
    matched_names,
    natural_key,
    parse_host_argument,
    parse_hosts,
    read_hosts,
)

names = st.from_regex(r"[a-zA-Z][a-z0-9-]{0,5}(\.[a-z]{1,3})?", fullmatch=True)
host_names = st.lists(names, min_size=1, max_size=12, unique_by=str.lower)


def test_address_is_the_name_by_default() -> None:
    """Tests that a host is reached by its name unless told otherwise."""
    assert Host("a").address == "a"
    assert Host("a", address="10.0.0.1").address == "10.0.0.1"


@given(host_names)
def test_order_is_kept(order: list[str]) -> None:
    """Tests that hosts come out in the order of the file."""
    hosts = parse_hosts("\n".join(order), "list", "hostfile")
    assert [host.name for host in hosts] == order


def test_repeated_plain_lines_add_slots() -> None:
    """Tests that each mention is a slot and the first mention sets the place."""
    hosts = parse_hosts("b\na\nb\nb\n", "list", "hostfile")
    assert hosts == (Host("b", slots=3), Host("a"))
    assert parse_hosts("b\na\nb\nb\n", "list", "seq")[1].slots == 1


@pytest.mark.parametrize(
    "text",
    [
        "a slots=2\n\na slots=2",
        "a slots=2\n# c\na",
        "a\n\na slots=2",
        "a:2\n\na:2",
        "ops@a\n\ndev@a",
        "Node01 slots=2\n\nnode01 slots=2",
        "node01\n\nnode01. slots=1",
    ],
)
def test_duplicates_name_both_lines(text: str) -> None:
    """Tests that one host with two counts, logins or spellings is refused."""
    with pytest.raises(UsageError, match=r"^list:3: .* at list:1"):
        parse_hosts(text, "list")


def test_two_spellings_of_an_ipv6_address_are_one_host() -> None:
    """Tests that addresses are compared by value."""
    with pytest.raises(UsageError, match=r"^list:2: .* at list:1"):
        parse_hosts("fd00::1 slots=2\n[fd00:0::0:1] slots=2", "list")


def test_first_clash() -> None:
    """Tests that equal names, equal addresses and neither are told apart."""
    vm = Host("vm-1", address="10.0.0.1")
    assert first_clash([vm, Host("vm-2", address="10.0.0.2")]) is None
    assert first_clash([Host("x"), vm, Host("vm-1", address="10.0.0.3")]) == (1, 2)
    assert first_clash([vm, Host("x"), Host("10.0.0.1")]) == (0, 2)
    assert first_clash([Host("a", "::1"), Host("b", "0:0::1")]) == (0, 1)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("node[01-03,20],b:4", [*((f"node{n}", None) for n in ("01", "02", "03", "20")),
                                ("b", 4)]),
        ("h1:2,h2:2", [("h1", 2), ("h2", 2)]),
        (" a , b ", [("a", None), ("b", None)]),
        ("a,a,b", [("a", 2), ("b", None)]),
        ("n[1-2]:4", [("n1", 4), ("n2", 4)]),
        ("[fd00::1]:2,fd00::2", [("fd00::1", 2), ("fd00::2", None)]),
    ],
)  # fmt: skip
def test_host_argument(argument: str, expected: list[tuple[str, int | None]]) -> None:
    """Tests the forms of a -w or -H list."""
    hosts = parse_host_argument(argument)
    assert [(host.name, host.slots) for host in hosts] == expected


@pytest.mark.parametrize("argument", ["", " ", "a,", "a:2,a:2", "a:0", "a:*", "a\nb"])
def test_host_argument_refuses(argument: str) -> None:
    """Tests that a bad -w list ends in one line."""
    with pytest.raises(UsageError, match=r"^host list argument: ") as caught:
        parse_host_argument(argument)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no hosts in it"),
        (b"\n  # only this\n\r\n", "no hosts in it"),
        (b"a\nb\0c\n", ":2: a NUL byte"),
        (b"a\n\xff\xfe\n", ":2: not text"),
        (b"a" * 10_000_000, ":1: a line of 10000000 characters"),
        (b"a\n" * (9 << 20), "more than 16 MiB"),
        (b"a\n" * 100_001, ":100001: more than 100000 hosts"),
        (b"a[1-60000]\nb[1-60000]\n", ":2: more than 100000 hosts"),
    ],
    ids=["empty", "comments", "nul", "binary", "line", "file", "lines", "ranges"],
)
def test_unreadable_content(tmp_path: Path, data: bytes, message: str) -> None:
    """Tests that what is not a host list is refused in one short line."""
    path = tmp_path / "hosts"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=message) as caught:
        read_hosts(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_unreadable_file(tmp_path: Path) -> None:
    """Tests that a missing file and a folder are named with the reason."""
    with pytest.raises(UsageError, match=f"{tmp_path}/no: No such file"):
        read_hosts(tmp_path / "no")
    with pytest.raises(UsageError, match=f"{tmp_path}: Is a directory"):
        read_hosts(tmp_path)


def test_unknown_format() -> None:
    """Tests that an unknown format lists the known ones."""
    with pytest.raises(UsageError, match=r"'flux' \(known: auto, hostfile, seq"):
        parse_hosts("a", "list", "flux")


def test_windows_file(tmp_path: Path) -> None:
    """Tests that a byte-order mark and CR LF line ends do not matter."""
    path = tmp_path / "hosts"
    path.write_bytes(b"\xef\xbb\xbfa slots=2\r\nb slots=3\r\n")
    assert read_hosts(path) == (Host("a", slots=2), Host("b", slots=3))


@given(host_names, st.randoms(use_true_random=False))
def test_host_set_key_ignores_order(order: list[str], rng: random.Random) -> None:
    """Tests that the key depends on the set of names and on nothing else."""
    shuffled = rng.sample(order, len(order))
    key = host_set_key(Host(name) for name in order)
    assert host_set_key(Host(name, slots=3, user="x") for name in shuffled) == key
    assert host_set_key([*map(Host, order), Host("other_one")]) != key


def test_host_set_key_is_stable() -> None:
    """Tests that the key never changes: snapshots on disk are named by it."""
    assert host_set_key([Host("vm-2"), Host("vm-1")]) == "50d75e71b47b821d"


def test_natural_order() -> None:
    """Tests that numbers sort by value, and that case and padding count."""
    order = ["Vm-3", "rack1-vm2", "rack1-vm10", "vm", "vm-01", "vm-1", "vm-2", "vm-10"]
    assert sorted([*order[4:], *order[:4]], key=natural_key) == order


@given(st.lists(st.text(alphabet="aB-.019", max_size=8), unique=True))
def test_natural_order_is_total(texts: list[str]) -> None:
    """Tests that different names never tie, so the order is deterministic."""
    assert len({natural_key(text) for text in texts}) == len(texts)


def test_hosts_are_matched_by_address() -> None:
    """Tests names, addresses however written, and names that have to be looked up."""
    known = {"a": "fd00::1", "b": "10.0.0.2", "c": "c", "d": "d"}
    listed = [Host(name) for name in ("fd00:0::1", "c", "10.0.0.4", "b", "10.0.0.9")]
    asked = {"d": {"10.0.0.4"}, "c": {"127.0.1.1"}}
    matched = matched_names(listed, known, lambda name: asked.get(name, set()))
    assert matched == ["a", "c", "d", "b", "10.0.0.9"]


def test_an_address_of_two_hosts_is_neither() -> None:
    """Tests that nobody guesses, and that nothing is looked up without need."""
    known = {"a": "a", "b": "b"}
    shared = matched_names([Host("10.0.0.1")], known, lambda _: {"10.0.0.1"})
    assert shared == ["10.0.0.1"]

    def refuse(name: str) -> set[str]:
        raise AssertionError(f"{name} was looked up")

    assert matched_names([Host("b")], known, refuse) == ["b"]
