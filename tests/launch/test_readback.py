from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcoll.launch import LaunchPlan
from cloudcoll.launch.openmpi import read_table
from cloudcoll.launch.plan import RankTable
from cloudcoll.launch.readback import (
    Check,
    OwnReadBack,
    first_mismatch,
    planned_names,
    reading_back,
)


@pytest.mark.parametrize(
    ("planned", "seen", "wrong"),
    [
        ("aabb", "aabb", None),
        ("aabb", "abab", (1, "b")),
        ("aabb", "bbaa", (0, "b")),
        ("aabb", "xxbb", None),  # a goes by another name
        ("aabb", "xxyy", None),
        ("aabb", "xyyb", (1, "y")),  # one host can't be two
        ("aabb", "xxxx", (2, "x")),  # nor two hosts one
    ],
)
def test_first_mismatch(planned: str, seen: str, wrong: tuple[int, str] | None) -> None:
    """Tests that the first wrong rank is found, and other names are allowed."""
    assert first_mismatch(planned, dict(enumerate(seen))) == wrong


@given(st.permutations("abcdef"), st.permutations("abcdef"))
def test_any_two_orders(planned: list[str], seen: list[str]) -> None:
    """Tests that two orders agree exactly when they are the same."""
    wrong = first_mismatch(planned, dict(enumerate(seen)))
    expected = [rank for rank in range(6) if planned[rank] != seen[rank]]
    assert (wrong[0] if wrong else None) == (expected[0] if expected else None)


def test_table_as_it_grows(tmp_path: Path) -> None:
    """Tests that nothing is said before all ranks are in the table."""
    table = tmp_path / "ranks"
    listed = RankTable(str(table), read_table)
    plan = LaunchPlan(("mpirun",), placement=("a", "b"), table=listed)
    with reading_back(plan, pytest.fail) as check:
        assert check is not None
        compare(check, table)


def compare(check: Check, table: Path) -> None:
    row = "(rank, host, exe, pid) = ({}, {}, app, 1)\n"
    assert check() is None
    table.write_text(row.format(0, "a"))
    assert check() is None
    table.write_text(row.format(0, "a") + row.format(1, "b"))
    assert check() == ""
    table.write_text(row.format(0, "b") + row.format(1, "a"))
    assert check() == ("the order did not take: rank 0 runs on b, planned on a")


def test_names_with_and_without_a_domain() -> None:
    """Tests that a domain makes no other host, but an address is never cut."""
    seen = dict(enumerate(["a.x.org", "b", "10.0.0.2", "c.x.org"]))
    planned = ("a", "b.x.org", "10.0.0.1", "c.x.org", "c.y.org")
    assert list(planned_names(seen, planned).values()) == [
        *("a", "b.x.org", "10.0.0.2", "c.x.org")
    ]
    swapped = planned_names({0: "b.x.org", 1: "a.x.org"}, ("a", "b"))
    assert first_mismatch(("a", "b"), swapped) == (0, "b")


def test_ranks_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what started ranks find tells their place, and nothing else does."""
    name = "CLOUDCOLL_TEST_RANK"
    monkeypatch.setenv(name, "7")
    assert OwnReadBack(name, "7")() is None
    waiting = "import sys; print(flush=True); sys.stdin.read()"
    starter = f"""
import os, subprocess, sys
rank = {{**os.environ, "{name}": "2"}}
subprocess.run([sys.executable, "-c", "{waiting}"], env=rank)
"""
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        # The process between, which has our own value, counts for nothing.
        assert OwnReadBack(name, "2")() == ""
        assert OwnReadBack(name, "1")() == (
            f"the order did not take: {name} is 2 here, planned is 1"
        )
        process.communicate()
    assert OwnReadBack(name, "2")() is None
