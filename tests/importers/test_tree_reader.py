from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudcoll.errors import UsageError
from cloudcoll.importers.reading import NO_SPEEDS, collapsed
from cloudcoll.importers.trees import read_tree
from cloudcoll.network.tree import Node

RACK = {
    "name": "rack-1",
    "uplink_bytes_per_s": 1e9,
    "latency_s": 2e-5,
    "children": [{"name": "vm-2", "uplink_bytes_per_s": 3e9}, {"name": "vm-1"}],
}


def write(folder: Path, value: Any) -> Path:
    path = folder / "tree.json"
    path.write_text(json.dumps(value))
    return path


def test_a_tree_is_read(tmp_path: Path) -> None:
    """Tests order, capacities both ways and latency."""
    root = {"name": "core", "children": [RACK, {"name": "vm-3"}]}
    snapshot = read_tree(write(tmp_path, root))
    assert snapshot.names == ("vm-2", "vm-1", "vm-3")
    assert snapshot.origin == "imported"
    assert snapshot.fabric is not None
    assert not snapshot.fabric.warnings
    rack = snapshot.fabric.root.children[0]
    assert (rack.uplink_bytes_per_s, rack.downlink_bytes_per_s) == (1e9, 1e9)
    assert rack.latency_s == 2e-5


def test_a_tree_of_names_says_what_it_lacks(tmp_path: Path) -> None:
    """Tests the warning of a tree without capacity and latency."""
    snapshot = read_tree(write(tmp_path, {"name": "c", "children": [{"name": "a"}]}))
    assert snapshot.fabric is not None
    assert snapshot.fabric.warnings == (NO_SPEEDS,)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "a fabric node must be an object"),
        (
            {"name": "core", "children": [{"name": "a", "speed": 1}]},
            "unknown field 'sp",
        ),
        ({"name": "core", "children": [{"name": "a"}] * 2}, "'a' stands twice"),
        ({"name": "core", "children": [{"name": "-a"}]}, "leaf: '-a' is not a host"),
        ({"name": "\t", "children": [RACK]}, r"group: '\\t' is not a group's name"),
        ({"name": "core", "children": [RACK | {"latency_s": -1}]}, "'latency_s' must"),
    ],
)
def test_a_bad_tree_is_refused(tmp_path: Path, value: Any, message: str) -> None:
    """Tests that the file and the node of what is wrong are named."""
    path = write(tmp_path, value)
    with pytest.raises(UsageError, match=message) as caught:
        read_tree(path)
    assert str(caught.value).startswith(str(path))


def test_a_group_of_one_is_left_out() -> None:
    """Tests that what is left takes the narrower link and both latencies."""
    host = Node("a", (), 5.0, 4.0, 1.0)
    chain = Node("outer", (Node("inner", (host,), 3.0, 9.0, 2.0),))
    root = collapsed(Node("top", (chain, Node("b"))))
    assert root == Node("core", (Node("a", (), 3.0, 4.0, 3.0), root.children[1]))
    assert collapsed(chain) == Node("core", (Node("a", (), 3.0, 4.0, 3.0),))
