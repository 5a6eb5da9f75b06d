"""Names, addresses and users: one check, and every way in that goes through it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import HEADER, stored
from hypothesis import given
from hypothesis import strategies as st
from newfiles import write_new

from cloudcoll.bench.result import BenchRun
from cloudcoll.cli import main
from cloudcoll.errors import CloudcollError, UsageError
from cloudcoll.hosts import Host, parse_hosts
from cloudcoll.hosts.names import check_host, check_user
from cloudcoll.importers import READERS, read_matrices
from cloudcoll.importers.labels import read_names
from cloudcoll.launch.formats import FORMATS
from cloudcoll.launch.rendezvous import Place, read_place
from cloudcoll.measured.snapshot import parse_snapshot
from cloudcoll.network.forms import topology_conf
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.probe.frames import FrameError, check
from cloudcoll.rankmap import RankMap

BAD = [
    "h3\nvm-evil slots=8",
    "-oProxyCommand=touch /tmp/x",
    "-x",
    "a b",
    "a\tb",
    "a\0",
    "a\x1b[2J",
    "",
    "a" * 254,
    "..",
    "a..b",
    "../a",
    "/etc/passwd",
    "a/b",
    "a,b",
    "a=b",
    "a:8",
    "a;b",
    "$(a)",
    "`a`",
    "a'b",
    "a#",
    "é",
    "\u2028",
    "a\u0661",
    "fe80::1%-x\ny",
    "fe80::1%" + "x" * 40,
    ":" * 200,
]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name_is_refused_in_one_printable_line(name: str) -> None:
    """Tests lines, options, paths, quotes, controls, and too many characters."""
    for refuse in (check_host, check_user):
        if refuse is check_user and name in ("", "a..b", "a\0"[:1]):
            continue
        with pytest.raises(UsageError, match="file: field: ") as caught:
            refuse(name, "file: field")
        assert str(caught.value).isascii()
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name",
    ["a", "vm-1", "_x", "node01.rack.example", "10.0.0.1", "fd00::1", "fe80::1%eth0"],
)
def test_a_good_name_is_taken(name: str) -> None:
    """Tests names, addresses of both kinds, and that of a link."""
    assert check_host(name, "x") == Host(name).name == name


@given(st.text(max_size=300) | st.binary(max_size=20) | st.integers())
def test_what_is_taken_is_a_word_of_every_file(name: object) -> None:
    """Tests that nothing with a blank, a quote, a dash in front or a slash passes."""
    try:
        taken = check_host(name, "x")
    except UsageError:
        return
    assert taken == name
    assert 0 < len(taken) <= 253
    assert set(taken) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-:%"
    )
    assert taken[0] not in ".-"


def of_snapshot(**change: Any) -> Callable[[Path], object]:
    return lambda path: parse_snapshot(stored({**HEADER, **change}), path)


def of_text(
    read: Callable[[Path], object], form: str | dict[str, Any]
) -> Callable[[str], Callable[[Path], object]]:
    """Return what writes a file in which NAME is the name, and reads it."""

    def with_name(name: str) -> Callable[[Path], object]:
        def write_and_read(path: Path) -> object:
            text = form if isinstance(form, str) else json.dumps(form)
            quoted = name if isinstance(form, str) else json.dumps(name)[1:-1]
            write_new(path, text.replace("NAME", quoted).encode())
            return read(path)

        return write_and_read

    return with_name


def from_map(path: Path) -> object:
    return RankMap.from_json(path.read_text(), str(path))


def from_bench(path: Path) -> object:
    return BenchRun.from_json(path.read_text(), str(path))


MAP = {"schema": 1, "order": ["a", "NAME"], "slots": [1, 1]}
ROW = {"op": "allreduce", "bytes": 8, "repeat": 0, "time_us": 1.0, "wrong": 0}
BENCH = {
    "schema": 1,
    "algorithm": "ring",
    "hosts": ["a", "b"],
    "library": "x",
    "ranks": 2,
    "orders": {"given": ["a", "b"]},
    "same_as": {},
    "predicted": {},
    "ratios": [],
    "results": [{**ROW, "order": "given"}],
}
WAYS: dict[str, Callable[[str], Callable[[Path], object]]] = {
    "snapshot: host": lambda name: of_snapshot(hosts=[{"name": "a"}, {"name": name}]),
    "snapshot: address": lambda name: of_snapshot(
        hosts=[{"name": "a"}, {"name": "b", "address": name or " "}]
    ),
    "snapshot: user": lambda name: of_snapshot(
        hosts=[{"name": "a"}, {"name": "b", "user": name or " "}]
    ),
    "snapshot: failed": lambda name: of_snapshot(failed={name: "why"}),
    "snapshot: fabric": lambda name: of_snapshot(
        fabric={"root": {"name": "r", "children": [{"name": "a"}, {"name": name}]}}
    ),
    "snapshot: agents": lambda name: of_snapshot(metadata={"agents": {name: {}}}),
    "snapshot: agent's address": lambda name: of_snapshot(
        metadata={"agents": {"a": {"address": name or " "}}}
    ),
    "map: order": of_text(from_map, MAP),
    "map: dropped": of_text(
        from_map, {**MAP, "order": ["a", "b"], "dropped": ["NAME"]}
    ),
    "map: address": of_text(
        from_map, {**MAP, "order": ["a", "b"], "addresses": {"a": "NAME"}}
    ),
    "map: host with address": of_text(
        from_map, {**MAP, "order": ["a", "b"], "addresses": {"NAME": "a"}}
    ),
    "bench: hosts": of_text(from_bench, {**BENCH, "hosts": ["a", "NAME"]}),
    "bench: order": of_text(from_bench, {**BENCH, "orders": {"given": ["NAME", "a"]}}),
    "import fabric": of_text(
        READERS["fabric"],
        {"name": "r", "children": [{"name": "a"}, {"name": "NAME"}]},
    ),
    "import labels, Amazon": of_text(
        READERS["labels"],
        {"Instances": [{"InstanceId": "NAME", "NetworkNodes": ["x", "y"]}]},
    ),
    "import labels, Kubernetes": of_text(
        READERS["labels"],
        {
            "items": [
                {
                    "metadata": {
                        "name": "NAME",
                        "labels": {"topology.kubernetes.io/zone": "x"},
                    }
                }
            ]
        },
    ),
    "import topograph": of_text(
        READERS["topograph"],
        {"instances": [{"id": "NAME", "network_layers": ["x"]}]},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_in_takes_a_bad_name(tmp_path: Path, way: str) -> None:
    """Tests each reader with each bad name: one line, which names the file."""
    for name in BAD:
        if way.endswith("user") and name == "a..b":
            continue  # of a user it harms nobody
        path = tmp_path / "file"
        with pytest.raises(CloudcollError) as caught:
            WAYS[way](name)(path)
        line = str(caught.value)
        assert line.startswith(f"{path}: "), (name, line)
        assert line.isprintable(), (name, line)


LINES = {
    "hostfile": (lambda path: parse_hosts(path.read_text(), str(path)), "a\nNAME\n"),
    "slurm": (READERS["slurm"], "SwitchName=s Nodes=a,NAME\n"),
    "labels": (READERS["labels"], "a x/y\nNAME x/y\n"),
    "names": (read_names, "i-1 a\ni-2 NAME\n"),
    "matrix": (read_matrices, ",a,NAME\na,,50\nNAME,50,\n"),
}


@pytest.mark.parametrize("way", LINES)
def test_no_line_takes_a_bad_name(tmp_path: Path, way: str) -> None:
    """Tests formats of lines with all bad names that they can hold as a name."""
    read, form = LINES[way]
    for name in BAD:
        if not name or set(name) & set(" \t\n,;#=:[]%") or name == "\u2028":
            continue  # another line, or another name
        with pytest.raises(UsageError) as caught:
            of_text(read, form)(name)(tmp_path / "file")
        line = str(caught.value)
        assert line.startswith(f"{tmp_path / 'file'}:"), (name, line)
        assert line.isprintable(), (name, line)


@pytest.mark.parametrize("digest", ["\nevil slots=8", "a b", "x" * 200, "\x1b[2J"])
def test_the_digest_of_a_map_is_a_word(digest: str) -> None:
    """Tests that what stands in a file's comment cannot end it."""
    text = json.dumps({"schema": 1, "order": ["a"], "slots": [1], "snapshot": digest})
    with pytest.raises(UsageError, match=r"^map\.json: .*is not a digest"):
        RankMap.from_json(text, "map.json")


