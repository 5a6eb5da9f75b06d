from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Mapping
from typing import Any

import pytest

from cloudcoll.bench.plan import BenchPlan
from cloudcoll.bench.runner import run_bench
from cloudcoll.errors import CloudcollError

HELLO = {"library": "Open MPI v5.0.11", "hosts": ["a", "b"]}
ROW = {
    "op": "allreduce",
    "bytes": 64,
    "order": "given",
    "repeat": 0,
    "time_us": 1.5,
    "calls": 3,
    "wrong": 0,
}


def plan(program: str, *argv: str, rows: int = 1) -> BenchPlan:
    """Return a plan whose job is a small Python program."""
    code = textwrap.dedent(program)
    return BenchPlan(
        argv=(sys.executable, "-c", code, *argv),
        spec={"orders": {}},
        placement=("a", "b"),
        rows=rows,
    )


def printing(*lines: object, rows: int = 1) -> BenchPlan:
    """Return a plan whose job reads its task and prints these lines."""
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    code = "import sys; sys.stdin.readline(); print(*sys.argv[1:], sep='\\n')"
    return plan(code, *text, rows=rows)


def run(job: BenchPlan, timeout: float = 30.0) -> tuple[dict[str, Any], list[Any]]:
    return run_bench(job, os.environ, timeout)


def test_rows_come_with_the_hello() -> None:
    """Tests that a launcher's remarks are passed over and rows kept in order."""
    seen: list[Mapping[str, Any]] = []
    second = {**ROW, "repeat": 1}
    job = printing("A remark.", HELLO, "Another.", ROW, second, rows=2)
    hello, rows = run_bench(job, os.environ, 30.0, seen.append)
    assert hello["library"] == HELLO["library"]
    assert rows == seen == [ROW, second]


@pytest.mark.parametrize("hosts", [["b", "a"], ["a", "a"]])
def test_ranks_elsewhere_end_the_bench(hosts: list[str]) -> None:
    """Tests that a launcher that placed ranks otherwise is found out."""
    with pytest.raises(CloudcollError, match="landed on"):
        run(printing({**HELLO, "hosts": hosts}, ROW))


def test_a_host_may_call_itself_otherwise() -> None:
    """Tests that an alias of a listed host, and a domain, are no mistakes."""
    _, rows = run(printing({**HELLO, "hosts": ["vm-7.cluster", "b.cluster"]}, ROW))
    assert rows == [ROW]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "said nothing"),
        ([HELLO], "after 0 of 1 measurements"),
        ([{**HELLO, "hosts": ["a"]}, ROW], "the job has 1 ranks, 2 were expected"),
        ([HELLO, {**ROW, "time_us": "fast"}], "without a valid 'time_us'"),
        ([HELLO, {**ROW, "wrong": True}], "without a valid 'wrong'"),
        ([HELLO, '{"op": "allre'], "half a line"),
    ],
)
def test_an_output_that_makes_no_sense_is_named(
    lines: list[object], message: str
) -> None:
    """Tests that each kind of bad output is one clear error."""
    with pytest.raises(CloudcollError, match=message):
        run(printing(*lines))


def test_a_job_that_fails_is_named() -> None:
    """Tests that the job's exit code is in the error."""
    lines = [json.dumps(HELLO), json.dumps(ROW)]
    code = """
        import sys
        sys.stdin.readline()
        print(*sys.argv[1:], sep="\\n")
        sys.exit(7)
    """
    with pytest.raises(CloudcollError, match="exit code 7"):
        run(plan(code, *lines))


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_job_that_hangs_is_stopped(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the time limit ends the job, even one deaf to SIGTERM."""
    monkeypatch.setattr("cloudcoll.jobs.GRACE", 0.5)
    code = f"""
        import signal, sys, time
        {deaf}
        sys.stdin.readline()
        print(sys.argv[1], flush=True)
        time.sleep(300)
    """
    begin = time.monotonic()
    with pytest.raises(CloudcollError, match="out of time"):
        run(plan(code, json.dumps(HELLO)), timeout=0.5)
    assert time.monotonic() - begin < 60  # not the 300 s of the job


def test_a_launcher_that_is_not_there() -> None:
    """Tests the error for a program that cannot be started."""
    job = BenchPlan(("/no/such/mpirun",), {}, ("a",), 1)
    with pytest.raises(CloudcollError, match="cannot run /no/such/mpirun"):
        run(job)


def test_a_launcher_that_ends_at_once() -> None:
    """Tests that a launcher that does not read its input is no traceback."""
    with pytest.raises(CloudcollError, match=r"ended at once|said nothing"):
        run(plan("import os; os.close(0)"))
