"""Runs a bench plan and collects its rows."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cloudcoll.bench.plan import BenchPlan
from cloudcoll.errors import CloudcollError

MAX_LINE = 1 << 20
"""Bytes of one line of the job's output; a longer one is not ours."""

GRACE = 5.0
"""Seconds that a job gets to end before it is killed."""

_ROW = {
    "op": str,
    "bytes": int,
    "order": str,
    "repeat": int,
    "time_us": float,
    "calls": int,
    "wrong": int,
}

Row = dict[str, Any]


def run_bench(
    plan: BenchPlan,
    env: Mapping[str, str],
    timeout: float,
    on_row: Callable[[Row], None] = lambda row: None,
) -> tuple[dict[str, Any], list[Row]]:
    """Run the job; return its first line and its rows.

    The job's stderr is ours. Rows that came before a failure are in the
    error's words only as a count: half a comparison compares nothing.

    Parameters
    ----------
    plan : BenchPlan
    env : mapping
        Environment of the launcher.
    timeout : float
        Seconds after which the job is stopped.
    on_row : callable
        Told each row as it comes.

    Raises
    ------
    CloudcollError
        The job failed, timed out, or placed ranks elsewhere than planned.
    """
    rows: list[Row] = []
    with _job(plan, env, timeout) as lines:
        hello = next(lines, {})
        _check_placement(hello, plan)
        for line in lines:
            rows.append(_row(line))
            on_row(rows[-1])
    if len(rows) != plan.rows:
        raise CloudcollError(
            f"the bench ended after {len(rows)} of {plan.rows} measurements"
        )
    return hello, rows


@contextmanager
def _job(
    plan: BenchPlan, env: Mapping[str, str], timeout: float
) -> Iterator[Iterator[dict[str, Any]]]:
    """Start the job and yield the JSON objects it prints; never leave it behind."""
    try:
        job = subprocess.Popen(
            plan.argv,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CloudcollError(f"cannot run {plan.argv[0]}: {error.strerror}") from error
    late = threading.Timer(timeout, _end, [job])
    late.daemon = True
    late.start()
    assert job.stdin is not None
    assert job.stdout is not None
    try:
        job.stdin.write(json.dumps(plan.spec).encode() + b"\n")
        job.stdin.close()
        yield _objects(job)
        if code := job.wait(timeout=GRACE):
            over = " (out of time)" if late.finished.is_set() else ""
            raise CloudcollError(
                f"the bench's job ended with exit code {code}{over}; see its own words "
                "above"
            )
    except BrokenPipeError:
        code = job.wait(timeout=GRACE)
        raise CloudcollError(f"{plan.argv[0]} ended at once with code {code}") from None
    finally:
        late.cancel()
        _end(job)
        job.stdout.close()


def _end(job: subprocess.Popen[bytes]) -> None:
    """End the job, if it runs, by SIGTERM and then by SIGKILL."""
    if job.poll() is None:
        job.terminate()
        try:
            job.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _objects(job: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield JSON objects; other lines (a launcher's remarks) are passed over."""
    assert job.stdout is not None
    while line := job.stdout.readline(MAX_LINE):
        if line.startswith(b"{"):
            try:
                value = json.loads(line)
            except ValueError:
                raise CloudcollError(
                    f"the job printed half a line: {line[:60]!r}"
                ) from None
            yield value


def _row(line: Mapping[str, Any]) -> Row:
    for key, kind in _ROW.items():
        if type(line.get(key)) is not kind:
            raise CloudcollError(f"a measurement without a valid {key!r}: {line}")
    return dict(line)


def _check_placement(hello: Mapping[str, Any], plan: BenchPlan) -> None:
    """Compare where ranks landed with where the launcher was to put them.

    A host may call itself something else than the host list does (an address,
    an alias), but ranks of one host must stay together.
    """
    hosts = hello.get("hosts")
    if not isinstance(hosts, list):
        raise CloudcollError("the bench's job said nothing: see its own words above")
    if len(hosts) != len(plan.placement):
        raise CloudcollError(
            f"the job has {len(hosts)} ranks, {len(plan.placement)} were expected"
        )
    short = [host.split(".")[0] for host in plan.placement]
    alias: dict[str, str] = {}
    for rank, wanted in enumerate(short):
        found = str(hosts[rank]).split(".")[0]
        known = alias.setdefault(wanted, found)
        if known != found or (found in short and found != wanted):
            raise CloudcollError(
                f"rank {rank} landed on {found}, not on {wanted}: the launcher placed "
                "ranks in another order than its command line says"
            )
