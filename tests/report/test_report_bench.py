from __future__ import annotations

import pytest

from cloudcoll.bench.result import BenchRun
from cloudcoll.report.bench import bench_lines, summary_lines

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


def test_the_summary_names_equal_orders(run: BenchRun) -> None:
    """Tests one line per order, with its ratio or what it equals."""
    lines = {line.split()[0]: line for line in summary_lines(run)[3:]}
    assert "3.00x" in lines["given"]
    assert lines["grouped"].endswith("the same order")
    assert set(lines) == {"given", "sorted", "grouped", "cloudcoll"}
