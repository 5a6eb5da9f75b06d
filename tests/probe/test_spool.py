from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.errors import UnusableError, UsageError
from cloudcoll.hosts import Host
from cloudcoll.probe.frames import FrameError
from cloudcoll.probe.plan import ProbePlan, Round, plan_probes
from cloudcoll.probe.results import Results
from cloudcoll.probe.spool import (
    Row,
    add_row,
    load_spool,
    read_row,
    set_aside,
    spooling,
    start_spool,
)

HOSTS = tuple(Host(f"vm-{i}") for i in range(5))
PLAN = plan_probes(HOSTS)


def rows_of(round_: Round) -> list[Row]:
    """Return what the hosts of a round would report."""
    if round_.kind == "rtt":
        how: dict[str, Any] = {"type": "rtt", "sent": 2, "ns": [7000, 8000]}
        met = list(round_.pairs)
    else:
        how = {"type": "flow", "windows": [10, 20, 30]}
        met = [(dst, src) for src, dst in round_.pairs]
    return [(host, {**how, "slot": round_.number, "peer": peer}) for host, peer in met]


ROWS = [row for round_ in PLAN.rounds() for row in rows_of(round_)]
RTTS = [row for row in ROWS if row[1]["type"] == "rtt"]


def spool(path: Path, rows: list[Row], plan: ProbePlan = PLAN) -> Path:
    with start_spool(path, HOSTS, plan) as file:
        for row in rows:
            add_row(file, row)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.snap.partial"


def test_rows_come_back(path: Path) -> None:
    """Tests that a resumed probe has every row, and goes on in the same file."""
    results = Results(PLAN)
    first = load_spool(spool(path, RTTS[:3]), HOSTS, PLAN, results)
    assert first == RTTS[:3]
    assert results.count == (3, len(ROWS))
    with start_spool(path, HOSTS, PLAN, first) as file:
        add_row(file, RTTS[3])
    assert load_spool(path, HOSTS, PLAN, Results(PLAN)) == RTTS[:4]


@given(st.integers(1, 60))
def test_a_torn_row_is_dropped(tmp_path_factory: Any, torn: int) -> None:
    """Tests that what was being written in a crash is not taken for a row."""
    path = spool(tmp_path_factory.mktemp("torn") / "p", RTTS[:2])
    data = path.read_bytes()
    path.write_bytes(data[:-torn])
    assert load_spool(path, HOSTS, PLAN, Results(PLAN)) == RTTS[:1]


def test_flows_count_by_rounds(path: Path) -> None:
    """Tests that flows without the others of their round are measured again."""
    loads = [rows_of(round_) for round_ in PLAN.rounds() if round_.kind != "rtt"]
    results = Results(PLAN)
    kept = load_spool(spool(path, [*loads[0], loads[1][0]]), HOSTS, PLAN, results)
    assert kept == loads[0]
    again = {host for host, _ in loads[1]}
    assert set(results.missing[loads[1][0][1]["slot"]]) == again


def test_what_is_worth_nothing_is_measured_again(path: Path) -> None:
    """Tests rows without a reply and of hosts starved of CPU, whoever said so."""
    loads = [rows_of(round_) for round_ in PLAN.rounds() if round_.kind != "rtt"]
    (asker, trip), (mute, silence) = RTTS[0], RTTS[1]
    busy = {"type": "starved", "slot": trip["slot"], "peer": asker}
    late = {"type": "starved", "slot": loads[0][0][1]["slot"], "peer": loads[0][0][0]}
    rows = [
        RTTS[0],
        (trip["peer"], busy),
        (mute, {**silence, "ns": []}),
        *loads[0],
        (loads[0][0][1]["peer"], late),
        *loads[1],
        RTTS[2],
    ]
    results = Results(PLAN)
    assert load_spool(spool(path, rows), HOSTS, PLAN, results) == [*loads[1], RTTS[2]]
    assert results.starved == set()


