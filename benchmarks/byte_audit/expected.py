"""What a counted run should have sent between hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from cases import Case
from verdict import Verdict, judge, judge_messages

from cloudcoll.collectives import Schedule, build_schedule
from cloudcoll.libraries import select

Matrix = npt.NDArray[np.float64]


def expected(case: Case, row: dict[str, Any]) -> Schedule:
    """Return the schedule of a row's call."""
    ranks, size, root = row["ranks"], row["size"], row.get("root", 0)
    if case.algorithm:
        return build_schedule(case.collective, case.algorithm, ranks, size)
    version = row["library"].rpartition(" ")[2]
    # Both reduce-scatters have the same algorithms.
    settings = {
        name.replace("_BLOCK", ""): str(value) for name, value in case.settings.items()
    }
    choice = select(
        f"{row['program']}@{version}",
        case.collective,
        ranks,
        size,
        local=row.get("local", 1),
        settings=settings,
    )
    given = {**choice.parameters, **({"root": root} if root else {})}
    return build_schedule(case.collective, choice.algorithm, ranks, size, **given)


def verdict_of(schedule: Schedule, row: dict[str, Any]) -> Verdict:
    """Return how far the bytes of a row are from its schedule."""
    local, sent = row.get("local", 1), np.array(row["sent"])
    if schedule.size:
        return judge(sent, between_hosts(schedule.pair_bytes(), local))
    return judge_messages(sent, between_hosts(messages(schedule), local))


def messages(schedule: Schedule) -> Matrix:
    """Return how many messages go from each rank to each other."""
    counts = np.zeros((schedule.ranks, schedule.ranks))
    for step in schedule.steps:
        np.add.at(counts, (step.src, step.dst), step.repeat)
    return counts


def between_hosts(pairs: Matrix, local: int) -> Matrix:
    """Return what goes from each host to each other one, of ranks host by host."""
    hosts = range(0, len(pairs), local)
    total = np.add.reduceat(np.add.reduceat(pairs, hosts, axis=0), hosts, axis=1)
    np.fill_diagonal(total, 0.0)
    return total
