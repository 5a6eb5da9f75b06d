"""Runs a bench plan and collects its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudcoll.bench.plan import BenchPlan
from cloudcoll.errors import CloudcollError
from cloudcoll.files import NOT_JSON, strict_json
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


@dataclass(frozen=True)
class JobOutput:
    """What a bench's job printed.

    Attributes
    ----------
    hello : mapping
        Its first line.
    rows : tuple of mapping
        Its measurements, in order of time.
    failure : str
        Why there are no more of them; empty if that is all.
    left_out : mapping of str to str
        Orders that could not be started, and why.
    spared : tuple of int
        Bytes of sizes for which there was no time.
    """

    hello: Mapping[str, Any]
    rows: tuple[Row, ...]
    failure: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    spared: tuple[int, ...] = ()


def run_bench(
    plan: BenchPlan,
    env: Mapping[str, str],
    timeout: float,
    on_row: Callable[[Row, float], None] = lambda row, left: None,
) -> JobOutput:
    """Run the job; what it measured before a failure is kept.

    The job's stderr is ours.

    Parameters
    ----------
    plan : BenchPlan
    env : mapping
        Environment of the launcher.
    timeout : float
        Seconds after which the job is stopped.
    on_row : callable
        Told each row, and about how many seconds are left, as it comes.

    Raises
    ------
    CloudcollError
        Nothing was measured, or ranks are elsewhere than planned.
    """
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    spared: list[int] = []
    hello: dict[str, Any] = {}
    failure = "the job ended before it was done"
    try:
        with run_job(plan.argv, plan.spec, env, timeout) as printed:
            lines = _objects(printed)
            hello = next(lines, {})
            _check_placement(hello, plan)
            for line in lines:
                if line.get("done"):
                    failure = ""
                    continue
                if "trouble" in line:
                    left_out[str(line.get("order"))] = str(line["trouble"])
                    continue
                if type(size := line.get("spared")) is int:
                    spared.append(size)
                    continue
                left = line.pop("left_s", math.nan)
                rows.append(_row(line))
                on_row(rows[-1], left)
    except CloudcollError as error:
        if not rows:
            raise
        failure = str(error)
    if not rows:
        reasons = [failure, *(f"order {n}: {why}" for n, why in left_out.items())]
        raise CloudcollError(
            f"nothing was measured: {'; '.join(filter(None, reasons))}"
        )
    return JobOutput(hello, tuple(rows), failure, left_out, tuple(spared))


def _objects(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield strict_json(line)
        except NOT_JSON:
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
            f"the job has {len(hosts)} ranks, {len(plan.placement)} were expected: is "
            "our program of the launcher's own MPI? (see --backend)"
        )
    short = {host: host.partition(".")[0] for host in plan.placement}
    if len(set(short.values())) < len(short):
        # They are addresses, or of two domains: all of each tells them apart.
        short = {host: host for host in short}
    alias: dict[str, str] = {}
    for rank, wanted in enumerate(map(short.__getitem__, plan.placement)):
        named = str(hosts[rank])
        found = short.get(named, named.partition(".")[0])
        known = alias.setdefault(wanted, found)
        if known != found or (found in short.values() and found != wanted):
            raise CloudcollError(
                f"rank {rank} landed on {found}, not on {wanted}: the launcher placed "
                "ranks in another order than its command line says"
            )
