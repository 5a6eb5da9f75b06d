"""Whatever a file holds, a reader returns a snapshot or one line of UsageError."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from newfiles import write_new
from strategies import fabrics, json_values

from cloudcoll.errors import UsageError
from cloudcoll.importers import READERS, read_matrices, reading
from cloudcoll.importers.labels import read_names, read_prior
from cloudcoll.measured.snapshot import NetworkSnapshot, load_snapshot
from cloudcoll.network.forms import fabric_to_dict
from cloudcoll.network.tree import Fabric

names = st.sampled_from(["a", "b", "n1", "n[1-3]", "", "-x", "é", "a b", "\ud800"])
keys = st.sampled_from(
    [
        *("name", "children", "uplink_bytes_per_s", "latency_s", "root"),
        *("instances", "id", "network_layers", "labels", "attributes"),
        *("Instances", "InstanceId", "NetworkNodes", "ZoneId"),
        *("items", "metadata", "topology.kubernetes.io/zone"),
        *("resourceStatus", "physicalHost", "physicalHostTopology", "zone"),
    ]
)
documents = st.recursive(
    names | st.none() | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5)
    ),
    max_leaves=20,
)
some_hosts = st.sampled_from([f"n{number}" for number in range(9)])
layers = st.lists(st.sampled_from("xyz"), max_size=3)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object with some of these fields, now and then of a wrong type."""
    return st.fixed_dictionaries({}, optional=fields) | st.fixed_dictionaries(fields)


def listed(key: str, item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({key: st.lists(item, min_size=1, max_size=4)})


leaves = record(name=some_hosts, uplink_bytes_per_s=st.floats(0, 9))
status = record(physicalHost=layers.map("/".join), physicalHostTopology=documents)
zones = st.dictionaries(keys, st.sampled_from("xyz"), max_size=3)
nearly: dict[str, st.SearchStrategy[Any]] = {
    "fabric": st.recursive(
        leaves,
        lambda node: record(name=some_hosts, children=st.lists(node, max_size=3)),
        max_leaves=6,
    ),
    "labels": st.one_of(
        listed("Instances", record(InstanceId=some_hosts, NetworkNodes=layers)),
        listed("items", record(metadata=record(name=some_hosts, labels=zones))),
        st.lists(record(name=some_hosts, zone=names, resourceStatus=status)),
    ),
    "topograph": listed(
        "instances", record(id=some_hosts, network_layers=layers, labels=documents)
    ),
    "slurm": documents,
}
"""Documents that a reader often takes; hosts that stand twice are the rest."""

switches = st.sampled_from(["s0", "s1", "s2", "s[3-5]"])
slurm_lines = st.lists(
    st.builds("SwitchName={} Nodes={}".format, switches, some_hosts)
    | st.builds("SwitchName={} Switches={}".format, switches, switches)
    | st.builds("BlockName={} Nodes={}".format, switches, some_hosts),
    max_size=5,
).map("\n".join)
words = st.lists(
    st.sampled_from(
        [
            *("SwitchName=", "Switches=", "Nodes=", "LinkSpeed=", "BlockName="),
            *("s1", "s[0-2]", "n1", "n[1-", "40", " ", "\n", "\\\n", "#", ",", "\t"),
            *("1.5", "nan", "-2", "inf", "host", "a", "b", ";", "/", '"', "\u2028"),
            *("Recv\t", "a:0\t", "a:0 from\t", "b:1\t", "b:1 from\t"),
        ]
    ),
    max_size=24,
).map("".join)
headers = st.builds(
    lambda shape, kind: (
        f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}}}"
    ),
    st.sampled_from(
        ["(2, 2)", "(2,)", "()", "(10**9, 10**9)", "(-2, -2)", "x", "(3,3)"]
    ),
    st.sampled_from(["<f8", "|O", "<U4", "no", "<i2", "<c16"]),
)


def refusal_of(read: Callable[[Path], Any], path: Path) -> str:
    """Return the one line that `read` refuses with, nothing if it does not."""
    try:
        snapshot = read(path)
    except UsageError as error:
        (line,) = str(error).splitlines()
        assert line.encode()
        return line
    if isinstance(snapshot, NetworkSnapshot):
        snapshot.save(path.with_suffix(".snap"))
        again = load_snapshot(path.with_suffix(".snap"))
        assert again.fabric is not None
        assert sorted(again.fabric.hosts) == sorted(snapshot.names)
    return ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("format", sorted(READERS))
