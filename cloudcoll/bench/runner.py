"""Runs a bench plan and collects its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cloudcoll.bench.plan import BenchPlan
from cloudcoll.errors import CloudcollError
from cloudcoll.jobs import run_job

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
    with run_job(plan.argv, plan.spec, env, timeout) as printed:
        lines = _objects(printed)
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


def _objects(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            raise CloudcollError(
                f"the job printed half a line: {line[:60]!r}"
            ) from None


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
