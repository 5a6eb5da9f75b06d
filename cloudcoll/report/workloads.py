"""What is sent, as text and JSON: by one collective, or in a step of a workload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cloudcoll.collectives import Schedule
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.report import units
from cloudcoll.report.schedules import (
    Crossing,
    crossing_lines,
    pair_lines,
    pairs_json,
    schedule_json,
    schedule_lines,
)

ALL_TO_ALL = "all-to-all: no order cuts its bytes per pair, choosing other VMs can help"
"""What to know before expecting much of a better order."""


def has_alltoall(sent: Schedule | Workload) -> bool:
    """Return whether `ALL_TO_ALL` is to be said."""
    calls = sent.operations if isinstance(sent, Workload) else [sent]
    return any(call.collective == "alltoall" for call in calls)


def traffic_lines(
    sent: Schedule | Workload, orders: Mapping[str, Sequence[Crossing]]
) -> list[str]:
    """Return what is sent, and the share that leaves each level in some orders.

    Parameters
    ----------
    sent : Schedule or Workload
    orders : mapping of str to sequence of Crossing
        May be empty.
    """
    lines = workload_lines(sent) if isinstance(sent, Workload) else schedule_lines(sent)
    if orders:
        lines += ["", *crossing_lines(orders)]
    if has_alltoall(sent):
        lines += ["", ALL_TO_ALL]
    return lines


def traffic_json(
    sent: Schedule | Workload, orders: Mapping[str, Sequence[Crossing]]
) -> dict[str, Any]:
    """Return the same as JSON-ready values: see `schedule_json`.

    A workload has its file's keys in place of steps.
    """
    if isinstance(sent, Schedule):
        return schedule_json(sent, orders)
    return sent.describe() | pairs_json(sent.pair_bytes(), orders)


def workload_lines(workload: Workload) -> list[str]:
    """Return the operations of a workload and its bytes per pair."""
    split = f", {workload.parallel}" if workload.parallel else ""
    return [
        f"workload {workload.name}, {workload.ranks} ranks{split}, one step",
        "",
        *operation_lines(workload),
        "",
        *pair_lines(workload.pair_bytes()),
    ]


def operation_lines(workload: Workload) -> list[str]:
    """Return a table: calls, bytes, collective and groups of each operation."""
    rows = [
        f"{op.calls:>5}  {units.size(op.size):>11}  "
        f"{op.collective + ' ' + op.algorithm:<27}  {_groups_text(op)}"
        for op in workload.operations
    ]
    return [f"calls  {'bytes':>11}  {'operation':<27}  groups", *rows]


def _groups_text(operation: Operation) -> str:
    """Return ``16 x 8 tp``: how many groups of how many ranks, and their name."""
    sizes = Counter(len(group) for group in operation.groups)
    counts = [f"{count} x {size}" for size, count in sorted(sizes.items())]
    return f"{', '.join(counts)} {operation.where}"