@pytest.mark.parametrize("address", ["-oX", "a b", "10.0.0.1\n10.0.0.2", 7])
def test_an_address_that_an_agent_tells_is_checked(address: object) -> None:
    """Tests the frame that says how another host is reached: maps keep that."""
    frame = {"type": "ready", "unknown": [], "next": "10.0.0.3"}
    assert check(frame)["next"] == "10.0.0.3"
    assert check({**frame, "next": ""})["next"] == ""
    with pytest.raises(FrameError):
        check({**frame, "next": address})


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"7", b"{}", b'["a"]', b"[1, 2]"),
        *(b'["a", -1]', b'["a", 2.0]', b'["a", true]', b'["a", 99999999]'),
    ],
)
def test_a_stranger_s_place_is_none(said: bytes) -> None:
    """Tests what anybody may write into torchrun's store."""
    assert read_place(said) == Place()
    assert read_place(b'["d", 3]') == Place("d", 3)


def test_no_value_holds_a_bad_name() -> None:
    """Tests that a host, a map and a fabric can't even be made of one."""
    for name in BAD:
        for make in (
            lambda name: Host(name),
            lambda name: RankMap((name,), (1,)),
            lambda name: Fabric(Node("core", (Node(name), Node("b")))),
        ):
            with pytest.raises(UsageError):
                make(name)


def test_an_exported_file_has_a_line_for_each_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that the names of the attack never reach a file for a launcher."""
    path = tmp_path / "map.json"
    path.write_text(json.dumps({**MAP, "order": ["a", BAD[0]]}))
    for format in FORMATS:
        assert main(["export", str(path), "--format", format]) == 2
        told = capsys.readouterr()
        assert told.out == ""
        assert len(told.err.splitlines()) == 1
    snapshot = tmp_path / "a.snap"
    tree = {"name": "r", "children": [{"name": "a"}, {"name": BAD[0]}]}
    snapshot.write_bytes(stored({**HEADER, "fabric": {"root": tree}}))
    assert main(["export", str(snapshot), "--format", "topology"]) == 3
    assert capsys.readouterr().out == ""
    named = Fabric(Node("core", (Node("g\nSwitchName=evil", (Node("a"), Node("b"))),)))
    assert "evil" not in topology_conf(named)
