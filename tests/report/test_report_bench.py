from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cloudcoll.bench.result import BenchRun
from cloudcoll.report.bench import (
    bench_lines,
    command_words,
    table_lines,
    verdict_words,
)

MIB = 1 << 20
HOSTS = ("a", "b", "c", "d")


@pytest.fixture
def run() -> BenchRun:
    """Two orders at one size, three repeats each; cloudcoll's is grouped."""
    times = {"given": (3000.0, 3100.0, 2900.0), "grouped": (1000.0, 1000.0, 1000.0)}
    rows = tuple(
        {
            "op": "allreduce",
            "bytes": MIB,
            "order": order,
            "repeat": repeat,
            "time_us": time,
            "calls": 1,
            "wrong": 0,
        }
        for order, series in times.items()
        for repeat, time in enumerate(series)
    )
    return BenchRun(
        metadata={
            "ranks": 4,
            "algorithm": "ring",
            "library": "Open MPI v5.0.11",
            "hosts": list(HOSTS),
        },
        orders={"given": HOSTS, "grouped": ("a", "c", "b", "d")},
        same_as={"sorted": "given", "cloudcoll": "grouped"},
        rows=rows,
        predicted={str(MIB): {"given": 2.7e-3, "grouped": 1e-3}},
    )


def test_rows_have_the_columns_of_nccl_tests(run: BenchRun) -> None:
    """Tests every column of a row: out of place, in place, then predicted."""
    rows = [line.split() for line in bench_lines(run) if not line.startswith("#")]
    what = [str(MIB), str(MIB // 4), "float", "sum", "-1"]
    measured = ["3000.0", "0.350", "0.524", "0"]
    assert rows[0] == [*what, *measured, *4 * ["N/A"], "2700.0", "-10%"]


def test_the_short_table_has_a_line_for_each_order(run: BenchRun) -> None:
    """Tests names of equal orders, times, ratios, and what there was no time for."""
    spared = {"orders": ["natural", "random-1", "random-2"], "sizes": [4 * MIB]}
    told = {**run.metadata, "spared": {**spared, "seconds": 45.0, "needed": 130}}
    lines = table_lines(replace(run, metadata=told))
    assert lines[0] == "allreduce, ring, 4 ranks on 4 hosts, Open MPI v5.0.11"
    assert lines[3].strip().startswith("given = sorted      3 ms   3.00x  (")
    assert lines[4].strip() == "grouped = cloudcoll      1 ms"
    assert lines[-1] == (
        "left out, to be done in 45 s: natural, 2 random orders, 4 MiB "
        "(--seconds 130 would do for all)"
    )


def test_the_verdict_is_the_gain(run: BenchRun) -> None:
    """Tests the sentence that a bench ends with, and the command that comes next."""
    said = verdict_words(run)
    assert said.startswith(
        "In CloudColl's order this allreduce of 1 MiB takes 1 ms instead of 3 ms: 3.00 "
        "times as fast ("
    )
    assert said.endswith(" as in the order given.")
    launcher, options = ["mpirun", "--hostfile", "my hosts"], ["--bytes", "1MiB"]
    assert command_words(run, launcher, options) == (
        "Next: cloudcoll run --bytes 1MiB mpirun --hostfile 'my hosts' ./app"
    )


def test_the_verdict_without_a_gain(run: BenchRun) -> None:
    """Tests orders that are alike, the same, slower, wrong, or not compared."""

    def timed(given: float, **changes: Any) -> BenchRun:
        times = {0: given, 1: 1.01 * given, 2: 0.99 * given}
        rows = [
            {**row, "time_us": times[row["repeat"]]} if row["order"] == "given" else row
            for row in run.rows
        ]
        return replace(run, rows=tuple(rows), **changes)

    assert "No gain could be measured for this" in verdict_words(timed(1000.0))
    assert "Next: keep the order given" in command_words(timed(1000.0), ["mpirun"], [])
    assert "longer than in the order given: 0.5" in verdict_words(timed(500.0))
    same = {"sorted": "given", "cloudcoll": "given"}
    kept = verdict_words(timed(1000.0, same_as=same))
    assert kept.startswith("CloudColl would keep the order given: ")
    unknown = replace(run, same_as={"sorted": "given"})
    assert "was not compared with CloudColl's" in verdict_words(unknown)
    broken = replace(run, rows=tuple({**row, "wrong": 1} for row in run.rows))
    assert "were wrong" in verdict_words(broken)
    assert "job's own messages" in command_words(broken, ["mpirun"], [])


def test_the_verdict_is_of_what_was_measured_often_enough(run: BenchRun) -> None:
    """Tests that a larger size, measured once, says nothing."""
    once = tuple({**row, "bytes": 4 * MIB} for row in run.rows if not row["repeat"])
    more = replace(run, rows=(*run.rows, *once))
    assert verdict_words(more) == verdict_words(run)
    assert table_lines(more)[-1] == "measured too seldom to compare: 4 MiB"
    single = replace(run, rows=once)
    assert "of 4 MiB takes" in verdict_words(single)
    assert "(measured too seldom to say how sure that is: " in verdict_words(single)
