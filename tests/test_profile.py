from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import json_values

from cloudcoll.collectives.workload import read_workload
from cloudcoll.errors import UsageError
from cloudcoll.profile import Profile, is_profile, load_profile, read_profile
from cloudcoll.report.traffic import profile_json, profile_lines

HALVES = {"w": [0, 1, 2, 3], "even": [0, 2], "odd": [1, 3], "self": [0]}


def row(group: str, collective: str, calls: int, size: int, seconds: float) -> Any:
    """Return a row as the library writes it: sums over the ranks of the group."""
    ranks = len(HALVES[group])
    return {
        "group": group,
        "collective": collective,
        "calls": calls * ranks,
        "bytes": calls * ranks * size,
        "seconds": seconds * ranks,
        "least_seconds": seconds / 2,
    }


ROWS = [
    row("w", "allreduce", 10, 1 << 24, 5.0),
    row("even", "allgather", 64, 1 << 20, 2.0),
    row("odd", "allgather", 64, 1 << 20, 1.0),
    row("w", "barrier", 3, 0, 0.5),
    row("w", "bcast", 1, 100, 1e-6),
    row("self", "allreduce", 1000, 8, 4.0),
]


def text(rows: list[Any], **changes: Any) -> str:
    """Return a profile of four ranks, as the library writes it."""
    data = {
        "schema": "cloudcoll-profile-1",
        "ranks": 4,
        "seconds": 20.0,
        "library": "Open MPI v5.0.11, package: x",
        "groups": HALVES,
        "calls": rows,
    }
    return json.dumps(data | changes)


def profile(rows: list[Any] = ROWS, **changes: Any) -> Profile:
    return read_profile(text(rows, **changes), "p.json")


def test_sums_become_calls_of_a_group() -> None:
    """Tests the figures of a group, what took most time first."""
    first, *_, last = profile().calls
    assert (first.collective, first.group) == ("allreduce", (0, 1, 2, 3))
    assert (first.calls, first.size, first.seconds) == (10, 1 << 24, 5.0)
    assert last.collective == "bcast"
    assert profile().share == pytest.approx((4 * 5.5 + 2 * 3 + 4 + 4e-6) / 80)


def test_a_workload_of_what_takes_time() -> None:
    """Tests that groups that call alike share an operation, the rest is left out."""
    workload = profile().workload("p.json")
    assert [
        (op.collective, op.calls, op.size, op.where, [list(g) for g in op.groups])
        for op in workload.operations
    ] == [
        ("allreduce", 10, 1 << 24, "world", [[0, 1, 2, 3]]),
        ("allgather", 64, 1 << 20, "groups 1", [[0, 2], [1, 3]]),
        ("barrier", 3, 0, "world", [[0, 1, 2, 3]]),
    ]
    again = read_workload(json.dumps(workload.describe()), "w")
    assert np.array_equal(again.pair_bytes(), workload.pair_bytes())
    assert workload.pair_bytes().sum() > 10 * 2 * 3 * (1 << 24)


def test_groups_that_share_ranks_take_turns() -> None:
    """Tests that such groups become operations of their own."""
    groups = {"a": [0, 1, 2], "b": [2, 3], "c": [0, 1]}
    rows = [{**row("even", "bcast", 5, 1 << 20, 1.0), "group": group} for group in "bc"]
    alike = profile(rows, groups=groups).workload("p")
    assert [len(op.groups) for op in alike.operations] == [2]
    rows.append({**row("odd", "bcast", 5, 1 << 20, 1.0), "group": "d"})
    turns = profile(rows, groups=groups | {"d": [1, 2]}).workload("p")
    assert [op.where for op in turns.operations] == ["groups 1", "groups 2"]


@pytest.mark.parametrize(
    ("library", "selector"),
    [
        ("Open MPI v4.1.8, package: x", "openmpi@4.1.8"),
        ("MPICH Version:      5.0.2", "mpich@5.0.2"),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "mpich"),
    ],
)
def test_libraries(library: str, selector: str) -> None:
    """Tests whose rules choose the algorithms."""
    assert profile(library=library).selector == selector
    assert profile(library=library).workload("p").operations


def test_nothing_between_ranks() -> None:
    """Tests that a job whose ranks sent nothing is not solved for."""
    for rows in ([], ROWS[-1:]):
        with pytest.raises(UsageError, match="nothing to solve for"):
            profile(rows).workload("p")
        assert list(profile_lines(profile(rows), "p"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "cloudcoll-profile-2"}, "'cloudcoll-profile-1'"),
        ({"ranks": 2}, "no group of ranks 0 to 1"),
        ({"ranks": True}, "no whole number"),
        ({"groups": {}}, "no 'w'"),
        ({"seconds": float("nan")}, "NaN is no number"),
        ({"seconds": -1.0}, "no time"),
        ({"ranks": 10**12}, "too large"),
        ({"calls": [{**ROWS[0], "collective": "scan"}]}, "unknown collective 'scan'"),
        ({"calls": [{**ROWS[0], "calls": 0}]}, "no whole number, 1"),
        ({"seconds": 10**400}, "too large"),
        ({"calls": [{**ROWS[0], "bytes": 10**400}]}, "too large"),
    ],
)
def test_wrong_values(changes: dict[str, Any], said: str) -> None:
    """Tests that a profile that is not one is refused in one line."""
    with pytest.raises(UsageError, match=said) as raised:
        profile(**changes) if "calls" not in changes else profile(changes["calls"])
    assert "\n" not in str(raised.value)


@given(json_values | st.fixed_dictionaries({"schema": st.just("cloudcoll-profile-1")}))
def test_any_json(value: object) -> None:
    """Tests that no other JSON passes, or crashes the reader."""
    with pytest.raises(UsageError, match="is no profile"):
        read_profile(json.dumps(value), "x")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """Tests that the message says how to make one."""
    with pytest.raises(UsageError, match="cloudcoll run --profile"):
        load_profile(tmp_path / "none")
    assert is_profile(text(ROWS))
    assert not is_profile('{"schema": 1}')


def test_json_of_a_job_without_any_time() -> None:
    """Tests that a share of nothing is null: NaN is no JSON."""
    shown = profile_json(profile([], seconds=0))
    assert json.loads(json.dumps(shown, allow_nan=False))["share"] is None
    assert profile_json(profile())["share"] == profile().share


def test_a_report_of_a_screen() -> None:
    """Tests what took the time, per collective, class of sizes and groups' size."""
    lines = list(profile_lines(profile(), "p.json"))
    assert lines[0] == "profile of 4 ranks, Open MPI v5.0.11: 20 s, 40% in collectives"
    assert [line.split()[:2] for line in lines[3:5]] == [
        ["62%", "allreduce"],
        ["19%", "allgather"],
    ]
    assert "2 x 2   64     1 MiB" in lines[4]
    assert lines[-1] == "next: cloudcoll solve SNAP --workload p.json"
