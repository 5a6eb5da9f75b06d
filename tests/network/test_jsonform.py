from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from strategies import fabrics, json_values

from cloudcoll.errors import UsageError
from cloudcoll.files.limits import LEVELS
from cloudcoll.network.forms import fabric_from_dict, fabric_to_dict, node_from_dict
from cloudcoll.network.tree import Alternative, Fabric, Node


@given(fabrics())
def test_the_stored_form_is_read_back(fabric: Fabric) -> None:
    """Tests that JSON text holds all of a fabric, NaN included."""
    text = json.dumps(fabric_to_dict(fabric), allow_nan=False)
    again = fabric_from_dict(json.loads(text))
    assert fabric_to_dict(again) == fabric_to_dict(fabric)
    assert again.hosts == fabric.hosts
    assert again.origin == fabric.origin


def test_notes_are_stored() -> None:
    """Tests that origin, error and warnings survive the stored form."""
    other = Alternative(0.25, Node("core", (Node("a"),)))
    fabric = Fabric(
        Node("core", (Node("a"),)), "labels", 0.125, ("one", "two"), 0.75, (other,)
    )
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


def test_deep_trees_are_refused() -> None:
    """Tests the guard against nesting bombs, at its exact depth."""

    def nested(levels: int) -> dict[str, object]:
        node: dict[str, object] = {"name": "leaf"}
        for _ in range(levels):
            node = {"name": "group", "children": [node]}
        return node

    assert list(node_from_dict(nested(LEVELS)).leaves()) == ["leaf"]
    with pytest.raises(UsageError, match=f"more than {LEVELS} levels"):
        node_from_dict(nested(LEVELS + 1))


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
