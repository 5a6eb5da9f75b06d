from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values, tunings

from cloudcoll.collectives import SCHEDULES
from cloudcoll.errors import UsageError
from cloudcoll.files.limits import TUNED_RANGES
from cloudcoll.libraries.telling import LIBRARIES, algorithms_of
from cloudcoll.rankmap import RankMap
from cloudcoll.tuning import TunedRange, Tuning, read_tuning

RING = TunedRange(
    "allreduce", 0, "ring", {"segment": 8}, 0.25, 0.5, 1 << 20, measured=True
)
TUNING = Tuning("openmpi@5.0.11", 16, 1, (RING,))
WHOLE = RankMap(("a", "b"), (8, 8), tuning=TUNING)


def as_json() -> dict[str, Any]:
    """Return a tuning as a file has it."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(TUNING)))
    return data


def changed(**fields: object) -> object:
    """Return the JSON form with other fields, of the range where that has them."""
    data = as_json()
    for name, value in fields.items():
        (data if name in data else data["ranges"][0])[name] = value
    return data


@given(tunings())
def test_a_map_keeps_its_tuning(tuning: Tuning) -> None:
    """Tests that a tuning comes back as it was, out of a rank map's file."""
    rank_map = RankMap(("a",), (tuning.ranks,), tuning=tuning)
    assert RankMap.from_json(rank_map.to_json()) == rank_map


def test_older_maps_have_none() -> None:
    """Tests that a map without the field, or with null, is one without a tuning."""
    data = json.loads(WHOLE.to_json())
    for tuning in ({}, {"tuning": None}):
        del data["tuning"]
        data |= tuning
        assert RankMap.from_json(json.dumps(data)).tuning is None
        data["tuning"] = None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"library": 5}, "'library' must be a text"),
        ({"ranks": 1}, "'ranks' must be a whole number, 2 to"),
        ({"ranks": True}, "'ranks' must be a whole number"),
        ({"local": -1}, "'local' must be a whole number, 0 to"),
        ({"ranges": {}}, "'ranges' must be a list"),
        ({"ranges": [asdict(RING)] * (TUNED_RANGES + 1)}, "a list of at most 4096"),
        ({"ranges": ["ring"]}, "a range must be an object"),
        ({"least": 1}, "the sizes of allreduce in a tuning must begin with 0 and rise"),
        ({"least": 1 << 31}, "'least' must be a whole number, 0 to 2147483647"),
        ({"algorithm": None}, "'algorithm' must be a text"),
        ({"parameters": []}, "'parameters' must be an object"),
        ({"parameters": {"segmnt": 8}}, "unknown parameter 'segmnt' (did you mean seg"),
        ({"parameters": {"segment": -8}}, "'segment' must be a whole number"),
        ({"predicted": float("nan")}, "'predicted' must be seconds, 0 or more"),
        ({"own": -1}, "'own' must be seconds, 0 or more"),
        ({"size": 0.5}, "'size' must be a whole number"),
        ({"measured": 1}, "'measured' must be true or false"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, object], said: str) -> None:
    """Tests that what is wrong is refused in one line that names the field."""
    with pytest.raises(UsageError) as error:
        read_tuning(changed(**fields), "map.json")
    assert said in str(error.value)
    assert str(error.value).startswith("map.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("where", ["ranges", "library"])
def test_unknown_fields_are_refused(where: str) -> None:
    """Tests that a field that is not known here is not passed over."""
    data = as_json()
    place = data["ranges"][0] if where == "ranges" else data
    place["colour"] = "red"
    with pytest.raises(UsageError, match="unknown field 'colour'"):
        read_tuning(data, "map.json")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"algorithm": "rign"},
            "map.json: openmpi@5.0.11 can't be told an algorithm 'rign' for "
            "'allreduce' (did you mean ring?",
        ),
        ({"collective": "scan"}, "an algorithm 'ring' for 'scan' (it has none)"),
        ({"library": "gloo@2.13"}, "gloo@2.13 can't be told an algorithm 'ring'"),
        ({"library": "opnmpi"}, "unknown library 'opnmpi' (did you mean openmpi?"),
        ({"library": "mpich@x"}, "'mpich@x': 'x' is not a version"),
        ({"ranks": 8}, "a tuning for 8 ranks in a rank map of 16"),
    ],
)
def test_a_map_whose_tuning_can_not_be(fields: dict[str, object], said: str) -> None:
    """Tests that a map is refused whose library or algorithm nobody knows."""
    data = json.loads(WHOLE.to_json()) | {"tuning": changed(**fields)}
    with pytest.raises(UsageError) as error:
        RankMap.from_json(json.dumps(data), "map.json")
    assert said in str(error.value)


@given(json_values)
def test_anything_else_is_one_error(data: object) -> None:
    """Tests that no value is taken for a tuning, or ends in another error."""
    with pytest.raises(UsageError):
        read_tuning(data, "map.json")


@given(st.sampled_from(LIBRARIES), st.sampled_from(sorted(SCHEDULES)))
def test_all_names_have_schedules(library: str, collective: str) -> None:
    """Tests that what a library can be told is what can be predicted."""
    assert set(algorithms_of(library, collective)) <= set(SCHEDULES[collective])
