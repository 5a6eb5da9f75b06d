"""What is sent, as text and JSON: by one collective, in a workload's step, by a job.

Of a schedule the steps, the bytes per pair, and what crosses a fabric's levels.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cloudcoll import units
from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, Step
from cloudcoll.collectives.workload import Operation, Workload
from cloudcoll.network.tree import Fabric, Node
from cloudcoll.profile import Calls, Profile
from cloudcoll.report.document import Table

WIDTH = 80
SHOWN = 16
"""Steps, and pairs of equal bytes; ``--json`` has them all."""


@dataclass(frozen=True)
class Crossing:
    """Bytes that leave the groups of one level of a fabric.

    Attributes
    ----------
    level : int
        -1 for single hosts, 0 for groups of hosts, and so on up.
    groups : int
        How many there are.
    bytes : float
        Of one call, sent from one group to another.
    share : float
        Of all bytes of the call.
    """

    level: int
    groups: int
    bytes: float
    share: float


def crossings(
    pair_bytes: Floats, fabric: Fabric, order: Sequence[str], slots: Sequence[int]
) -> list[Crossing]:
    """Return the bytes that leave hosts, groups, and groups of groups up to the core.

    `pair_bytes`, shape (ranks, ranks), are from each rank to each other; the first host
    of the order takes the first ranks, `slots` of them.
    """
    of_rank = np.repeat([fabric.position(name) for name in order], slots)
    total = float(pair_bytes.sum())
    found = []
    for level, group in enumerate(_groups(fabric), start=-1):
        mine = group[of_rank]
        crossing = float(pair_bytes[mine[:, None] != mine[None, :]].sum())
        share = crossing / total if total else 0.0
        found.append(Crossing(level, len(np.unique(mine)), crossing, share))
    return found


def _groups(fabric: Fabric) -> Iterator[Ints]:
    """Yield for each level below the core the number of each host's group."""
    yield np.arange(len(fabric.hosts))
    for level in range(len(fabric.groups()) - 1):
        # A host that hangs higher up is a group by itself.
        tops = [list(node.leaves()) for node in _tops(fabric.root, level)]
        yield np.repeat(np.arange(len(tops)), [len(names) for names in tops])


def _tops(node: Node, level: int) -> Iterator[Node]:
    """Yield the highest nodes that stand at `level` or below, left to right."""
    if _height(node) <= level + 1:
        yield node
    else:
        for child in node.children:
            yield from _tops(child, level)


def _height(node: Node) -> int:
    return 1 + max(map(_height, node.children)) if node.children else 0


def schedule_lines(schedule: Schedule) -> list[str]:
    """Return the steps of a schedule and its bytes per pair."""
    return [
        f"{schedule.collective} {schedule.algorithm} of {units.size(schedule.size)}, "
        f"{schedule.ranks} ranks, as in {schedule.library}",
        "",
        *_step_lines(schedule.steps),
        "",
        *pair_lines(schedule.pair_bytes()),
    ]


def _step_lines(steps: Sequence[Step]) -> Iterator[str]:
    yield "times  messages        bytes  first"
    for step in steps[:SHOWN]:
        low, high = units.size(step.size.min()), units.size(step.size.max())
        size = low if low == high else f"to {high}"
        first = f"{step.src[0]} to {step.dst[0]}"
        together = ", with the step before" if step.overlaps else ""
        yield f"{step.repeat:>5}  {len(step.src):>8}  {size:>11}  {first}{together}"
    if len(steps) > SHOWN:
        yield f"and {len(steps) - SHOWN} more steps"


def pair_lines(pairs: Floats) -> Iterator[str]:
    """Yield pairs of the same bytes together, most bytes first, and the sum.

    `pairs` has the bytes from each rank to each other, shape (ranks, ranks).
    """
    yield "bytes per pair of ranks"
    for amount in np.unique(pairs[pairs > 0])[::-1][:SHOWN].tolist():
        src, dst = np.nonzero(pairs == amount)
        named = [f"{a}-{b}" for a, b in zip(src[:SHOWN], dst[:SHOWN], strict=True)]
        more = [f"and {len(src) - SHOWN} more"] if len(src) > SHOWN else []
        yield from textwrap.wrap(
            f"{units.size(amount):>12}  {' '.join([*named, *more])}",
            WIDTH,
            subsequent_indent=" " * 14,
            break_on_hyphens=False,
        )
    busiest = max(pairs.sum(axis=0).max(), pairs.sum(axis=1).max())
    yield ""
    yield (
        f"{units.size(pairs.sum())} in all, {units.size(busiest)} through the busiest "
        "rank"
    )


def crossing_lines(orders: Mapping[str, Sequence[Crossing]]) -> list[str]:
    """Return a table: the share of bytes that leaves each level, for each order."""
    first = next(iter(orders.values()))
    heads = [_level_name(crossing) for crossing in first]
    lines = [f"{'bytes that leave':>16}" + "".join(f"  {head:>12}" for head in heads)]
    for name, found in orders.items():
        cells = (f"{crossing.share:.1%}" for crossing in found)
        lines.append(f"{name:>16}" + "".join(f"  {cell:>12}" for cell in cells))
    return lines


