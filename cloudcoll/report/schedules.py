"""A schedule as text: steps, bytes per pair, what crosses a fabric's levels."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cloudcoll import units
from cloudcoll.arrays import Floats, Ints
from cloudcoll.collectives import Schedule, Step
from cloudcoll.network.tree import Fabric, Node

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

    Parameters
    ----------
    pair_bytes : ndarray, shape (ranks, ranks)
        Bytes from each rank to each other.
    fabric : Fabric
        Of these hosts at least.
    order : sequence of str
        Host names; the first takes the first ranks.
    slots : sequence of int
        Ranks on each host, in the same positions.
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

    Parameters
    ----------
    pairs : ndarray, shape (ranks, ranks)
        Bytes from each rank to each other.
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
