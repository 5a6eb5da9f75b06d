from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values, rank_maps

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.rankmap import SCHEMA, RankMap, load_rankmap

WHOLE = RankMap(
    order=("b", "a"),
    slots=(2, 1),
    schedule={"algorithm": "ring"},
    predicted={"cloudcoll": 0.5, "given": 1.0},
    snapshot="abc",
    seed=7,
    lower_bound=0.25,
    origin="search",
    measured=0.75,
    addresses={"a": "10.0.0.1"},
)


CALL = {"collective": "bcast", "least": 1, "most": 9, "order": ["a", "b"]}


def parse(data: object) -> RankMap:
    return RankMap.from_json(json.dumps(data), "map.json")


def changed(key: str, value: object) -> dict[str, Any]:
    return {**json.loads(WHOLE.to_json()), key: value}


@pytest.mark.parametrize(
    ("predicted", "bound", "gap"),
    [
        ({"cloudcoll": 0.5}, 0.25, 1.0),
        ({"cloudcoll": 0.5}, 0.5, 0.0),
        # A bound above the answer by rounding alone.
        ({"cloudcoll": 0.5}, 0.5 * (1 + 1e-12), 0.0),
        ({"cloudcoll": 0.5}, 0.0, math.nan),
        ({"cloudcoll": 0.5}, None, math.nan),
        ({"given": 0.5}, 0.25, math.nan),
    ],
)
def test_the_gap_to_the_lower_bound(
    predicted: dict[str, float], bound: float | None, gap: float
) -> None:
    """Tests that the gap is a share of the bound, and NaN where nothing is known."""
    rank_map = RankMap(("a",), (1,), predicted=predicted, lower_bound=bound)
    assert rank_map.gap == pytest.approx(gap, nan_ok=True)


@given(rank_maps())
def test_the_json_form_is_read_back(rankmap: RankMap) -> None:
    """Tests that every field survives, whatever the host names."""
    assert RankMap.from_json(rankmap.to_json()) == rankmap


def test_the_file_is_read_back(tmp_path: Path) -> None:
    """Tests the round trip through a file."""
    WHOLE.save(tmp_path / "map.json")
    assert load_rankmap(tmp_path / "map.json") == WHOLE


def test_the_documented_fields_are_there() -> None:
    """Tests the keys that DESIGN promises to other programs."""
    data = json.loads(WHOLE.to_json())
    assert data["schema"] == SCHEMA
    assert data["order"] == ["b", "a"]
    assert data["slots"] == [2, 1]
    assert {"schedule", "predicted", "snapshot"} <= data.keys()


def test_placement_keeps_hosts_whole() -> None:
    """Tests that a host's ranks are consecutive and slots count up."""
    assert list(WHOLE.placement()) == [("b", 0), ("b", 1), ("a", 0)]
    assert WHOLE.size == 3


@given(rank_maps())
def test_placement_is_a_bijection(rankmap: RankMap) -> None:
    """Tests that every (host, slot) gets exactly one rank."""
    placement = list(rankmap.placement())
    assert len(placement) == len(set(placement)) == rankmap.size
    slots = dict(zip(rankmap.order, rankmap.slots, strict=True))
    assert all(0 <= slot < slots[host] for host, slot in placement)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 2),
        ("schema", True),
        ("schema", 1.0),
        ("schema", None),
        ("order", None),
        ("order", []),
        ("order", "ab"),
        ("order", ["a", 1]),
        ("order", ["a", "a"]),
        ("order", ["a"]),
        ("slots", None),
        ("slots", [2]),
        ("slots", [2, True]),
        ("slots", [2, 1.0]),
        ("slots", [2, "1"]),
        ("slots", [2, 0]),
        ("slots", [2, -1]),
        ("slots", {"a": 1}),
        ("schedule", []),
        ("schedule", None),
        ("schedule", {"size": "16M"}),
        ("schedule", {"segment": math.nan}),
        ("predicted", [1.0]),
        ("predicted", {"given": "fast"}),
        ("predicted", {"given": None}),
        ("predicted", {"given": True}),
        ("predicted", {"given": -1.0}),
        ("predicted", {"given": math.nan}),
        ("predicted", {"given": math.inf}),
        ("predicted", {"given": 10**400}),
        ("snapshot", 5),
        ("snapshot", None),
        ("seed", "7"),
        ("seed", None),
        ("seed", 1.5),
        ("seed", True),
        ("lower_bound", "low"),
        ("lower_bound", [1]),
        ("lower_bound", False),
        ("lower_bound", 10**400),
        ("origin", 3),
        ("reason", None),
        ("origin", ["given"]),
        ("calls", [1]),
        ("calls", [{}]),
        ("calls", [{**CALL, "least": "1K"}]),
        ("calls", [{**CALL, "order": ["a"]}]),
        ("calls", [{**CALL, "order": ["a", "c"]}]),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(key: str, value: object) -> None:
    """Tests that the field with a wrong type or value is refused."""
    with pytest.raises(UsageError) as caught:
        parse(changed(key, value))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["schema", "order", "slots"])
def test_a_missing_field_is_refused(key: str) -> None:
    """Tests that what a map cannot do without is named."""
    data = changed(key, None)
    del data[key]
    with pytest.raises(UsageError, match=rf"map.json: .*{key}"):
        parse(data)


def test_only_the_order_and_slots_are_needed() -> None:
    """Tests that the smallest map another program would write is read."""
    assert parse({"schema": 1, "order": ["a"], "slots": [1]}) == RankMap(("a",), (1,))


@given(json_values)
def test_any_json_is_a_map_or_refused(data: object) -> None:
    """Tests that nothing but UsageError comes from arbitrary JSON."""
    read_or_refused(json.dumps(data))


@given(st.sampled_from(sorted(json.loads(WHOLE.to_json()))), json_values)
def test_any_field_is_read_or_refused(key: str, value: object) -> None:
    """Tests that nothing but UsageError comes from an arbitrary field."""
    read_or_refused(json.dumps(changed(key, value)))


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    """Tests that text which is no map never gets further than UsageError."""
    read_or_refused(text)


@pytest.mark.parametrize("text", ["", "[" * 200_000, "1" * 10_000, '{"schema": 1'])
def test_hostile_text_is_refused(text: str) -> None:
    """Tests deep nesting, huge numbers and a cut file."""
    with pytest.raises(UsageError):
        RankMap.from_json(text)


def read_or_refused(text: str) -> None:
    message = ""
    try:
        rankmap = RankMap.from_json(text)
        assert RankMap.from_json(rankmap.to_json()) == rankmap
    except UsageError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Tests a missing file, a folder and bytes that are no text."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, reason in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (binary, "not text"),
    ):
        with pytest.raises(UsageError, match=f"{path.name}: {reason}.*cloudcoll solve"):
            load_rankmap(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Tests that saving below a file is an error, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableError, match="cannot write"):
        WHOLE.save(tmp_path / "file" / "map.json")