def _level_name(crossing: Crossing) -> str:
    if crossing.level < 0:
        return f"{crossing.groups} hosts"
    up = f" ({crossing.level})" if crossing.level else ""
    return f"{crossing.groups} groups{up}"


def schedule_json(
    schedule: Schedule, orders: Mapping[str, Sequence[Crossing]]
) -> dict[str, Any]:
    """Return a schedule as JSON-ready values.

    ``pairs`` and each step's ``messages`` are lists of [src, dst, bytes]; a step
    that ``overlaps`` is under way together with the one before;
    ``levels`` has for each order what `Crossing` says, from the leaves up.
    """
    return {
        **schedule.describe(),
        "steps": [
            {
                "repeat": step.repeat,
                "overlaps": step.overlaps,
                "messages": _rows(step.src, step.dst, step.size),
            }
            for step in schedule.steps
        ],
        **pairs_json(schedule.pair_bytes(), orders),
    }


def pairs_json(
    pairs: Floats, orders: Mapping[str, Sequence[Crossing]]
) -> dict[str, Any]:
    """Return ``pairs`` and ``levels`` of `schedule_json`."""
    src, dst = np.nonzero(pairs)
    return {
        "pairs": _rows(src, dst, pairs[src, dst]),
        "levels": {name: [asdict(c) for c in found] for name, found in orders.items()},
    }


def _rows(src: Ints, dst: Ints, size: Floats) -> list[list[float]]:
    columns = (src.tolist(), dst.tolist(), size.tolist())
    return [list(row) for row in zip(*columns, strict=True)]


ALL_TO_ALL = "all-to-all: no order cuts its bytes per pair, choosing other VMs can help"
"""What to know before expecting much of a better order."""


def has_alltoall(sent: Schedule | Workload) -> bool:
    """Return whether the words `ALL_TO_ALL` apply."""
    calls = sent.operations if isinstance(sent, Workload) else [sent]
    return any(call.collective == "alltoall" for call in calls)


def traffic_lines(
    sent: Schedule | Workload, orders: Mapping[str, Sequence[Crossing]]
) -> list[str]:
    """Return what is sent, and the share that leaves each level in some orders."""
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


MOST_LINES = 20
"""The rest takes less time than any of these."""


def profile_lines(profile: Profile, path: str) -> Iterator[str]:
    """Yield what the job called, what took most time first.

    The path of its file is for the command that comes next.
    """
    name = profile.library.partition(",")[0].replace("Version:", "")
    library = " ".join(name.split())
    share = "?" if math.isnan(profile.share) else f"{profile.share:.0%}"
    yield (
        f"profile of {profile.ranks} ranks, {library}: "
        f"{units.seconds(profile.seconds)}, {share} in collectives"
    )
    if not profile.calls:
        yield "no collective that is counted was called"
        return
    yield ""
    whole = sum(one.rank_seconds for one in profile.calls)
    rows = [_row(alike, whole) for alike in _alike(profile.calls)]
    shown = tuple(rows[:MOST_LINES])
    head = ("share", "collective", "groups", "calls", "bytes", "a call", "without wait")
    yield from Table(head, shown).lines()
    if left := len(rows) - len(shown):
        yield f"and {left} more that take less time"
    yield ""
    yield (
        "share: of the time in collectives; a call: the mean of the ranks; without "
        "wait: of the rank that was there last"
    )
    if any(len(one.group) > 1 for one in profile.calls):
        yield f"next: cloudcoll solve SNAP --workload {path}"


def profile_json(profile: Profile) -> dict[str, Any]:
    """Return the same as JSON-ready values, `Profile`'s own; NaN is ``null``."""
    share = None if math.isnan(profile.share) else profile.share
    return asdict(profile) | {"share": share}


def _alike(calls: Sequence[Calls]) -> list[list[Calls]]:
    """Return calls of one collective and class of sizes, by the size of groups."""
    found: dict[tuple[object, ...], list[Calls]] = {}
    for one in calls:
        key = one.collective, one.size.bit_length(), len(one.group)
        found.setdefault(key, []).append(one)
    return sorted(found.values(), key=lambda alike: -_seconds(alike))


def _seconds(calls: Sequence[Calls]) -> float:
    return sum(one.rank_seconds for one in calls)


def _row(alike: Sequence[Calls], whole: float) -> tuple[str, ...]:
    """Return one line; figures of a call are means over the groups' calls."""
    first = alike[0]
    times = sum(one.calls for one in alike)
    groups = len({one.group for one in alike})
    return (
        f"{_seconds(alike) / whole:.0%}" if whole else "?",
        first.collective,
        f"{groups} x {len(first.group)}",
        f"{times / groups:g}",
        units.size(sum(one.calls * one.size for one in alike) / times),
        units.seconds(sum(one.seconds for one in alike) / times),
        units.seconds(sum(one.least for one in alike) / times),
    )