def test_any_json_is_read_or_refused(folder: Path, format: str) -> None:
    """Tests trees of the formats' own keys, and any JSON at all."""

    @given(documents | json_values | nearly[format])
    def check(value: Any) -> None:
        path = folder / "document"
        write_new(path, json.dumps(value).encode())
        refusal_of(READERS[format], path)

    check()


@pytest.mark.parametrize(
    "format",
    sorted([*READERS, "bandwidth", "latency", "mpigraph", "names", "prior"]),
)
def test_any_text_is_read_or_refused(folder: Path, format: str) -> None:
    """Tests text of the formats' own words, and any bytes at all."""
    readers: dict[str, Callable[[Path], Any]] = {
        **READERS,
        "bandwidth": lambda path: read_matrices(None, path, bandwidth_unit="MB/s"),
        "latency": read_matrices,
        "mpigraph": lambda path: read_matrices(mpigraph=path),
        "names": read_names,
        "prior": read_prior,
    }

    @given((words | slurm_lines).map(str.encode) | st.binary(max_size=60))
    def check(data: bytes) -> None:
        path = folder / "text"
        write_new(path, data)
        refusal_of(readers[format], path)

    check()


@given(
    cell=st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda c: c[0] != c[1]),
    bad=st.sampled_from(
        ["-1", "-0.5", "inf", "-inf", "1e400", "x", "0x10", "9e9", "0"]
    ),
    unit=st.sampled_from(["us", "MB/s"]),
)
def test_a_bad_cell_is_named(
    tmp_path_factory: pytest.TempPathFactory, cell: tuple[int, int], bad: str, unit: str
) -> None:
    """Tests that row, column and file of a cell no network can have are said."""
    path = tmp_path_factory.getbasetemp() / "cell.csv"
    table = [["50"] * 4 for _ in range(4)]
    row, column = cell
    table[row][column] = bad
    lines = [",".join([f"n{i}", *cells]) for i, cells in enumerate(table)]
    write_new(path, "\n".join([",n0,n1,n2,n3", *lines]).encode())
    way: dict[str, Callable[[Path], Any]] = {
        "us": read_matrices,
        "MB/s": lambda file: read_matrices(None, file, bandwidth_unit="MB/s"),
    }
    line = refusal_of(way[unit], path)
    where = rf"row {row + 1}( \(n{row}\))?, column {column + 1}( \(n{column}\))?: "
    assert re.match(re.escape(f"{path}: ") + where, line)


@given(header=headers, data=st.binary(max_size=80), version=st.sampled_from([1, 2, 9]))
def test_any_npy_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, header: str, data: bytes, version: int
) -> None:
    """Tests headers that promise too much, objects, and files cut off."""
    path = tmp_path_factory.getbasetemp() / "m.npy"
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    written = b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + data
    write_new(path, written)
    assert refusal_of(read_matrices, path)


def test_any_flipped_bit_in_an_npy_is_survived(tmp_path: Path) -> None:
    """Tests a good array with a bit changed, each of its header and of a number."""
    buffer = io.BytesIO()
    np.save(buffer, np.full((3, 3), 50.0))
    good = buffer.getvalue()
    path = tmp_path / "flipped.npy"
    for bit in range(8 * (len(good) - 64)):
        raw = bytearray(good)
        raw[bit // 8] ^= 1 << bit % 8
        write_new(path, raw)
        # Its rows have no names, so it is refused whatever became of it.
        assert refusal_of(read_matrices, path)


@given(fabrics())
def test_a_stored_tree_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, fabric: Fabric
) -> None:
    """Tests that ``import fabric`` reads what ``show --json`` prints."""
    path = tmp_path_factory.getbasetemp() / "tree.json"
    write_new(path, json.dumps(fabric_to_dict(fabric)).encode())
    again = READERS["fabric"](path).fabric
    assert again is not None
    mine, theirs = fabric_to_dict(fabric), fabric_to_dict(again)
    assert theirs["root"] == mine["root"]
    assert theirs["origin"] == "imported"


def test_a_nested_bomb_is_refused(tmp_path: Path) -> None:
    """Tests brackets nested deeper than Python's stack."""
    path = tmp_path / "bomb"
    path.write_text("[" * 200_000)
    for read in READERS.values():
        assert refusal_of(read, path)


def test_a_huge_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the cap, and a device that never ends."""
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    path = tmp_path / "big"
    path.write_bytes(b"[" + b" " * (1 << 20))
    for file in (path, Path("/dev/zero")):
        assert "more than 1 MiB" in refusal_of(READERS["labels"], file)
    assert "cannot read" in refusal_of(READERS["slurm"], tmp_path / "none")