def test_only_the_plans_own_rounds_are_kept(path: Path) -> None:
    """Tests that troubles, and rounds that came of what was found, leave no row."""
    results = Results(PLAN)
    more = Round(PLAN.count, "rtt", 0.0, ((0, 1),))
    with spooling(path, HOSTS, PLAN, results, resume=False):
        results.expect([more])
        for host, frame in (RTTS[0], *rows_of(more)):
            results.add(host, frame)
        results.add(0, {"type": "trouble", "slot": 0, "peer": 1, "text": "refused"})
    assert results.count[0] == 2
    assert load_spool(path, HOSTS, PLAN, Results(PLAN)) == RTTS[:1]


def test_rows_are_set_aside(path: Path) -> None:
    """Tests that rows are kept under another name, and only where there are any."""
    assert set_aside(path) is None
    assert set_aside(spool(path, [])) is None
    assert path.exists()
    old = set_aside(spool(path, RTTS[:2]))
    assert old == path.with_name("a.snap.partial.old")
    assert not path.exists()
    assert load_spool(old, HOSTS, PLAN, Results(PLAN)) == RTTS[:2]


def test_a_folder_that_refuses_is_named(tmp_path: Path) -> None:
    """Tests that what cannot be set aside is an error that names it."""
    with pytest.raises(UnusableError, match=r"cannot set .* aside"):
        set_aside(tmp_path)


def test_what_is_missing() -> None:
    """Tests that what is missing names each reporter that was not heard."""
    results = Results(PLAN)
    assert sum(map(len, results.missing.values())) == len(ROWS)
    for row in ROWS[1:]:
        results.add(*row)
    host, frame = ROWS[0]
    assert results.missing == {frame["slot"]: [host]}
    assert results.missing_between({host, frame["peer"]}) == 1
    assert results.missing_between(set(range(5)) - {host}) == 0
    assert results.heard == set(range(5))


@pytest.mark.parametrize(
    ("hosts", "plan", "words"),
    [
        (HOSTS[::-1], PLAN, "its names is .*vm-0.*, now it is .*vm-4"),
        (HOSTS, replace(PLAN, seed=1), "its seed is 0, now it is 1"),
        (HOSTS, plan_probes(HOSTS, mode="standard"), "now it is"),
    ],
)
def test_another_probe_is_refused(
    path: Path, hosts: tuple[Host, ...], plan: ProbePlan, words: str
) -> None:
    """Tests that rows of other hosts or another plan are not mixed in."""
    spool(path, RTTS[:1])
    with pytest.raises(UsageError, match=words):
        load_spool(path, hosts, plan, Results(plan))


def test_nothing_to_resume(path: Path) -> None:
    """Tests that a missing spool is an error that says what to do."""
    with pytest.raises(UsageError, match="leave --resume out"):
        load_spool(path, HOSTS, PLAN, Results(PLAN))


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"null", json.dumps({"host": 0, **RTTS[0][1]}).encode()],
)
def test_a_damaged_spool(path: Path, line: bytes) -> None:
    """Tests that a line that is no row, or is there twice, is refused."""
    spool(path, [(0, RTTS[0][1])] if line.startswith(b'{"host"') else [])
    path.write_bytes(path.read_bytes() + line + b"\n" + line + b"\n")
    with pytest.raises(UnusableError, match="is damaged"):
        load_spool(path, HOSTS, PLAN, Results(PLAN))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.dictionaries(
        st.sampled_from(["host", "type", "slot", "peer", "sent", "ns", "windows"]),
        json_values | st.sampled_from(["rtt", "flow", "starved", "hello"]),
    )
)
def test_any_object_as_a_row(value: dict[str, Any]) -> None:
    """Tests that a row is one of a measurement, or refused; nothing else."""
    try:
        host, frame = read_row(json.dumps(value).encode())
    except FrameError:
        return
    assert type(host) is int
    assert frame["type"] in ("rtt", "flow", "starved")


def test_a_full_disk_is_named() -> None:
    """Tests that a row that cannot be kept is an error that names the file."""
    with (
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(UnusableError, match="/dev/full: No space left"),
    ):
        add_row(full, RTTS[0])
