from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from strategies import fabrics, json_values

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import ALTERNATIVES, LEVELS
from cloudcoll.network import forms
from cloudcoll.network.forms import (
    LONGEST_NAME,
    fabric_from_dict,
    fabric_to_dict,
    node_from_dict,
    root_from_dict,
)
from cloudcoll.network.tree import Alternative, Fabric, Node


@given(fabrics())
def test_the_stored_form_is_read_back(fabric: Fabric) -> None:
    """Tests that JSON text holds all of a fabric, NaN included."""
    text = json.dumps(fabric_to_dict(fabric), allow_nan=False)
    again = fabric_from_dict(json.loads(text))
    assert fabric_to_dict(again) == fabric_to_dict(fabric)
    assert again.hosts == fabric.hosts
    assert again.origin == fabric.origin


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_notes_are_stored(share: float) -> None:
    """Tests that origin, error, warnings and all alternatives survive the stored form.

    As do shares of none and of all.
    """
    root = Node("core", (Node("a"),))
    others = (Alternative(share, root),) * ALTERNATIVES
    fabric = Fabric(root, "labels", 0.125, ("one", "two"), share, others)
    assert fabric_from_dict(fabric_to_dict(fabric)) == fabric


@given(json_values)
def test_any_json_is_a_fabric_or_refused(data: object) -> None:
    """Tests that nothing but a one-line UsageError comes from a bad tree."""
    forms: list[Any] = [data, {"root": data}, {"root": {"name": "x"}, "warnings": data}]
    forms += [
        {"root": {"name": "x"}, key: data}
        for key in ("holdout_error", "confidence", "alternatives")
    ]
    forms += [{"root": {"name": "x"}, "alternatives": [data]}]
    for form in forms:
        message = ""
        try:
            assert fabric_from_dict(form).hosts
        except UsageError as error:
            message = str(error)
        assert len(message.splitlines()) <= 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "must be an object"),
        ({}, "must be an object with a 'name'"),
        ({"name": 3}, "'name'"),
        ({"name": "two\nlines"}, "is not a group's name"),
        ({"name": "x" * (LONGEST_NAME + 1)}, "is not a group's name"),
        ({"name": "x", "speed": 1}, "unknown field 'speed'"),
        ({"name": "x", "children": "ab"}, "'children' must be a list"),
        ({"name": "x", "children": {}}, "'children' must be a list"),
        ({"name": "x", "children": [3]}, "must be an object"),
        ({"name": "x", "latency_s": -1}, "must be a number of 0 or more, not -1"),
        ({"name": "x", "uplink_bytes_per_s": 0}, "must be a number above 0, not 0"),
        ({"name": "x", "latency_s": True}, "must be a number"),
        ({"name": "x", "latency_s": "1"}, "must be a number"),
        ({"name": "x", "latency_s": math.inf}, "must be a number"),
        ({"name": "x", "uplink_bytes_per_s": 10**400}, "must be a number"),
        ({"name": "x", "downlink_bytes_per_s": math.nan}, "must be a number"),
    ],
)
def test_bad_nodes_are_refused(data: object, message: str) -> None:
    """Tests that each kind of wrong field is named."""
    with pytest.raises(UsageError, match=message):
        node_from_dict(data)


def nested(levels: int, *inside: dict[str, Any]) -> dict[str, Any]:
    """Return groups in each other, the last one of some nodes."""
    nodes = [*inside]
    for _ in range(levels):
        nodes = [{"name": "group", "children": nodes}]
    return nodes[0]


def test_deep_trees_are_refused() -> None:
    """Tests the guard against nesting bombs, at its exact depth."""
    leaf = {"name": "leaf"}
    assert list(node_from_dict(nested(LEVELS, leaf)).leaves()) == ["leaf"]
    with pytest.raises(UsageError, match=f"more than {LEVELS} levels"):
        node_from_dict(nested(LEVELS + 1, leaf))


A, B, C, D = ({"name": name} for name in "abcd")


def test_large_trees_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that hosts and groups count at every depth.

    A node with an empty list of children is a host.
    """
    monkeypatch.setattr(forms, "STORED_HOSTS", 3)
    monkeypatch.setattr(forms, "GROUPS", 2)
    empty = {"name": "c", "children": []}
    allowed = nested(1, nested(1, A, B), empty)
    assert list(root_from_dict(allowed).leaves()) == ["a", "b", "c"]
    for children, refused in (
        ([nested(1, A, B), C, D], "4 hosts in 2 groups"),
        ([nested(1, A), nested(1, B)], "2 hosts in 3 groups"),
        ([nested(LEVELS - 1, A, B, C, D)], f"4 hosts in {LEVELS} groups"),
    ):
        with pytest.raises(UsageError, match=f"{refused}: at most 3 in 2"):
            root_from_dict(nested(1, *children))
    monkeypatch.setattr(forms, "GROUPS", LEVELS)
    with pytest.raises(UsageError, match=f"4 hosts in {LEVELS} groups: at most 3"):
        root_from_dict(nested(LEVELS, A, B, C, D))


def test_the_longest_name_and_the_widest_link_are_read() -> None:
    """Tests the largest name and rate that are allowed."""
    name, rate = "x" * LONGEST_NAME, sys.float_info.max
    node = node_from_dict({"name": name, "uplink_bytes_per_s": rate})
    assert (node.name, node.uplink_bytes_per_s) == (name, rate)


def test_one_capacity_stands_for_both_directions() -> None:
    """Tests that the way down is as wide as the way up where it is not said."""
    node = node_from_dict({"name": "x", "uplink_bytes_per_s": 5})
    assert (node.uplink_bytes_per_s, node.downlink_bytes_per_s) == (5.0, 5.0)


@pytest.mark.parametrize(
    "other",
    [
        {"share": 1.5, "root": {"name": "x"}},
        {"share": None, "root": {"name": "x"}},
        {"share": 0.5, "root": {"name": "y"}},
    ],
)
def test_alternatives_have_a_share_and_the_same_hosts(other: dict[str, Any]) -> None:
    """Tests that another tree of other hosts, or without a share, is refused."""
    with pytest.raises(UsageError):
        fabric_from_dict({"root": {"name": "x"}, "alternatives": [other]})


def test_a_fabric_has_few_alternatives() -> None:
    """Tests that one more than may be stored is refused."""
    others = [{"share": 0.0, "root": {"name": "x"}}] * (ALTERNATIVES + 1)
    with pytest.raises(UsageError, match=f"at most {ALTERNATIVES}"):
        fabric_from_dict({"root": {"name": "x"}, "alternatives": others})
