from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import time
from typing import Any

import pytest

from cloudcoll.bench.job import BenchPlan, JobOutput, run_bench
from cloudcoll.errors import CloudcollError

HELLO = {"library": "Open MPI v5.0.11", "hosts": ["a", "b"]}
DONE = {"done": True}
ROW = {
    "op": "allreduce",
    "bytes": 64,
    "order": "given",
    "repeat": 0,
    "time_us": 1.5,
    "calls": 3,
    "wrong": 0,
}


def plan(
    program: str, *argv: str, placement: tuple[str, ...] = ("a", "b")
) -> BenchPlan:
    """Return a plan whose job is a small Python program."""
    code = textwrap.dedent(program)
    return BenchPlan(
        argv=(sys.executable, "-c", code, *argv),
        spec={"orders": {}},
        placement=placement,
        rows=1,
    )


def printing(*lines: object, **planned: tuple[str, ...]) -> BenchPlan:
    """Return a plan whose job reads its task and prints these lines."""
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    code = "import sys; sys.stdin.readline(); print(*sys.argv[1:], sep='\\n')"
    return plan(code, *text, **planned)


def run(job: BenchPlan, timeout: float = 30.0) -> JobOutput:
    return run_bench(job, os.environ, timeout)


def test_rows_come_with_the_hello() -> None:
    """Tests that a launcher's remarks are passed over and rows kept in order."""
    seen: list[Any] = []
    second = {**ROW, "repeat": 1}
    lines = ("A remark.", HELLO, "Another.", {**ROW, "left_s": 2.0}, second, DONE)
    found = run_bench(
        printing(*lines), os.environ, 30.0, lambda row, left: seen.append((row, left))
    )
    assert found.hello["library"] == HELLO["library"]
    assert found.rows == tuple(row for row, _ in seen) == (ROW, second)
    assert seen[0][1] == 2.0
    assert found.failure == ""


@pytest.mark.parametrize("hosts", [["b", "a"], ["a", "a"]])
def test_ranks_elsewhere_end_the_bench(hosts: list[str]) -> None:
    """Tests that a launcher that placed ranks otherwise is found out."""
    with pytest.raises(CloudcollError, match="landed on"):
        run(printing({**HELLO, "hosts": hosts}, ROW))
    listed = printing({**HELLO, "hosts": hosts}, ROW, placement=("a.east", "b.east"))
    with pytest.raises(CloudcollError, match="landed on"):
        run(listed)


def test_a_long_line_that_makes_no_sense_is_cut() -> None:
    """Tests that no more than its first 60 characters are shown."""
    line = '{"op": "' + "x" * 100
    with pytest.raises(CloudcollError) as caught:
        run(printing(HELLO, line))
    assert str(caught.value).endswith(f"half a line: {line[:60].encode()!r}")


def test_a_host_may_call_itself_otherwise() -> None:
    """Tests that an alias of a listed host, and a domain, are no mistakes."""
    hello = {**HELLO, "hosts": ["vm-7.cluster", "b.cluster"]}
    assert run(printing(hello, ROW, DONE)).rows == (ROW,)


def test_a_host_may_call_itself_by_its_first_name_too() -> None:
    """Tests that ranks of one host are together, with the domain or without."""
    hello = {**HELLO, "hosts": ["vm-7.cluster", "vm-7", "b.cluster"]}
    job = printing(hello, ROW, DONE, placement=("a", "a", "b"))
    assert run(job).rows == (ROW,)
    hello = {**HELLO, "hosts": ["vm-7.cluster", "vm-8.cluster", "b.cluster"]}
    with pytest.raises(CloudcollError, match="rank 1 landed on vm-8, not on a"):
        run(printing(hello, ROW, DONE, placement=("a", "a", "b")))


@pytest.mark.parametrize(
    ("placement", "hosts"),
    [
        (("10.0.0.1", "10.0.0.2"), ["vm-1", "vm-2"]),
        (("vm.east", "vm.west"), ["vm.east", "vm.west"]),
        (("vm.east", "vm.west"), ["vm", "vm"]),
    ],
)
def test_listed_hosts_may_begin_alike(
    placement: tuple[str, ...], hosts: list[str]
) -> None:
    """Tests addresses of one network, and one name in two domains."""
    hello = {**HELLO, "hosts": hosts}
    assert run(printing(hello, ROW, DONE, placement=placement)).rows == (ROW,)


def test_hosts_of_two_domains_may_not_change_places() -> None:
    """Tests that names that begin alike are still told apart."""
    hello = {**HELLO, "hosts": ["vm.west", "vm.east"]}
    with pytest.raises(CloudcollError, match="landed on"):
        run(printing(hello, ROW, placement=("vm.east", "vm.west")))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "never began"),
        ([HELLO], "nothing was measured"),
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


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        ("sys.exit(7)", "exit code 7"),
        ("os.kill(os.getpid(), 9)", "exit code -9"),
        ("print('{', flush=True)", "half a line"),
        ("", "ended before it was done"),
    ],
)
def test_what_came_before_a_failure_is_kept(last: str, failure: str) -> None:
    """Tests that a job killed in the middle leaves its rows, and why they are few."""
    lines = [json.dumps(HELLO), json.dumps(ROW)]
    code = f"""
        import os, sys
        sys.stdin.readline()
        print(*sys.argv[1:], sep="\\n", flush=True)
        {last}
    """
    found = run(plan(code, *lines))
    assert found.rows == (ROW,)
    assert failure in found.failure


def test_a_job_that_hangs_at_its_end_keeps_all_it_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests that a job that is done has its time to end, not the whole time limit."""
    monkeypatch.setattr("cloudcoll.programs.ENDING", 0.5)
    code = """
        import sys, time
        sys.stdin.readline()
        print(*sys.argv[1:], sep="\\n", flush=True)
        time.sleep(300)
    """
    begin = time.monotonic()
    found = run(plan(code, *map(json.dumps, (HELLO, ROW, DONE))), timeout=250.0)
    assert time.monotonic() - begin < 60  # not the 250 s of the limit
    assert found.rows == (ROW,)
    assert "is done but has not ended" in found.failure


def test_a_job_that_is_done_may_end_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that ranks that take longer than a kill's grace have not failed."""
    monkeypatch.setattr("cloudcoll.programs.GRACE", 1.0)
    code = """
        import os, select, sys
        sys.stdin.readline()
        print(*sys.argv[1:], sep="\\n", flush=True)
        select.select([], [], [], 2.0)
        os._exit(0)
    """
    found = run(plan(code, *map(json.dumps, (HELLO, ROW, DONE))))
    assert found.rows == (ROW,)
    assert found.failure == ""


@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_job_that_hangs_is_stopped(
    deaf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that the time limit ends the job, even one deaf to SIGTERM."""
    monkeypatch.setattr("cloudcoll.programs.GRACE", 0.5)
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
    with pytest.raises(CloudcollError, match=r"ended at once|never began"):
        run(plan("import os; os.close(0)"))


@pytest.mark.parametrize(
    ("argv", "needed"),
    [
        ((sys.executable, "-c", "input()"), sys.executable),
        (("/bin/sh", "-c", "read task"), "read task"),
    ],
)
def test_what_ranks_may_lack_is_named(argv: tuple[str, ...], needed: str) -> None:
    """Tests a job in which no rank began: Python, or else the job's program."""
    with pytest.raises(CloudcollError, match=f"is {re.escape(needed)} on every host"):
        run(BenchPlan(argv, {}, ("a",), 1))
